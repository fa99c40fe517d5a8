"""The arrays that a Pallas call has in a TPU's VMEM: a window for each block, and scratch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import Literal

from kerneltest.core.targets import KIB, MIB, Tpu
from kerneltest.trace.runnable import call_arrays
from kerneltest.trace.tracing import Call

LANES, SUBLANES = 128, 8


@dataclass(frozen=True, slots=True)
class VmemWindow:
    """One array in VMEM.

    Attributes:
      name: of the kernel's parameter.
      shape, dtype: of a block, or of the scratch.
      whole: the shape of the array that is cut into blocks, or of the scratch.
      buffers: the number of blocks in VMEM at a time: two if one is fetched while the other is in use.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    whole: tuple[int, ...]
    buffers: int

    @property
    def size(self) -> int:
        """Bytes of all buffers in tiles of 8 by 128 elements, a lower bound of what XLA allocates."""
        return self.buffers * math.prod(_tile_shape(self.shape)) * self.dtype.itemsize

    def __str__(self) -> str:
        times = f" {self.buffers} x" if self.buffers > 1 else ""
        return f"{self.name}{times} {self.dtype.name}{list(self.shape)} = {format_size(self.size)}"


def format_size(size: int) -> str:
    """Returns a number of bytes with its unit."""
    return f"{size / MIB:.3g} MiB" if size >= MIB else f"{size / KIB:.3g} KiB"


def windows(call: Call) -> tuple[VmemWindow, ...]:
    """Returns the arrays of a call that are in VMEM, the largest first."""
    mapping = call.equation.params["grid_mapping"]
    inputs, outputs = call_arrays(call)
    names = [each.name for each in [*inputs[mapping.num_dynamic_grid_bounds + mapping.num_index_operands :], *outputs]]
    steps = math.prod(length if isinstance(length, int) else 2 for length in mapping.grid)
    found = [
        VmemWindow(
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
    arg_names = list(getattr(body.debug_info, "arg_names", ()) or ())
    first = len(body.invars) - len(mapping.scratch_avals)
    for number, variable in enumerate(body.invars[first:]):
        inner = getattr(variable.aval, "inner_aval", None)
        if _in_vmem(variable.aval) and np.issubdtype(getattr(inner, "dtype", object), np.generic):
            name = arg_names[first + number] if first + number < len(arg_names) else ""
            shape = tuple(variable.aval.shape)
            found.append(VmemWindow(name or "scratch", shape, np.dtype(variable.aval.dtype), shape, 1))
    return tuple(sorted(found, key=lambda window: -window.size))


def vmem_limit(call: Call, tpu: Tpu) -> int:
    """Returns the bytes of VMEM that a call may use: those of the TPU, or fewer if its parameters say so."""
    parameters = call.equation.params.get("compiler_params")
    requested = parameters.get("vmem_limit_bytes") if isinstance(parameters, Mapping) else None
    requested = getattr(parameters, "vmem_limit_bytes", None) or requested
    return min(requested or tpu.vmem, tpu.vmem)


def tile_advice(found: tuple[VmemWindow, ...]) -> tuple[str, ...]:
    """Returns advice on windows whose blocks leave most of each tile empty although the arrays are larger."""
    lines = []
    for window in found:
        rows, lanes = (1, 1, *window.shape)[-2:]
        of_rows, of_lanes = (1, 1, *window.whole)[-2:]
        packed = SUBLANES * max(4 // window.dtype.itemsize, 1)
        if lanes < LANES and lanes < of_lanes:
            lines.append(
                f"{window.name}: a block of {list(window.shape)} fills {lanes} of {LANES} lanes; make its last "
                f"dimension {LANES}, or a multiple"
            )
        elif len(window.shape) > 1 and rows * 2 < packed and rows < of_rows:
            lines.append(
                f"{window.name}: a block of {list(window.shape)} fills {rows} of the {packed} rows of a tile of "
                f"{window.dtype.name}; make its last dimension but one {packed}, or a multiple"
            )
    return tuple(lines)


def _tile_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) < 2:
        return tuple(-(-n // LANES) * LANES for n in shape)
    *others, rows, lanes = shape
    return (*others, -(-rows // SUBLANES) * SUBLANES, -(-lanes // LANES) * LANES)


def _length(block: Any) -> int:
    """Returns the length of a block along a dimension; 1 if that is squeezed out."""
    length = getattr(block, "block_size", block)
    return length if isinstance(length, int) else 1


def _buffers(block: Any, steps: int) -> int:
    """Returns the number of buffers: one if nothing is fetched after the first block."""
    requested = getattr(block.pipeline_mode, "buffer_count", None)
    constant = all(isinstance(each, Literal) for each in block.index_map_jaxpr.jaxpr.outvars)
    return requested if isinstance(requested, int) else 1 if steps <= 1 or constant else 2


def _in_vmem(aval: Any) -> bool:
    """Checks whether a reference is to VMEM, the default memory of blocks."""
    return str(getattr(aval, "memory_space", None)).lower().rpartition(".")[2] in ("none", "default", "vmem")
