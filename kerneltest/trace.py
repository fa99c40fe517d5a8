"""Kernel to jaxpr, and what can be read off or rewritten there. The only module that touches JAX's internals."""

import functools
import platform
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import config as jax_config
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from kerneltest.dtypes import Array, dtype, is_float
from kerneltest.oracle import Output
from kerneltest.pairing import Pairing
from kerneltest.plan import Signature

OLDEST, NEWEST = (0, 10, 2), (0, 12)

_ENTRIES = frozenset({"pallas_call", "core_map", "mpmd_map"})
_LOOPS = frozenset({"scan", "while"})
# Where a compiler parameter or a mesh is defined says which of Pallas' languages a kernel is written in.
_DIALECTS = {
    "jax._src.pallas.triton": "triton",
    "jax._src.pallas.mosaic_gpu": "mosaic_gpu",
    "jax._src.pallas.mosaic": "mosaic_tpu",
}
_EXACT_ON_INTEGERS = frozenset(
    """add sub neg mul dot_general max min abs sign floor ceil round clamp select_n reduce_sum reduce_max reduce_min
    cumsum cummax cummin convert_element_type broadcast_in_dim reshape squeeze expand_dims transpose rev concatenate
    slice dynamic_slice dynamic_update_slice gather scatter scatter_add pad copy copy_p iota stop_gradient
    get swap addupdate masked_load masked_swap load store atomic_rmw full_like device_put optimization_barrier
    jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vmap_call cond scan while run_scoped
    run_state pallas_call core_map mpmd_map""".split()
)
_MULTIPLIES = frozenset({"mul", "dot_general"})


class TraceError(Exception):
    """The kernel raised while it was traced."""


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One `pallas_call` or Mosaic kernel inside the function under test.

    Attributes:
      name: its name, or that of its function.
      grid: how many programs along each axis.
      dialect: `triton`, `mosaic_gpu`, `mosaic_tpu`, or `any` where the kernel leaves it open.
      equation: where it stands in the jaxpr.
    """

    name: str
    grid: tuple[int, ...]
    dialect: str
    equation: Any


@dataclass(frozen=True, eq=False, slots=True)
class Traced:
    """A kernel as a jaxpr, for one signature.

    Attributes:
      jaxpr: from the leaves, in the pairing's order, to the flat outputs.
      inputs: shape and dtype of each leaf.
      outputs: shape and dtype of each output.
      calls: the kernels inside, in order.
      exact: its arithmetic is exact, in any order, on integers within the plan's limit: nothing but sums, moves and
        at most one multiplication of floats.
      reduced_dots: it has a float32 matrix product whose precision it leaves to the backend.
    """

    jaxpr: ClosedJaxpr
    inputs: tuple[Output, ...]
    outputs: tuple[Output, ...]
    calls: tuple[Call, ...]
    exact: bool
    reduced_dots: bool

    @property
    def dialects(self) -> frozenset[str]:
        return frozenset(call.dialect for call in self.calls)


def version_problem() -> str:
    """Why this JAX is not one that kerneltest was tested with, or ""."""
    found = jax.__version_info__[:3]
    if found < OLDEST:
        return f"JAX {jax.__version__} is older than {'.'.join(map(str, OLDEST))}, the oldest that kerneltest knows"
    if found[:2] > NEWEST:
        return f"JAX {jax.__version__} is newer than {'.'.join(map(str, NEWEST))}, the newest that was tested"
    return ""


def trace(pairing: Pairing, signature: Signature) -> Traced:
    """Traces the kernel for one signature, without values and without a device.

    Raises:
      TraceError: the kernel raised, or has no Pallas call; names the signature and the user's line.
    """
    kinds = dict(signature.dtypes)
    inputs = tuple(Output(signature.shape(leaf), dtype(kinds[path])) for path, leaf in pairing.leaves.items())

    def flat(*leaves: Any) -> list[Any]:
        named = dict(zip(pairing.leaves, leaves, strict=True))
        values = pairing.assemble(named, dict(signature.dims), dict(signature.statics), oracle=False)
        return jax.tree_util.tree_leaves(pairing.call_kernel(values))

    try:
        closed = jax.make_jaxpr(flat)(*(jax.ShapeDtypeStruct(i.shape, i.dtype) for i in inputs))
    except Exception as error:
        raise TraceError(
            f"the kernel raised {type(error).__name__} while traced for {signature}: {error}{where_raised(error)}"
        ) from error
    # A jitted function called twice is one jaxpr, so its calls are the same equations.
    unique = {id(equation): equation for equation, _ in _equations(closed.jaxpr) if _name(equation) in _ENTRIES}
    return Traced(
        jaxpr=closed,
        inputs=inputs,
        outputs=tuple(Output(tuple(v.aval.shape), np.dtype(v.aval.dtype)) for v in closed.jaxpr.outvars),
        calls=tuple(map(_call, unique.values())),
        exact=_is_exact(closed.jaxpr),
        reduced_dots=any(_is_reduced_dot(equation) for equation, _ in _equations(closed.jaxpr)),
    )


def function(traced: Traced, *, interpret: bool) -> Callable[..., Any]:
    """The kernel as a function of its leaves, every Pallas call in it interpreted or compiled."""
    rewritten = traced.jaxpr.replace(jaxpr=_with_interpret(traced.jaxpr.jaxpr, interpret))
    run: Callable[..., Any] = jaxpr_as_fun(rewritten)
    return run


def callable_of(call: Call) -> tuple[Callable[..., Any], list[Any]]:
    """One Pallas call as a function, through Triton where it leaves that open, and what it takes."""
    params = dict(call.equation.params, interpret=False)
    if call.dialect == "any":
        params["compiler_params"] = plgpu.CompilerParams()
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in call.equation.invars]
    return lambda *operands: call.equation.primitive.bind(*operands, **params), shapes


@dataclass(frozen=True, slots=True)
class Reference:
    """One array that a Pallas call reads or writes.

    Attributes:
      name: of the kernel's parameter.
      shape, dtype: of the whole array, not of a block.
      hint: what may explain an access past its end, or "".
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    hint: str


def references(call: Call) -> tuple[list[Reference], list[Reference]]:
    """The inputs and the outputs of a Pallas call, in its order."""
    params = call.equation.params
    names = list(getattr(getattr(params["jaxpr"], "debug_info", None), "arg_names", ()) or ())
    blocks = list(params["grid_mapping"].block_mappings)
    variables = [*call.equation.invars, *call.equation.outvars]
    count = len(call.equation.invars)
    found = []
    for i, variable in enumerate(variables):
        name = names[i] if i < len(names) and names[i] else f"input {i}" if i < count else f"output {i - count}"
        shape = tuple(variable.aval.shape)
        found.append(Reference(name, shape, np.dtype(variable.aval.dtype), _tail_hint(blocks, i, shape)))
    return found[:count], found[count:]


def _tail_hint(blocks: list[Any], number: int, shape: tuple[int, ...]) -> str:
    """Before 0.12, JAX's Triton lowering reads and writes whole blocks, past the end of the array as well."""
    if jax.__version_info__ >= (0, 12) or number >= len(blocks):
        return ""
    block = [getattr(length, "block_size", length) for length in blocks[number].block_shape]
    cut = [length % size for length, size in zip(shape, block, strict=True) if isinstance(size, int)]
    if not any(cut):
        return ""
    return (
        f"JAX {jax.__version__} does not mask the tail of a block ({block} into {list(shape)}) on a GPU, as 0.12 does: "
        "mask the load and the store"
    )


@dataclass(frozen=True, slots=True)
class Held:
    """A value of the function around the Pallas calls.

    Attributes:
      values: an array.
      undefined: verdict codes of its undefined elements (0 for the others), or None.
      sources: where those came from, in words.
    """

    values: Any
    undefined: Array | None = None
    sources: tuple[str, ...] = ()


RunCall = Callable[[Any, list[Held]], list[Held]]


def evaluate(traced: Traced, leaves: Sequence[Array], run_call: RunCall) -> list[Held]:
    """Evaluates a kernel, its Pallas calls by `run_call` (from the equation and its operands), the rest by JAX."""
    held = [Held(leaf) for leaf in leaves]
    return _evaluate(traced.jaxpr.jaxpr, [Held(const) for const in traced.jaxpr.consts], held, run_call)


def _evaluate(jaxpr: Any, consts: list[Held], arguments: list[Held], run_call: RunCall) -> list[Held]:
    environment = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))

    def read(variable: Any) -> Held:
        return Held(variable.val) if hasattr(variable, "val") else environment[variable]

    for equation in jaxpr.eqns:
        operands = [read(variable) for variable in equation.invars]
        environment.update(zip(equation.outvars, _equation(equation, operands, run_call), strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _equation(equation: Any, operands: list[Held], run_call: RunCall) -> list[Held]:
    params = equation.params
    if _name(equation) in _ENTRIES:
        return run_call(equation, operands)
    inner = [value for value in params.values() if isinstance(value, ClosedJaxpr)]
    has_calls = any(
        _name(e) in _ENTRIES for value in params.values() for jaxpr in _nested(value) for e, _ in _equations(jaxpr)
    )
    if not has_calls:
        return _bound(equation, operands)

    def call(closed: Any, arguments: list[Held]) -> list[Held]:
        return _evaluate(closed.jaxpr, [Held(const) for const in closed.consts], arguments, run_call)

    match _name(equation):
        case "cond":
            index, *rest = operands
            branches = params["branches"]
            return call(branches[int(np.clip(int(index.values), 0, len(branches) - 1))], rest)
        case "while":
            tested, moved = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
            carried = operands[moved:]
            while bool(call(params["cond_jaxpr"], operands[:tested] + carried)[0].values):
                carried = call(params["body_jaxpr"], operands[tested:moved] + carried)
            return carried
        case "scan":
            return _scanned(params, operands, call)
    return call(inner[0], operands)


def _scanned(params: Any, operands: list[Held], call: Callable[[Any, list[Held]], list[Held]]) -> list[Held]:
    fixed, state = params["num_consts"], params["num_consts"] + params["num_carry"]
    consts, carried, xs = operands[:fixed], operands[fixed:state], operands[state:]
    order = range(params["length"])
    stacked: list[list[Held]] = []
    for i in reversed(order) if params["reverse"] else order:
        row = [Held(x.values[i], None if x.undefined is None else x.undefined[i], x.sources) for x in xs]
        found = call(params["jaxpr"], [*consts, *carried, *row])
        carried = found[: params["num_carry"]]
        stacked.append(found[params["num_carry"] :])
    if params["reverse"]:
        stacked.reverse()
    return [*carried, *(_stack(list(column)) for column in zip(*stacked, strict=True))]


def _stack(rows: list[Held]) -> Held:
    values = np.stack([np.asarray(row.values) for row in rows])
    if all(row.undefined is None for row in rows):
        return Held(values)
    masks = [np.zeros(values.shape[1:], np.uint8) if row.undefined is None else row.undefined for row in rows]
    return Held(values, np.stack(masks), tuple(dict.fromkeys(s for row in rows for s in row.sources)))


def _bound(equation: Any, operands: list[Held]) -> list[Held]:
    """An operation of JAX's own. Its results depend on undefined elements where filling these in otherwise changes
    them."""

    def bind(values: list[Any]) -> list[Any]:
        found = equation.primitive.bind(*values, **equation.params)
        return list(found) if equation.primitive.multiple_results else [found]

    results = bind([held.values for held in operands])
    tainted = [held for held in operands if held.undefined is not None]
    if not tainted:
        return [Held(result) for result in results]
    code = max(int(held.undefined.max()) for held in tainted if held.undefined is not None)
    sources = tuple(dict.fromkeys(source for held in tainted for source in held.sources))
    filled = [
        bind([held.values if held.undefined is None else _filled(held, word) for held in operands])
        for word in (0x00, 0x35)
    ]
    found = []
    for result, *others in zip(results, *filled, strict=True):
        a, b = (np.asarray(other) for other in others)
        differs = (a != b) & ~((a != a) & (b != b))
        mask = np.where(differs, np.uint8(code), np.uint8(0)) if differs.any() else None
        found.append(Held(result, mask, sources if mask is not None else ()))
    return found


def _filled(held: Held, byte: int) -> Array:
    """The value with every undefined element made of one byte."""
    values = np.array(held.values)
    word = np.frombuffer(bytes([byte & (1 if values.dtype == bool else 255)]) * values.dtype.itemsize, values.dtype)[0]
    values[held.undefined != 0] = word
    return values


def without_cache() -> AbstractContextManager[Any]:
    """Compiles without JAX's cache on disk, from which code for a device that is not there cannot be read back."""
    off: AbstractContextManager[Any] = jax_config.enable_compilation_cache(False)
    return off


def where_raised(error: BaseException) -> str:
    """ " (FILE:LINE)" of the last frame outside JAX and kerneltest, or ""."""
    ours = (str(Path(jax.__file__).parent), str(Path(__file__).parent))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(ours)]
    frames = [f for f in frames if not f.filename.startswith("<") and "/lib/python" not in f.filename]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _name(equation: Any) -> str:
    return str(equation.primitive.name)


def _nested(value: Any) -> Iterator[Any]:
    """The jaxprs in one parameter of an equation."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, ClosedJaxpr):
            yield item.jaxpr
        elif isinstance(item, Jaxpr):
            yield item


def _equations(jaxpr: Any, *, looped: bool = False) -> Iterator[tuple[Any, bool]]:
    """Every equation at any depth, and whether it lies in a loop."""
    for equation in jaxpr.eqns:
        yield equation, looped
        for value in equation.params.values():
            for inner in _nested(value):
                yield from _equations(inner, looped=looped or _name(equation) in _LOOPS)


def _with_interpret(jaxpr: Any, interpret: bool) -> Any:
    def rewritten(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return value.replace(jaxpr=_with_interpret(value.jaxpr, interpret))
        if isinstance(value, Jaxpr):
            return _with_interpret(value, interpret)
        if isinstance(value, (tuple, list)) and any(isinstance(v, (ClosedJaxpr, Jaxpr)) for v in value):
            return type(value)(rewritten(v) for v in value)
        return value

    equations = []
    for equation in jaxpr.eqns:
        params: Mapping[str, Any] = {key: rewritten(value) for key, value in equation.params.items()}
        if _name(equation) in _ENTRIES and "interpret" in params:
            params = {**params, "interpret": interpret}
        equations.append(equation.replace(params=params))
    return jaxpr.replace(eqns=equations)


def _call(equation: Any) -> Call:
    params = equation.params
    dialect = "any"
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            home = type(item).__module__
            dialect = next((d for prefix, d in _DIALECTS.items() if home.startswith(prefix + ".")), dialect)
    grid = getattr(params.get("grid_mapping"), "grid", ())
    debug = getattr(params.get("jaxpr"), "debug_info", None)
    name = params.get("name") or getattr(debug, "func_name", "")
    return Call(name, tuple(g for g in grid if isinstance(g, int)), dialect, equation)


def _is_exact(jaxpr: Any) -> bool:
    multiplications = 0
    for equation, looped in _equations(jaxpr):
        if not any(_holds_floats(v.aval) for v in equation.outvars):
            continue
        if _name(equation) not in _EXACT_ON_INTEGERS:
            return False
        if _name(equation) in _MULTIPLIES:
            # A product in a loop may be multiplied again by the next turn; a dot only feeds a sum.
            multiplications += 2 if looped and _name(equation) == "mul" else 1
    return multiplications <= 1


def _holds_floats(aval: Any) -> bool:
    kind = getattr(aval, "dtype", None)
    try:
        return kind is not None and is_float(np.dtype(kind))
    except TypeError:
        return False  # a key, a semaphore or a barrier


def _is_reduced_dot(equation: Any) -> bool:
    if _name(equation) != "dot_general" or equation.invars[0].aval.dtype != np.float32:
        return False
    asked = str(equation.params.get("precision"))
    return not ("HIGHEST" in asked or asked.endswith("F32_F32_F32"))


@functools.cache
def environment() -> dict[str, str]:
    """Versions and devices, as JAX reports them."""
    devices = sorted({f"{d.client.platform_version.splitlines()[0]}: {d.device_kind}" for d in jax.devices()})
    return {
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "devices": "; ".join(devices),
    }
