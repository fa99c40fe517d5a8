"""Errors of JAX, Mosaic and XLA about TPU kernels, explained to the kernels' authors."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import Literal

from kerneltest.backends.lowering_errors import Excess, Rule, format_size, lacking, refused
from kerneltest.core.source_location import in_order
from kerneltest.core.targets import Tpu
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxprs import Equation, inner_jaxprs, parameter_names
from kerneltest.trace.runnable import call_arrays
from kerneltest.trace.tracing import Call

# The arrays that a Pallas call has in a TPU's VMEM: a window for each block, and scratch.

LANES, SUBLANES = 128, 8


@dataclass(frozen=True, slots=True)
class VmemWindow:
    """One array in VMEM."""

    name: str  # of the kernel's parameter
    # shape, dtype: of a block, or of the scratch
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    whole: tuple[int, ...]  # the shape of the array that is cut into blocks, or of the scratch
    buffers: int  # the number of blocks in VMEM at a time: two if one is fetched while the other is in use

    @property
    def size(self) -> int:
        """Bytes of all buffers in tiles of 8 by 128 elements, a lower bound of what XLA allocates."""
        return self.buffers * math.prod(_tile_shape(self.shape)) * self.dtype.itemsize

    def __str__(self) -> str:
        times = f" {self.buffers} x" if self.buffers > 1 else ""
        return f"{self.name}{times} {self.dtype.name}{list(self.shape)} = {format_size(self.size)}"


def windows(call: Call) -> tuple[VmemWindow, ...]:
    """Returns the arrays of a call that are in VMEM, the largest first."""
    return tuple(sorted((*_blocks(call), *_scratch(call.equation)), key=lambda window: -window.size))


# Yields the blocks of a `pallas_call`. Other calls have their arrays whole, in main memory.
def _blocks(call: Call) -> Iterator[VmemWindow]:
    if (mapping := call.equation.params.get("grid_mapping")) is None:
        return
    inputs, outputs = call_arrays(call)
    blocked = inputs[mapping.num_dynamic_grid_bounds + mapping.num_index_operands :]
    names = [array.name for array in (*blocked, *outputs)]
    steps = math.prod(length if isinstance(length, int) else 2 for length in mapping.grid)
    for name, block in zip(names, mapping.block_mappings, strict=False):
        if _in_vmem(block.transformed_block_aval):
            shape = tuple(getattr(each, "block_size", 1) for each in block.block_shape)  # 1 for a squeezed one
            dtype = np.dtype(block.array_aval.dtype)
            yield VmemWindow(name, shape, dtype, tuple(block.array_aval.shape), _buffers(block, steps))


# Yields the scratch of a call, whose references come after those of its arrays.
def _scratch(equation: Equation) -> Iterator[VmemWindow]:
    mapping = equation.params.get("grid_mapping")
    bounds = mapping.num_dynamic_grid_bounds if mapping is not None else 0  # not parameters of the kernel
    first = len(equation.invars) - bounds + len(equation.outvars)
    for body in inner_jaxprs(equation):
        for variable, name in list(zip(body.invars, parameter_names(body), strict=True))[first:]:
            inner = getattr(variable.aval, "inner_aval", None)
            if _in_vmem(variable.aval) and np.issubdtype(getattr(inner, "dtype", object), np.generic):
                shape = tuple(variable.aval.shape)
                yield VmemWindow(name or "scratch", shape, np.dtype(variable.aval.dtype), shape, 1)


def vmem_limit(call: Call, tpu: Tpu) -> int:
    """Returns the bytes of VMEM that a call may use: those of the TPU, or fewer if its parameters say so."""
    requested = getattr(call.equation.params.get("compiler_params"), "vmem_limit_bytes", None)
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


# Returns the number of buffers: one if nothing is fetched after the first block.
def _buffers(block: Any, steps: int) -> int:
    requested = getattr(block.pipeline_mode, "buffer_count", None)
    constant = all(isinstance(index, Literal) for index in block.index_map_jaxpr.jaxpr.outvars)
    return requested if isinstance(requested, int) else 1 if steps <= 1 or constant else 2


def _in_vmem(aval: Any) -> bool:
    return str(getattr(aval, "memory_space", None)).lower().rpartition(".")[2] in ("none", "default", "vmem")


def _nearest(name: str, block: str, whole: str) -> str:
    lengths, lengths_of_array = _lengths(block), _lengths(whole)
    nearest = list(lengths)
    for axis, multiple in ((-2, SUBLANES), (-1, LANES)):
        if nearest[axis] % multiple and nearest[axis] != lengths_of_array[axis]:
            up = -(-nearest[axis] // multiple) * multiple
            nearest[axis] = lengths_of_array[axis] if up >= lengths_of_array[axis] else up
    return (
        f"{name} has blocks of {list(lengths)}, but on a TPU their last two dimensions must be multiples of "
        f"{SUBLANES} and {LANES} or as long as the array's {list(lengths_of_array)}; the nearest is {nearest}"
    )


# The lengths in JAX's text for a shape; a squeezed dimension is 1 long.
def _lengths(shape: str) -> tuple[int, ...]:
    entries = (re.search(r"\d+", entry) for entry in shape.split(",") if entry.strip())
    return tuple(int(found[0]) if found else 1 for found in entries)


def _nearest_of_rank_1(multiple: str, least: str, name: str, block: str, whole: str) -> str:
    length, of_array = int(block), int(whole)
    rounded = -(-length // int(multiple)) * int(multiple)
    power = max(1 << (length - 1).bit_length(), int(least))
    near = min(rounded, power)
    return (
        f"{name} has blocks of [{length}], but on a TPU one-dimensional blocks must be multiples of {multiple}, "
        f"powers of two from {least} on, or as long as the array's [{of_array}]; the nearest is "
        f"[{of_array if near >= of_array else near}]"
    )


_BLOCK_SPEC = r".*?Block spec for (\S+) in pallas_call ", r".*? has block shape \("
_VECTOR = r"vector<(?:\d++x)++([a-z]\w*+)>"


def _scalar_memory(needed: str, available: str, use: str) -> Excess:
    words = (
        f"needs {needed} bytes of scalar memory for its {use}, but there are {available}: prefetch only the scalars "
        "that the kernel reads, and pass the rest as an ordinary input"
    )
    return Excess(words, "SMEM", int(needed), int(available), "B")


# The cause and what to write instead. JAX 0.10.2, 0.11.2 and 0.12.0.1 use the same words for each error.
LOWERING: tuple[Rule, ...] = (
    refused(
        in_order(
            r".*?last two dimensions of your block shape are divisible by",
            *_BLOCK_SPEC,
            r"(.*?)\), array shape \(",
            r"(.*?)\)",
        ),
        _nearest,
    ),
    refused(
        in_order(
            r".*?rank 1 block shapes",
            r".*?multiple of (\d+)",
            r".*?tiling size \((\d+) ",
            *_BLOCK_SPEC,
            r".*?(\d{1,19})\)?,?\), array shape \((\d+),?\)",
        ),
        _nearest_of_rank_1,
    ),
    refused(
        r"in memory space (?:ANY|HBM) only blocks having the same block shape as the array",
        "an argument that stays in main memory has no blocks: leave memory_space out of its BlockSpec, or copy parts "
        "with pltpu.make_async_copy",
    ),
    refused(
        r"(?:ANY|HBM) memory space can only be accessed using async_copy",
        "a reference in main memory cannot be loaded: leave memory_space out of its BlockSpec, or copy it to scratch "
        "in VMEM with pltpu.make_async_copy",
    ),
    refused(
        r"Can only (load scalars from|store scalars to) SMEM",
        "scalar memory is read and written one number at a time: pass vectors as ordinary inputs, in VMEM",
    ),
    refused(
        r"Cannot store scalars to VMEM",
        "VMEM is written in vectors: store a slice of shape (1, n), or give the output "
        "pl.BlockSpec(memory_space=pltpu.SMEM)",
    ),
    refused(
        r"`broadcast_to` is a Triton-specific primitive",
        "a reference is indexed by arrays, as only Triton allows: index it by integers, slices and pl.ds",
    ),
    refused(
        r"'vector.extract_strided_slice' op expected strides",
        "a loaded value is sliced with a stride: stride the reference, as x_ref[pl.ds(0, n, stride=2), :], or split "
        "outside the kernel",
    ),
    refused(
        r"Expected matmul acc to be 32-bit",
        "a TPU sums products in 32 bits: set preferred_element_type=jnp.float32 (jnp.int32 for integers), then convert",
    ),
    lacking(
        r"Scan with \d+ extensive (?:in|out)put",
        "jax.lax.scan lowers only without xs and ys: use jax.lax.fori_loop, and index references by pl.ds",
    ),
    lacking(
        r"Only take_along_axis-like gathers supported",
        "gathers lower only in the form of jnp.take_along_axis: load row by row with indices in SMEM, multiply by a "
        "one-hot matrix, or let an index map choose the block (scalar prefetch)",
    ),
    lacking(r"is_stable=True is not supported", "jax.lax.top_k lowers only with is_stable=False"),
    lacking(
        r"64-bit types are not supported",
        "TPU kernels have no 64-bit types: use 32 bits; under jax_enable_x64, Python integers, jnp.arange and "
        "jnp.argmax yield 64",
    ),
    lacking(
        r"Unsigned integer dtype (\w+) is not supported for dot_general",
        "products of {0} have no lowering: convert to a signed dtype that is wide enough",
    ),
    lacking(
        r"masked swap with non-32-bit data",
        "masked stores lower only for 32-bit types: select with jnp.where, and store the whole block",
    ),
    lacking(
        r"Reductions over unsigned integers not implemented",
        "reductions of unsigned integers have no lowering: convert to int32 or float32 first",
    ),
    lacking(
        r"for reduce_index|^Only float32 is supported",
        "jnp.argmax and jnp.argmin lower only for float32: convert, or compare an iota with the maximum",
    ),
    lacking(
        r"SparseCore is not available on the current device|The current TPU does not have SparseCores",
        "this TPU has no SparseCores, on which the kernel runs: write one for its TensorCores",
    ),
    refused(
        r"Length of grid does not match length of dimension semantics",
        "dimension_semantics needs 'parallel' or 'arbitrary' for each dimension of the grid",
    ),
    refused(r"#tpu.dimension_semantics<(\w+)>", "dimension_semantics can be 'parallel' or 'arbitrary', not '{0}'"),
    refused(
        r"DShapedArray\(", "the size of a load is known only at run time: load the whole block, and mask with jnp.where"
    ),
)

COMPILING: tuple[Rule, ...] = (
    (
        re.compile(r"Could not convert JSON string to proto"),
        Verdict.UNAVAILABLE,
        "libtpu is older than this JAX, and cannot read its output",
    ),
    lacking(
        in_order(r".*?Invalid vector type for load", r".*?xf16"),
        "no TPU has vectors of float16: convert to bfloat16 or float32 before the call",
    ),
    (
        in_order(r".*?\(size=(\d+)\) would exceed memory \(size=(\d+)\)", r".*?space=smem", r".*?tag = '([^']*)'"),
        Verdict.RESOURCE_EXCEEDED,
        _scalar_memory,
    ),
    lacking(
        rf"Unsupported matmul \w+ type on target: {_VECTOR}",
        "this TPU does not multiply matrices of {0}: convert to bfloat16, which holds int8 exactly, and sum in float32",
    ),
    lacking(
        rf"Bad lhs/rhs type: '{_VECTOR}' '{_VECTOR}'",
        "this TPU does not multiply matrices of {0} and {1}: convert outside the kernel",
    ),
    lacking(
        r"float acc with int lhs|Integer inputs with bitwidth (\d+) are not supported as matmul",
        "integers are multiplied only as int8 and summed in int32: convert others to bfloat16 or float32",
    ),
    refused(
        r"unsupported shape cast|Check failed: rem == 0",
        "a reshape moves elements between lanes and sublanes as Mosaic cannot, or reshapes booleans: reshape outside "
        "the kernel, keep the last dimension in place, and convert booleans to numbers first",
    ),
    lacking(
        r"Multiple source vregs along gather dimension",
        "jnp.take_along_axis gathers within 128 lanes or 8 sublanes: split the axis into such parts, or compare with "
        "an iota and sum",
    ),
    lacking(
        r"The last dim size is not 128 in original base memref",
        "a strided load needs rows of 128 elements: split longer ones into blocks",
    ),
    refused(
        r"cannot statically prove that index in dimension (\d+) is a multiple of (\d+)",
        "Mosaic must know that the index along dimension {0} is a multiple of {1}: write pl.multiple_of(index, {1}) if "
        "that is true, or load whole tiles and mask",
    ),
    refused(
        in_order(r".*?aligned to tiles", r".*?dimension (\d+) is divisible by the tile dimension (\d+)"),
        "a copy moves whole tiles: copy a multiple of {1} along dimension {0}, and slice afterwards",
    ),
    refused(
        r"inner slice in the DMA transfer must be divisible by|leading tiles have different trailing dim",
        "a copy moves whole rows of a tile, 512 bytes: copy more and slice afterwards, or pad the array",
    ),
    lacking(
        in_order(r".*?failed to legalize operation '(arith\.\w+)'", rf".*?{_VECTOR}"),
        "no TPU has {0} for {1}: convert to a wider dtype first",
    ),
    lacking(rf"Unsupported type '{_VECTOR}'", "this TPU has no vectors of {0}: convert outside the kernel"),
    refused(
        in_order(r".*?Core-parallel dimension (\d+) has iteration bound: (\d+)", r".*?cores: (\d+)"),
        "dimension {0} of the grid is core-parallel and {1} long, but the number of cores is {2}: use 'parallel'",
    ),
    refused(r"subcore_parallel is only supported on SparseCore", "SUBCORE_PARALLEL is for SparseCores: use 'parallel'"),
    lacking(
        in_order(r".*?to not contain X\{64\|128\} element types", r".*?(\w\d{1,3})\["),
        "an argument is {0}, and TPU kernels have no 64-bit types: convert before the call",
    ),
)
