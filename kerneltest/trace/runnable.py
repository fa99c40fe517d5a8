"""A traced kernel, or one Pallas call of it, as a function; and the arrays that a call reads and writes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import jaxpr_as_fun

from kerneltest.trace.cpu_options import quick
from kerneltest.trace.jax_compat import eager
from kerneltest.trace.jax_compat.names import dialect_of
from kerneltest.trace.rewrite import interpreting, rewritten, within
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.walk import ENTRIES


def runnable(traced: Traced, *, interpret: bool) -> Callable[..., Any]:
    """The kernel as a function of its leaves, every Pallas call in it interpreted or compiled."""
    run: Callable[..., Any] = jaxpr_as_fun(rewritten(traced.jaxpr, interpreting(interpret)))
    return run


def callable_of(call: Call, language: str = "triton") -> tuple[Callable[..., Any], list[Any]]:
    """One Pallas call as a function, in some language where it leaves that open, and what it takes."""
    params = dict(call.equation.params, interpret=False)
    if language == "triton" and call.dialect in ("any", "triton") and not dialect_of(params.get("compiler_params")):
        params["compiler_params"] = plgpu.CompilerParams()
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in call.equation.invars]
    return lambda *operands: call.equation.primitive.bind(*operands, **params), shapes


def eagerly(function: Callable[..., Any], *, interpret: bool) -> Callable[..., Any]:
    """A function of arrays to be called outside of `jax.jit`, every Pallas call in it interpreted or compiled."""
    return (lambda *arrays: eager.call(function, arrays, _interpreted)) if interpret else function


def _interpreted(primitive: str, params: Mapping[str, Any]) -> dict[str, Any]:
    chosen = within(params, interpreting(True))
    if primitive in ENTRIES and "interpret" in chosen:
        chosen["interpret"] = True
    if chosen.get("compiler_options_kvs") == ():  # of a function that the kernel jits itself, and says no more of
        chosen["compiler_options_kvs"] = tuple(quick(chosen["jaxpr"]).items())
    return chosen


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
    mapping = params["grid_mapping"]
    lengths = [f"grid bound {i}" for i in range(mapping.num_dynamic_grid_bounds)]  # no arguments of the kernel
    names = [*lengths, *names]
    blocks = [None] * (len(lengths) + mapping.num_index_operands) + list(mapping.block_mappings)  # scalars have none
    variables = [*call.equation.invars, *call.equation.outvars]
    count = len(call.equation.invars)
    arrays = []
    for i, variable in enumerate(variables):
        name = names[i] if i < len(names) and names[i] else f"input {i}" if i < count else f"output {i - count}"
        shape = tuple(variable.aval.shape)
        dtype = np.dtype(variable.aval.dtype)
        arrays.append(Reference(name, shape, dtype, _offset_hint(shape, dtype) or _tail_hint(blocks, i, shape)))
    return arrays[:count], arrays[count:]


def _offset_hint(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """JAX's Triton lowering takes 64 bits for offsets, which count elements, where an array has over 2^32 bytes."""
    if not 2**31 < math.prod(shape) <= 2**32 // dtype.itemsize:
        return ""
    return (
        f"JAX {jax.__version__} computes offsets into an array of at most 2^32 bytes in 32 bits, so no index reaches "
        f"element 2^31 of {dtype}{list(shape)}: cut the array, or use a wider dtype"
    )


def _tail_hint(blocks: list[Any], number: int, shape: tuple[int, ...]) -> str:
    """Before 0.12, JAX's Triton lowering reads and writes whole blocks, past the end of the array as well."""
    if jax.__version_info__ >= (0, 12) or number >= len(blocks) or blocks[number] is None:
        return ""
    block = [getattr(length, "block_size", length) for length in blocks[number].block_shape]
    cut = [length % size for length, size in zip(shape, block, strict=True) if isinstance(size, int) and size]
    if not any(cut):
        return ""
    return (
        f"JAX {jax.__version__} does not mask the tail of a block ({block} into {list(shape)}) on a GPU, as 0.12 does: "
        "mask the load and the store"
    )
