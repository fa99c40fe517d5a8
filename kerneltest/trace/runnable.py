"""Traced kernels and single Pallas calls as functions, and the arrays that a call reads and writes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import jaxpr_as_fun

from kerneltest.core.dtypes import DType
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat import patches
from kerneltest.trace.jax_compat.jaxprs import BlockMapping, Equation, Params, dialect_of, parameter_names
from kerneltest.trace.jax_environment import fast_compile_options
from kerneltest.trace.primitives import Kind, primitive_named
from kerneltest.trace.rewrite import interpret_calls, rewrite_jaxpr, rewrite_params
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.triton_kernels import is_triton_call, triton_arguments


def runnable(traced: Traced, *, interpret: bool) -> Callable[..., Any]:
    """Returns the kernel as a function of its leaves, every Pallas call in it interpreted or compiled."""
    run: Callable[..., Any] = jaxpr_as_fun(rewrite_jaxpr(traced.jaxpr, interpret_calls(interpret)))
    return run


def call_as_function(call: Call, language: str = "triton") -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """Returns a Pallas call as a function, in `language` if it fits several, and its operands' shapes and dtypes."""
    params = dict(call.equation.params, interpret=False)
    if language == "triton" and call.dialect in ("any", "triton") and not dialect_of(params.get("compiler_params")):
        params["compiler_params"] = plgpu.CompilerParams()
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in call.equation.invars]
    return lambda *operands: call.equation.primitive.bind(*operands, **params), shapes


def uses_outer_references(call: Call) -> bool:
    """Returns whether a call reads or writes references of the function around it, as under `pl.run_state`."""
    return any(hasattr(v.aval, "inner_aval") for v in call.equation.invars)


def refuse_outer_references(call: Call) -> None:
    """Raises a `Failure`, `unavailable`, if a call uses such references."""
    if uses_outer_references(call):
        raise Failure(
            Verdict.UNAVAILABLE,
            f"{call.name or 'a kernel'} uses references from outside (pl.run_state), which kerneltest does not follow: "
            "call it by pl.kernel, which takes arrays",
        )


def run_eagerly(function: Callable[..., Any], *, interpret: bool) -> Callable[..., Any]:
    """Returns a function of arrays to call outside of `jax.jit`, every Pallas call in it interpreted or compiled."""

    def parameters(primitive: str, params: Params) -> dict[str, Any]:
        chosen = rewrite_params(params, interpret_calls(interpret))
        if primitive_named(primitive).kind is Kind.KERNEL and "interpret" in chosen:
            chosen["interpret"] = interpret
        # A function that the kernel jits itself, without options.
        if interpret and chosen.get("compiler_options_kvs") == ():
            chosen["compiler_options_kvs"] = tuple(fast_compile_options(chosen["jaxpr"]).items())
        return chosen

    return lambda *arrays: patches.call(function, arrays, parameters)


@dataclass(frozen=True, slots=True)
class CallArray:
    """One array that a Pallas call reads or writes, whole."""

    name: str  # the kernel's parameter
    shape: tuple[int, ...]
    dtype: DType
    hint: str = ""  # a possible cause of an access past its end


def call_arrays(call: Call) -> tuple[list[CallArray], list[CallArray]]:
    """The inputs and the outputs of a Pallas call, in the order of its parameters."""
    if is_triton_call(call.equation):
        return _triton_arrays(call.equation)
    params = call.equation.params
    mapping = params["grid_mapping"]
    lengths = [f"grid bound {i}" for i in range(mapping.num_dynamic_grid_bounds)]  # not parameters of the kernel
    names = [*lengths, *parameter_names(params["jaxpr"])]
    scalars = [None] * (len(lengths) + mapping.num_index_operands)  # these have no blocks
    blocks: list[BlockMapping | None] = [*scalars, *mapping.block_mappings]
    count = len(call.equation.invars)
    arrays = []
    for i, variable in enumerate([*call.equation.invars, *call.equation.outvars]):
        name = names[i] if i < len(names) and names[i] else f"input {i}" if i < count else f"output {i - count}"
        shape, dtype = tuple(variable.aval.shape), np.dtype(variable.aval.dtype)
        arrays.append(CallArray(name, shape, dtype, _offset_hint(shape, dtype) or _tail_hint(blocks, i, shape)))
    return arrays[:count], arrays[count:]


def _triton_arrays(equation: Equation) -> tuple[list[CallArray], list[CallArray]]:
    found: tuple[list[CallArray], list[CallArray]] = [], []
    for argument, aval in triton_arguments(equation):  # operands and outputs are numbered in this order
        for arrays, number in zip(found, (argument.operand, argument.output), strict=True):
            if number is not None:
                arrays.append(CallArray(argument.name, tuple(aval.shape), np.dtype(aval.dtype)))
    return found


# Offsets count elements, and JAX's Triton lowering uses 64 bits for them only if the array has over 2^32 bytes.
def _offset_hint(shape: tuple[int, ...], dtype: DType) -> str:
    if not 2**31 < math.prod(shape) <= 2**32 // dtype.itemsize:
        return ""
    return (
        f"JAX {jax.__version__} computes offsets into an array of at most 2^32 bytes in 32 bits, so an index cannot "
        f"reach element 2^31 of {dtype}{list(shape)}: split the array, or use a wider dtype"
    )


# Before 0.12, JAX's Triton lowering accesses overhanging blocks whole, past the array's end.
def _tail_hint(blocks: Sequence[BlockMapping | None], number: int, shape: tuple[int, ...]) -> str:
    mapping = blocks[number] if number < len(blocks) else None
    if jax.__version_info__ >= (0, 12) or mapping is None:
        return ""
    block = [getattr(length, "block_size", length) for length in mapping.block_shape]
    if not any(n % size for n, size in zip(shape, block, strict=True) if isinstance(size, int) and size):
        return ""
    return (
        f"JAX {jax.__version__} does not mask the tail of a block ({block} into {list(shape)}) on a GPU, as 0.12 does: "
        "mask the load and the store"
    )
