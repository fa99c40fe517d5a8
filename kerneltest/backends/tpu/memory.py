"""What a Pallas call keeps in a TPU's VMEM: a window for each block, and its scratch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import Literal

from kerneltest.core.targets import KIB, MIB, Tpu
from kerneltest.trace.runnable import references
from kerneltest.trace.tracing import Call

LANES, SUBLANES = 128, 8


@dataclass(frozen=True, slots=True)
class Window:
    """One array in VMEM.

    Attributes:
      name: of the kernel's parameter.
      shape, dtype: of a block, or of the scratch.
      whole: the shape of the array that the block is cut from; that of the scratch.
      buffers: how many blocks are there at a time: two where one is fetched while the other is computed with.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    whole: tuple[int, ...]
    buffers: int

    @property
    def size(self) -> int:
        """Bytes in all buffers, in tiles of 8 by 128 elements: at least what XLA gives it."""
        return self.buffers * math.prod(_tiled(self.shape)) * self.dtype.itemsize

    def __str__(self) -> str:
        times = f" {self.buffers} x" if self.buffers > 1 else ""
        return f"{self.name}{times} {self.dtype.name}{list(self.shape)} = {sized(self.size)}"


def sized(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / MIB:.3g} MiB" if size >= MIB else f"{size / KIB:.3g} KiB"


def windows(call: Call) -> tuple[Window, ...]:
    """What a call keeps in VMEM, the largest first; what it places elsewhere by itself is not among them."""
    mapping = call.equation.params["grid_mapping"]
    inputs, outputs = references(call)
    names = [each.name for each in [*inputs[mapping.num_dynamic_grid_bounds + mapping.num_index_operands :], *outputs]]
    steps = math.prod(length if isinstance(length, int) else 2 for length in mapping.grid)
    found = [
        Window(
            name,
            tuple(_length(b) for b in block.block_shape),
            np.dtype(block.array_aval.dtype),
            tuple(block.array_aval.shape),
            _buffers(block, steps),
        )
        for name, block in zip(names, mapping.block_mappings, strict=False)
        if _in_vmem(block.transformed_block_aval)
    ]
    body = call.equation.params["jaxpr"]
    known = list(getattr(body.debug_info, "arg_names", ()) or ())
    first = len(body.invars) - len(mapping.scratch_avals)
    for number, variable in enumerate(body.invars[first:]):
        inner = getattr(variable.aval, "inner_aval", None)
        if _in_vmem(variable.aval) and np.issubdtype(getattr(inner, "dtype", object), np.generic):
            name = known[first + number] if first + number < len(known) and known[first + number] else "scratch"
            shape = tuple(variable.aval.shape)
            found.append(Window(name, shape, np.dtype(variable.aval.dtype), shape, 1))
    return tuple(sorted(found, key=lambda window: -window.size))


def limit(call: Call, tpu: Tpu) -> int:
    """Bytes of VMEM that a call may have at most: what there is, or less where its parameters say so."""
    parameters = call.equation.params.get("compiler_params")
    asked = parameters.get("vmem_limit_bytes") if isinstance(parameters, Mapping) else None
    asked = getattr(parameters, "vmem_limit_bytes", None) or asked
    return min(asked or tpu.vmem, tpu.vmem)


def advice(found: tuple[Window, ...]) -> tuple[str, ...]:
    """Windows whose blocks, cut from larger arrays, leave most of each tile empty."""
    told = []
    for window in found:
        rows, lanes = (1, 1, *window.shape)[-2:]
        of_rows, of_lanes = (1, 1, *window.whole)[-2:]
        packed = SUBLANES * max(4 // window.dtype.itemsize, 1)
        if lanes < LANES and lanes < of_lanes:
            told.append(
                f"{window.name}: a block of {list(window.shape)} fills {lanes} of {LANES} lanes; make its last "
                f"dimension {LANES}, or a multiple"
            )
        elif len(window.shape) > 1 and rows * 2 < packed and rows < of_rows:
            told.append(
                f"{window.name}: a block of {list(window.shape)} fills {rows} of the {packed} rows of a tile of "
                f"{window.dtype.name}; make its last dimension but one {packed}, or a multiple"
            )
    return tuple(told)


def _tiled(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) < 2:
        return tuple(-(-n // LANES) * LANES for n in shape)
    *others, rows, lanes = shape
    return (*others, -(-rows // SUBLANES) * SUBLANES, -(-lanes // LANES) * LANES)


def _length(block: Any) -> int:
    """Of a block along a dimension; 1 where that is squeezed out."""
    length = getattr(block, "block_size", block)
    return length if isinstance(length, int) else 1


def _buffers(block: Any, steps: int) -> int:
    """One where nothing is fetched after the first block."""
    asked = getattr(block.pipeline_mode, "buffer_count", None)
    still = all(isinstance(each, Literal) for each in block.index_map_jaxpr.jaxpr.outvars)
    return asked if isinstance(asked, int) else 1 if steps <= 1 or still else 2


def _in_vmem(aval: Any) -> bool:
    """Whether a reference is one to VMEM, where blocks are by default."""
    return str(getattr(aval, "memory_space", None)).lower().rpartition(".")[2] in ("none", "default", "vmem")
