"""Calls by jax_triton, an optional package: in a jaxpr, and to run a kernel written in Triton on a GPU."""

import functools
import inspect
import linecache
import traceback
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.fingerprint import installed_version
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxprs import Equation


class TritonCall(NamedTuple):
    """A call of a kernel written in Triton.

    Attributes:
      function: the `@triton.jit` function.
      given: its arguments by name, without the pointers to unwritten memory.
      memory: the shape and dtype of each output.
      order: the names of the outputs, in the order in which the call returns them.
    """

    function: Any
    given: Mapping[str, Any]
    memory: Mapping[str, Any]
    grid: Any
    options: Mapping[str, int]
    order: Sequence[str]


def is_jax_triton_call(equation: Equation) -> bool:
    """Returns whether an equation is a call by jax_triton."""
    return str(equation.primitive.name) == "triton_kernel_call"


def triton_layers(function: Any) -> list[Any]:
    """Returns `triton.autotune`'s and `triton.heuristics`' objects around a function, and at last the function."""
    layers = [function]
    while not hasattr(layers[-1], "params") and hasattr(layers[-1], "fn"):
        layers.append(layers[-1].fn)
    return layers


def read_call(equation: Equation, operands: Sequence[Any]) -> TritonCall:
    """Returns a call by jax_triton 0.4 on some operands; a Failure is `unavailable`, for a call of another form."""
    if any(hasattr(variable.aval, "inner_aval") for variable in equation.invars):
        reason = "a call by jax_triton takes references (jax.Ref), which kerneltest does not follow: pair "
        raise Failure(Verdict.UNAVAILABLE, f'{reason}kt.triton_kernel(...) of it, with outputs={{"x": "x"}}')
    try:
        return _read(equation.params, operands)
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        reason = f"kerneltest cannot read this call by jax_triton {_version()} ({type(error).__name__}: {error})"
        raise Failure(Verdict.UNAVAILABLE, reason) from None


def _read(params: Mapping[str, Any], operands: Sequence[Any]) -> TritonCall:
    *layers, function = triton_layers(params["fn"])
    if any(hasattr(layer, "configs") for layer in layers):
        raise Failure(
            Verdict.UNAVAILABLE,
            f"{function.__name__} is autotuned, and a call by jax_triton does not name its configuration: pair "
            "kt.triton_kernel(...) of it, with config=kt.static(0, 1, ...)",
        )
    # Arrays, `_StaticArg(value)` and `_OutputPlaceholder(ordinal)`; the last two are nodes without leaves.
    parts = jax.tree.unflatten(params["in_tree"], operands)
    names = [parameter.name for parameter in function.params if not parameter.is_constexpr]
    shapes, named = params["out_shapes"], dict(zip(names, parts, strict=True))
    written = {name: part.ordinal for name, part in named.items() if hasattr(part, "ordinal")}
    arguments = {
        name: part if isinstance(part, jax.Array) else part.value for name, part in named.items() if name not in written
    }
    inputs = list(arguments)
    written |= {inputs[number]: output for number, output in params["input_output_aliases"].items()}
    given = {**params["metaparams"], **arguments}
    for layer in layers:
        for name, rule in getattr(layer, "values", {}).items():
            given[name] = rule(given)
    zeroed = params["zeroed_outputs"]
    zeroed = zeroed(given) if callable(zeroed) else zeroed
    given |= {
        n: jnp.zeros(shapes[output].shape, shapes[output].dtype) for n, output in written.items() if output in zeroed
    }
    grid = params["grid"]
    return TritonCall(
        function,
        given,
        {name: shapes[output] for name, output in written.items()},
        grid(given) if callable(grid) else grid,
        {name: params["backend_options"][name] for name in ("num_warps", "num_stages")},
        sorted(written, key=written.__getitem__),
    )


def run_on_gpu(call: TritonCall) -> list[Any]:
    """Makes a call by jax_triton, and returns its outputs in the order of the kernel's arguments."""
    import jax_triton  # noqa: PLC0415 - optional

    parameters = [parameter.name for parameter in call.function.params if not parameter.is_constexpr]
    operands = [name for name in call.given if name in parameters]
    types = [jax.ShapeDtypeStruct(call.memory[name].shape, call.memory[name].dtype) for name in call.order]
    launch = {"kernel": call.function, "grid": call.grid, **call.options}
    if "out_shape" in inspect.signature(jax_triton.triton_call).parameters:  # 0.3
        operands = [name for name in operands if call.given[name] is not None]
        constants = {f"{name}_": value for name, value in call.given.items() if name not in operands}
        kernel = _in_order_of_0_3(call.function, tuple(operands), tuple(call.order))
        arrays = [name for name in operands if not isinstance(call.given[name], (int, float))]
        launch |= {"kernel": kernel, "input_output_aliases": _aliases(call, arrays)}
        return list(jax_triton.triton_call(*map(call.given.get, operands), out_shape=types, **launch, **constants))
    more = {"input_output_aliases": aliases} if (aliases := _aliases(call, operands)) else {}
    return list(jax_triton.triton_call(out_type=types, **launch, **more, **call.given))


def _aliases(call: TritonCall, operands: Sequence[str]) -> dict[int, int]:
    return {operands.index(name): number for number, name in enumerate(call.order) if name in operands}


# A function that takes operands, outputs and constants, the order of jax_triton 0.3, and passes them in a kernel's.
@functools.lru_cache(maxsize=512)
def _in_order_of_0_3(function: Any, operands: Sequence[str], outputs: Sequence[str]) -> Any:
    import triton  # noqa: PLC0415 - optional

    ends = dict.fromkeys((p.name for p in function.params), "_")
    ends |= dict.fromkeys(operands, "_operand") | dict.fromkeys(outputs, "_output")
    taken = [*(f"{name}_operand" for name in operands), *(f"{name}_output" for name in outputs)]
    taken += [f"{name}_: triton.language.constexpr" for name, end in ends.items() if end == "_"]
    text = f"def {function.__name__}({', '.join(taken)}):\n    _kernel({', '.join(map(''.join, ends.items()))})\n"
    file = f"<{function.__name__} {zlib.crc32(text.encode()):08x}>"  # it stands in PTX, which refuses line ends
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # where Triton reads it
    scope = {"_kernel": function, "triton": triton, "__name__": function.fn.__module__}
    exec(compile(text, file, "exec"), scope)
    return triton.jit(scope[function.__name__])


def jax_triton_problem() -> str:
    """The reason why jax_triton cannot be imported here, or ""."""
    try:
        import jax_triton  # noqa: F401, PLC0415
    except Exception as error:  # it imports private parts of JAX and Triton
        said = f"{type(error).__name__}: {exception_text(error)}"
        return f"jax_triton, which runs kernels written in Triton on a GPU, cannot be imported ({said})"
    return ""


def jax_triton_limit(error: BaseException) -> str:
    """Returns that jax_triton does not work here, if it or a call of it is what raised an error; or ""."""
    said = f"{type(error).__name__}: {exception_text(error)}"
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    own = [file for file in files if "/jax/" not in file and "/jaxlib/" not in file]  # it also calls JAX
    if "jax_triton" not in f"{said}{own[-1] if own else ''}" and "_triton_kernel_call_" not in said:
        return ""
    return f"jax_triton {_version()} does not work with JAX {jax.__version__}: {said}"


def _version() -> str:
    return installed_version("jax-triton") or "of an unknown version"
