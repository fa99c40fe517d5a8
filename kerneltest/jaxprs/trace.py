"""Kernel to jaxpr, and what can be read off or rewritten there. The only module that touches JAX's internals."""

import functools
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import config as jax_config
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import Jaxpr, jaxpr_as_fun
from jax.sharding import AbstractDevice, AbstractMesh

from kerneltest.core.dtypes import ShapeDtype, dtype_named, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.places import where_raised
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.jaxprs.compat.closed import ClosedJaxpr
from kerneltest.jaxprs.rewrite import ENTRIES, interpreting, name_of, rewritten
from kerneltest.plan.signatures import Signature

OLDEST, NEWEST = (0, 10, 2), (0, 12)

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
      function: from the leaves, in the pairing's order, to the flat outputs, as the kernel was written.
      jaxpr: the same, traced.
      inputs: shape and dtype of each leaf.
      outputs: shape and dtype of each output.
      calls: the kernels inside, in order.
      exact: its arithmetic is exact, in any order, on integers within the plan's limit: nothing but sums, moves and
        at most one multiplication of floats.
      reduced_dots: it has a float32 matrix product whose precision it leaves to the backend.
      eager: it is to be called outside of `jax.jit`.
    """

    function: Callable[..., Any]
    jaxpr: ClosedJaxpr
    inputs: tuple[ShapeDtype, ...]
    outputs: tuple[ShapeDtype, ...]
    calls: tuple[Call, ...]
    exact: bool
    reduced_dots: bool
    eager: bool = False

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
      Failure: the kernel raised, or has no Pallas call; names the signature and the user's line.
    """
    kinds = dict(signature.dtypes)
    inputs = tuple(ShapeDtype(signature.shape(leaf), dtype_named(kinds[path])) for path, leaf in pairing.leaves.items())

    def flat(*leaves: Any) -> list[Any]:
        named = dict(zip(pairing.leaves, leaves, strict=True))
        values = pairing.assemble(named, dict(signature.dims), dict(signature.statics), oracle=False)
        return jax.tree_util.tree_leaves(pairing.call_kernel(values))

    return trace_function(flat, inputs, f"for {signature}")


def trace_function(function: Callable[..., Any], inputs: tuple[ShapeDtype, ...], how: str) -> Traced:
    """Traces a function of arrays that returns a list of them.

    Args:
      function: to trace.
      inputs: shape and dtype of each argument.
      how: what it is traced for, in the words of an error.

    Raises:
      Failure: it raised; names the user's line.
    """
    shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in inputs]
    try:
        try:
            closed = jax.make_jaxpr(function)(*shapes)
        except ValueError as error:
            if "TPU device kind" not in str(error):
                raise
            function = functools.partial(_on_a_tpu, function)  # `pltpu.emit_pipeline` asks which one it is for
            closed = jax.make_jaxpr(function)(*shapes)
    except Exception as error:
        raise Failure(
            Verdict.RUNTIME_ERROR,
            f"the kernel raised {type(error).__name__} while traced {how}: {error}{user_line(error)}",
        ) from error
    return read(closed, function, inputs)


def on_a_tpu() -> AbstractContextManager[Any]:
    """Where a TPU kernel is traced and interpreted, on a machine without one."""
    kind = AbstractDevice(device_kind="TPU v5e", num_cores=1, platform="tpu")
    mesh: AbstractContextManager[Any] = jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=kind))
    return mesh


def _on_a_tpu(function: Callable[..., Any], *leaves: Any) -> Any:
    with on_a_tpu():
        return function(*leaves)


def read(closed: ClosedJaxpr, function: Callable[..., Any], inputs: tuple[ShapeDtype, ...]) -> Traced:
    """What there is to know of a traced function."""
    # A jitted function called twice is one jaxpr, so its calls are the same equations.
    unique = {id(equation): equation for equation, _ in equations(closed.jaxpr) if name_of(equation) in ENTRIES}
    return Traced(
        function=function,
        jaxpr=closed,
        inputs=inputs,
        outputs=tuple(map(_shape_dtype, closed.jaxpr.outvars)),
        calls=tuple(map(_call, unique.values())),
        exact=_is_exact(closed.jaxpr),
        reduced_dots=any(_is_reduced_dot(equation) for equation, _ in equations(closed.jaxpr)),
    )


def _shape_dtype(variable: Any) -> ShapeDtype:
    return ShapeDtype(tuple(variable.aval.shape), np.dtype(variable.aval.dtype))


def runnable(traced: Traced, *, interpret: bool) -> Callable[..., Any]:
    """The kernel as a function of its leaves, every Pallas call in it interpreted or compiled."""
    run: Callable[..., Any] = jaxpr_as_fun(rewritten(traced.jaxpr, interpreting(interpret)))
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


def without_cache() -> AbstractContextManager[Any]:
    """Compiles without JAX's cache on disk, from which code for a device that is not there cannot be read back."""
    off: AbstractContextManager[Any] = jax_config.enable_compilation_cache(False)
    return off


def user_line(error: BaseException) -> str:
    """ " (FILE:LINE)" of the last frame outside JAX and kerneltest, or ""."""
    return where_raised(error, str(Path(jax.__file__).parent))


def nested(value: Any) -> Iterator[Any]:
    """The jaxprs in one parameter of an equation."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, ClosedJaxpr):
            yield item.jaxpr
        elif isinstance(item, Jaxpr):
            yield item


def equations(jaxpr: Any, *, looped: bool = False) -> Iterator[tuple[Any, bool]]:
    """Every equation at any depth, and whether it lies in a loop."""
    for equation in jaxpr.eqns:
        yield equation, looped
        for value in equation.params.values():
            for inner in nested(value):
                yield from equations(inner, looped=looped or name_of(equation) in _LOOPS)


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
    for equation, looped in equations(jaxpr):
        if not any(_holds_floats(v.aval) for v in equation.outvars):
            continue
        if name_of(equation) not in _EXACT_ON_INTEGERS:
            return False
        if name_of(equation) in _MULTIPLIES:
            # A product in a loop may be multiplied again by the next turn; a dot only feeds a sum.
            multiplications += 2 if looped and name_of(equation) == "mul" else 1
    return multiplications <= 1


def _holds_floats(aval: Any) -> bool:
    kind = getattr(aval, "dtype", None)
    try:
        return kind is not None and is_float(np.dtype(kind))
    except TypeError:
        return False  # a key, a semaphore or a barrier


def _is_reduced_dot(equation: Any) -> bool:
    if name_of(equation) != "dot_general" or equation.invars[0].aval.dtype != np.float32:
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
