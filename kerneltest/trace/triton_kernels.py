"""Kernels written in Triton: a primitive of JAX for their calls, and the Triton IR of a call.

`kt.triton_kernel` makes a function of JAX from one, and calls by jax_triton are translated into the same primitive.
"""

import functools
import inspect
import re
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from kerneltest.core.details import NotBuilt, Stage
from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.core.extension_registry import suggest
from kerneltest.core.failures import DeclarationError, Failure, exception_text
from kerneltest.core.fingerprint import Reader, reads
from kerneltest.core.source_location import relative_path
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jax_triton import TritonCall, run_on_gpu, triton_layers
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.jax_compat.mlir import UnreadableError

TRITON_KERNEL = Primitive("triton_kernel")
TRITON_KERNEL.multiple_results = True


@dataclass(frozen=True, slots=True)
class TritonArgument:
    """An argument of a call, by the numbers of the operand and of the output whose memory it points to.

    An argument with both is written in place, and one with neither is a number or a constant.
    """

    name: str
    operand: int | None = None
    output: int | None = None
    value: Any = None
    constant: bool = False


@TRITON_KERNEL.def_abstract_eval  # type: ignore[untyped-decorator, unused-ignore]
def _result_types(*operands: Any, outputs: Sequence[ShapeDtype], **params: Any) -> list[Any]:
    return [jax.core.ShapedArray(output.shape, output.dtype) for output in outputs]


# A call for each element of a batch, one after another.
def _batched(operands: Sequence[Any], axes: Sequence[Any], **params: Any) -> tuple[list[Any], list[int]]:
    batches = {i: jnp.moveaxis(operands[i], axis, 0) for i, axis in enumerate(axes) if axis is not None}

    def call(elements: Mapping[int, Any]) -> list[Any]:
        return TRITON_KERNEL.bind(*(elements.get(i, x) for i, x in enumerate(operands)), **params)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]

    results = jax.lax.map(call, batches)
    return results, [0] * len(results)


batching.primitive_batchers[TRITON_KERNEL] = _batched


def is_triton_call(equation: Equation) -> bool:
    """Returns whether an equation calls a kernel written in Triton."""
    return equation.primitive is TRITON_KERNEL


def triton_arguments(equation: Equation) -> list[tuple[TritonArgument, Any]]:
    """The arguments of a call, each with the shape and dtype of its array, or None."""
    variables = equation.invars, equation.outvars
    found = []
    for argument in equation.params["arguments"]:
        numbers = zip(variables, (argument.operand, argument.output), strict=True)
        avals = [atoms[number].aval for atoms, number in numbers if number is not None]
        found.append((argument, avals[0] if avals else None))
    return found


# Calls, from a function and its arguments.

Launch = tuple[int, ...]
Given = Mapping[str, Any]  # the arguments of a call by name


def triton_kernel(
    function: Any,
    *,
    grid: Launch | Callable[[Given], Launch],
    outputs: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    num_warps: int = 4,
    num_stages: int = 3,
) -> Callable[..., Any]:
    """Returns a `@triton.jit` function as a function of JAX, to pair with an oracle.

        add = kt.triton_kernel(
            add_kernel,  # (x, y, out, n, BLOCK: tl.constexpr)
            grid=lambda given: (triton.cdiv(given["n"], given["BLOCK"]),),
            outputs=dict(out="x"),
            constants=dict(n=lambda given: given["x"].size, BLOCK=128),
        )

    It takes the arguments that are neither in `outputs` nor in `constants`, in the kernel's own order. Arrays are
    passed as pointers. It returns the outputs in the order of `outputs`, or the only one. It can be called in other
    functions of JAX, and under `jax.jit` and `jax.vmap`. On a GPU, jax_triton runs it.

    Args:
      function: the kernel. One with `@triton.autotune` also takes `config`, the number of its configuration.
      grid: the number of programs along each axis, or a function that returns it.
      outputs: the pointers that the kernel writes to, by name: the name of an argument of the same shape and dtype, a
        `jax.ShapeDtypeStruct`, or an array with which the memory is filled before the kernel runs; or a function that
        returns one of these. A pointer named after itself is an argument that is written in place.
      constants: values of other arguments, such as block sizes, lengths and strides; or functions that return them.
      num_warps, num_stages: as in a launch by Triton. Those of an autotuned configuration take precedence.

    The functions take a mapping of the arguments by name, with the constants before their own.

    Raises:
      DeclarationError: it is not a `@triton.jit` function, or has no argument of a name. A call raises it for
        arguments, outputs or a grid that are none.
    """
    layers = triton_layers(function)
    kernel = layers[-1]
    if not hasattr(kernel, "arg_names"):
        raise DeclarationError(f"triton_kernel: {function!r} is not a function decorated with @triton.jit")
    fixed = dict(constants or {})
    for name in (*outputs, *fixed):
        if name not in kernel.arg_names:
            hint = suggest(name, kernel.arg_names)
            raise DeclarationError(f"triton_kernel: {kernel.__name__} has no argument {name!r}{hint}")
    configurations = next((layer.configs for layer in layers if hasattr(layer, "configs")), ())
    heuristics = {name: rule for layer in layers for name, rule in getattr(layer, "values", {}).items()}
    chosen = {name for each in configurations for name in each.kwargs} | heuristics.keys() | fixed.keys()
    only_written = {name for name, output in outputs.items() if not (isinstance(output, str) and output == name)}
    taken = [name for name in kernel.arg_names if name not in chosen | only_written]
    parameters = [kernel.signature.parameters[n].replace(annotation=inspect.Parameter.empty) for n in taken]
    if configurations:
        parameters.append(inspect.Parameter("config", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=0))
    signature = inspect.Signature(parameters)

    def call(*positional: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*positional, **named)
        except TypeError as error:
            raise DeclarationError(f"triton_kernel: {kernel.__name__}: {error}") from None
        bound.apply_defaults()
        given: dict[str, Any] = dict(bound.arguments)
        options = {"num_warps": num_warps, "num_stages": num_stages}
        if configurations:
            number = given.pop("config")
            if not isinstance(number, (int, np.integer)) or not 0 <= number < len(configurations):
                raise DeclarationError(
                    f"triton_kernel: {kernel.__name__}: config is {number!r}: write a number from 0 to "
                    f"{len(configurations) - 1}"
                )
            config = configurations[number]
            options |= {name: getattr(config, name) for name in options}
            given |= config.kwargs
        for name, value in (*fixed.items(), *heuristics.items()):
            given[name] = value(given) if callable(value) else value
        memory: dict[str, Any] = {}
        for name, output in outputs.items():
            declared = output(given) if callable(output) else output
            memory[name] = given.get(declared) if isinstance(declared, str) else declared
            if not isinstance(memory[name], (jax.Array, np.ndarray, jax.ShapeDtypeStruct)):
                hint = suggest(declared, given) if isinstance(declared, str) and declared not in given else ""
                raise DeclarationError(
                    f"triton_kernel: {kernel.__name__}: outputs: {name!r} is {declared!r}: write the name of an "
                    f"argument that is an array, a jax.ShapeDtypeStruct, or an array{hint}"
                )
            if isinstance(declared, (jax.Array, np.ndarray)):
                given[name] = declared
        launch = grid(given) if callable(grid) else grid
        results = bind_triton_kernel(TritonCall(kernel, given, memory, launch, options, list(outputs)))
        return results[0] if len(results) == 1 else tuple(results)

    functools.update_wrapper(call, kernel.fn)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def bind_triton_kernel(call: TritonCall) -> list[Any]:
    """Makes a call in JAX, and returns its outputs in its order; DeclarationError for what cannot be passed."""
    _count_in_fingerprints()
    operands: list[Any] = []
    outputs: list[ShapeDtype] = []
    written: dict[str, int] = {}
    arguments = []
    for parameter in call.function.params:
        name = parameter.name
        value = call.given.get(name, parameter.default if parameter.has_default else None)
        operand = output = None
        if (memory := call.memory.get(name)) is not None:
            output = written[name] = len(outputs)
            outputs.append(ShapeDtype(tuple(memory.shape), np.dtype(memory.dtype)))
        if isinstance(value, (jax.Array, np.ndarray)):
            operand = len(operands)
            operands.append(value)
            value = None
        value = value.item() if isinstance(value, np.generic) else value
        if said := _problem(parameter, value, operand is not None):
            raise DeclarationError(f"triton_kernel: {call.function.__name__}: {name} is {said}")
        constant = parameter.is_constexpr or (value is None and operand is output is None)
        constant |= type(value) is int and value == 1 and not parameter.do_not_specialize  # as Triton takes it
        arguments.append(TritonArgument(name, operand, output, value, constant))
    with suppress(Exception):  # JAX hashes it. What Triton refuses, it refuses as it is lowered, with the line
        hash(call.function)
    grid = call.grid.tolist() if isinstance(call.grid, (np.ndarray, np.generic)) else call.grid
    grid = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    if not 1 <= len(grid) <= 3 or not all(isinstance(length, (int, np.integer)) for length in grid):
        raise DeclarationError(
            f"triton_kernel: {call.function.__name__}: the grid is {call.grid!r}: write one to three integers"
        )
    grid = tuple(map(int, grid))
    results = TRITON_KERNEL.bind(
        *operands,
        function=call.function,
        arguments=tuple(arguments),
        grid=(*grid, *(1,) * (3 - len(grid))),
        outputs=tuple(outputs),
        options=tuple(sorted(call.options.items())),
    )
    return [results[written[name]] for name in call.order]


# What Triton compiles of a function: its source, which alone has all annotations, and the values of the names in it.
def _read_function(value: Any, reader: Reader) -> None:
    before, reader.reads_code = reader.reads_code, True
    try:
        reader.add_all("triton", (value.src, getattr(value, "noinline", False), value.fn))
    finally:
        reader.reads_code = before


@functools.cache
def _count_in_fingerprints() -> None:
    from triton.runtime.jit import JITCallable  # noqa: PLC0415 - an optional package

    reads(JITCallable)(_read_function)


# What a value that cannot be passed is, and what to write; or "".
def _problem(parameter: Any, value: Any, is_array: bool) -> str:
    if parameter.is_constexpr:
        return "an array, but tl.constexpr in the kernel: pass a constant" if is_array else ""
    if value is None or (isinstance(value, (int, float)) and (type(value) is float or -(2**63) <= value < 2**64)):
        return ""
    return f"{value!r}: pass an array or a number of 64 bits, or annotate it with tl.constexpr in the kernel"


def triton_limit(error: BaseException) -> str:
    """Returns why a function that uses Triton cannot be traced, and what to write; "" for an error of another kind."""
    said = exception_text(error)
    if "Differentiation rule for 'triton_kernel" in said:
        return (
            "JAX takes no derivative of a kernel in Triton: pair a function that has one by jax.custom_vjp, or leave "
            f"out grad=; JAX said: {said}"
        )
    frames = traceback.extract_tb(error.__traceback__)
    inside = [i for i, frame in enumerate(frames) if frame.filename.endswith("triton/runtime/jit.py")]
    if not any(frames[i].name == "run" for i in inside):
        return ""
    number = inside[0]
    place = f"{relative_path(frames[number - 1].filename)}:{frames[number - 1].lineno}"
    return (
        f"the kernel is launched as kernel[grid](...), for which Triton needs a GPU and arrays there ({place}): pair "
        f"kt.triton_kernel(kernel, grid=..., outputs=...), or call it by jax_triton.triton_call; Triton said: {said}"
    )


# On a GPU, jax_triton compiles and runs the kernel.
def _run_on_gpu(
    *operands: Any, function: Any, arguments: Sequence[TritonArgument], grid: Any, outputs: Any, options: Any
) -> list[Any]:
    order = [argument.name for argument in arguments if argument.output is not None]
    given = {a.name: a.value if a.operand is None else operands[a.operand] for a in arguments}
    given = {a.name: given[a.name] for a in arguments if a.operand is not None or a.output is None}
    memory = dict(zip(order, outputs, strict=True))
    return run_on_gpu(TritonCall(function, given, memory, grid, dict(options), order))


# Outside `jax.jit`, as any other function of JAX.
@TRITON_KERNEL.def_impl  # type: ignore[untyped-decorator, unused-ignore]
def _call(*operands: Any, **params: Any) -> list[Any]:
    return jax.jit(lambda *leaves: TRITON_KERNEL.bind(*leaves, **params))(*operands)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]


for _platform in ("cuda", "rocm"):
    mlir.register_lowering(TRITON_KERNEL, mlir.lower_fun(_run_on_gpu, multiple_results=True), platform=_platform)


# The Triton IR of a call, which Triton's own frontend makes without a GPU.

_TYPES = {
    "bool": "i1", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16",
    "float8_e4m3b11fnuz": "fp8e4b15", **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip


def scalar_of(value: float) -> Any:
    """A number that is passed to a kernel, in the dtype in which Triton passes it."""
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, float):
        return np.float32(value)
    if -(2**31) <= value < 2**31:
        return np.int32(value)
    return np.int64(value) if value < 2**63 else np.uint64(value)


def triton_ir(equation: Equation, target: Target) -> str:
    """Returns the Triton IR of a call for a target, as text.

    Failure: Triton does not accept the kernel, with the user's line; `unavailable` without the triton package.
    """
    function = equation.params["function"]
    signature, constants, attributes = [], [], []
    for number, (argument, aval) in enumerate(triton_arguments(equation)):
        if argument.constant:
            kind, divisible = "constexpr", False
            constants.append((argument.name, argument.value, type(argument.value)))  # 1 is equal to 1.0 and to True
        elif aval is not None:
            if aval.dtype.name not in _TYPES:
                said = f"Triton has no pointers to {aval.dtype}, the dtype of {argument.name}: convert it first"
                raise Failure(Verdict.UNIMPLEMENTED, NotBuilt(Stage.LOWER, function.__name__, "", said))
            kind, divisible = f"*{_TYPES[aval.dtype.name]}", True  # JAX aligns arrays
        else:
            scalar = scalar_of(argument.value)
            kind, divisible = _TYPES[scalar.dtype.name], scalar.dtype.kind == "i" and scalar % 16 == 0
        signature.append((argument.name, kind))
        if divisible:
            attributes.append((number,))
    parts = tuple(signature), tuple(constants), tuple(attributes), equation.params["options"]
    try:
        return _lower(function, *parts, target)
    except ImportError as error:
        raise Failure(
            Verdict.UNAVAILABLE, f"the triton package cannot be imported ({error}): pip install kerneltest[compile]"
        ) from error
    except Exception as error:
        raise _frontend_failure(error, function) from error


@functools.lru_cache(maxsize=512)
def _lower(
    function: Any, signature: Any, typed_constants: Any, divisible: Any, given_options: Any, target: Target
) -> str:
    from triton import knobs  # noqa: PLC0415 - an optional package
    from triton._C.libtriton import ir  # noqa: PLC0415
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler.compiler import ASTSource, make_backend  # noqa: PLC0415

    gpu = GPUTarget("hip" if target.platform == "rocm" else target.platform, target.arch, target.warp)
    backend = make_backend(gpu)
    options = backend.parse_options({**dict(given_options), "enable_fp_fusion": True})  # Triton's own default
    constants = {name: value for name, value, _ in typed_constants}
    source = ASTSource(function, dict(signature), constants, {n: [["tt.divisibility", 16]] for n in divisible})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    implementations, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    with knobs.compilation.scope():
        knobs.compilation.disable_line_info = False  # whatever the environment says
        module = source.make_ir(gpu, options, implementations, modules, context)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        return str(stages["ttir"](module, {**options.__dict__, "target": gpu}))


@functools.lru_cache(maxsize=64)
def without_descriptors(code: bytes) -> bytes:
    """Returns Triton IR with masked accesses in the place of those by tensor descriptors, as text; UnreadableError."""
    if b"!tt.tensordesc" not in code:
        return code
    from triton._C.libtriton import ir, passes  # noqa: PLC0415 - an optional package, which made the code

    context = ir.context()
    ir.load_dialects(context)
    manager = ir.pass_manager(context)
    passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
    passes.common.add_canonicalizer(manager)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ttir"
        path.write_bytes(code)
        try:
            manager.run(module := ir.parse_mlir_module(str(path), context), "descriptors")
        except RuntimeError as error:
            raise UnreadableError(f"these tensor descriptors ({error})") from None
    return str(module).encode()


def _frontend_failure(error: Exception, function: Any) -> Failure:
    # The innermost error of the kernel itself: those of functions that it calls have a source of their own.
    line, chain = function.starting_line_number, [error]
    line += next((i for i, text in enumerate(function.raw_src) if text.lstrip().startswith("def ")), 0)
    while isinstance(cause := chain[-1].__cause__, Exception):
        chain.append(cause)
    own = [each for each in chain if getattr(each, "src", None) == function.src and hasattr(each, "node")]
    if own:
        line += getattr(own[-1].node, "lineno", 1) - 1
    said = str(getattr(chain[-1], "error_message", "") or exception_text(chain[-1]))
    lacks = type(error).__name__ == "UnsupportedLanguageConstruct"
    source = f"{relative_path(function.fn.__code__.co_filename)}:{line}"
    detail = NotBuilt(Stage.LOWER, function.__name__, type(chain[-1]).__name__, said, source=source)
    return Failure(Verdict.UNIMPLEMENTED if lacks else Verdict.COMPILE_ERROR, detail)


# The arithmetic of a call, as its IR shows it.

_COMPUTES = re.compile(r"\b((?:arith|math|tt)\.\w+)\b(.*[x :](?:b?f16|f32|f64)\b.*)")
# Operations that round; so do all of MLIR's dialect `math`, but for one.
_ROUNDING = frozenset(
    "arith.divf arith.remf tt.extern_elementwise tt.fp_to_fp tt.dot_scaled tt.precise_sqrt tt.precise_divf".split()
)
_NUMBER = re.compile(r"arith\.constant (?:dense<)?(-?\d[\d.]*(?:[eE][-+]?\d+)?)\b(?!x)")
_REDUCED_DOT = re.compile(r"tt\.dot .*inputPrecision = tf32 .*xf32> \*")


@dataclass(frozen=True, slots=True)
class CallArithmetic:
    """The arithmetic of a call; the defaults are for one of which nothing is known."""

    exact: bool = False  # whether operations other than multiplications are exact on small integers
    multiplications: int = 0  # of floats, one after another at most
    reduced_dots: bool = True  # whether matrix products of float32 are computed in TF32
    adds_atomically: bool = True  # floats


@functools.lru_cache(maxsize=512)
def arithmetic_of(equation: Equation) -> CallArithmetic:
    """The arithmetic of a call on a GPU of NVIDIA's, whose products may be the less accurate ones."""
    try:
        text = triton_ir(equation, TARGETS["sm_90"])
    except Failure:
        return CallArithmetic()
    found = [match for line in text.splitlines() if (match := _COMPUTES.search(line))]
    names = [match[1] for match in found]
    passed = [a.value for a in equation.params["arguments"] if not a.constant and isinstance(a.value, float)]
    others = (n for n in names if n in _ROUNDING or (n.startswith("math.") and n != "math.absf"))
    numbers = (float(match[1]) for match in map(_NUMBER.search, (f"{m[1]}{m[2]}" for m in found)) if match)
    repeated = 2 if "scf." in text else 1  # an iteration may multiply the product of the one before
    return CallArithmetic(
        exact=not any(others) and all(number.is_integer() for number in (*numbers, *passed)),
        multiplications=names.count("tt.dot") + repeated * names.count("arith.mulf"),
        reduced_dots=bool(_REDUCED_DOT.search(text)),
        adds_atomically="tt.atomic_rmw fadd" in text,
    )


# The evaluation of calls in NumPy, which the simulator defines.


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The arithmetic in which a call is evaluated.

    Attributes:
      promotes: whether floats of 16 bits or more are computed in float64.
      samples: the `SampleArithmetic` in which each operation is rounded at random; None for no rounding. Its samples
        follow one another, for each case in turn.
    """

    promotes: bool
    samples: Any = None


Evaluator = Callable[[Equation, Sequence[Array], Evaluation], list[Array]]
_evaluators: list[Evaluator] = []


def register_evaluator(evaluator: Evaluator) -> None:
    """Sets what `evaluate_call` calls."""
    _evaluators[:] = [evaluator]


def evaluate_call(equation: Equation, operands: Sequence[Array], how: Evaluation) -> list[Array]:
    """Returns the outputs (rows, *shape) of a call on arrays (rows, *shape), or (1, *shape) if all rows share one."""
    (evaluator,) = _evaluators
    return evaluator(equation, operands, how)
