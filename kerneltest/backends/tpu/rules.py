"""What JAX, Mosaic and XLA say of TPU kernels, and what it means to their authors."""

import re
from pathlib import Path

import jax

from kerneltest.backends.lowering_errors import Rule
from kerneltest.backends.tpu.memory import LANES, SUBLANES
from kerneltest.core.source_location import shown
from kerneltest.core.verdicts import Verdict


def _nearest(name: str, block: str, whole: str) -> str:
    """The blocks of two dimensions or more that are allowed next to one that is not."""
    lengths, lengths_of_array = (tuple(map(int, re.findall(r"\d+", each))) for each in (block, whole))
    mended = list(lengths)
    for axis, multiple in ((-2, SUBLANES), (-1, LANES)):
        if mended[axis] % multiple and mended[axis] != lengths_of_array[axis]:
            up = -(-mended[axis] // multiple) * multiple
            mended[axis] = lengths_of_array[axis] if up >= lengths_of_array[axis] else up
    return (
        f"{name} has blocks of {list(lengths)}, and a TPU takes those whose last two dimensions are multiples of "
        f"{SUBLANES} and {LANES} or as long as the array's {list(lengths_of_array)}; the nearest is {mended}"
    )


def _nearest_in_a_row(multiple: str, least: str, name: str, block: str, whole: str) -> str:
    length, of_array = int(block), int(whole)
    rounded = -(-length // int(multiple)) * int(multiple)
    power = max(1 << (length - 1).bit_length(), int(least))
    near = min(rounded, power)
    return (
        f"{name} has blocks of [{length}], and a TPU takes one-dimensional blocks that are multiples of {multiple}, "
        f"powers of two from {least} on, or as long as the array's [{of_array}]; the nearest is "
        f"[{of_array if near >= of_array else near}]"
    )


_BLOCKS = r"Block spec for (\S+) in pallas_call .*? has block shape \((.*?)\), array shape \((.*?)\)"

_REFUSED = Verdict.COMPILE_ERROR
_LACKING = Verdict.UNIMPLEMENTED

# What the author wrote, and what to write instead; the same words in JAX 0.10.2, 0.11.2 and 0.12.0.1 unless said.
LOWERING: tuple[Rule, ...] = (
    (
        re.compile(r"last two dimensions of your block shape are divisible by.*?" + _BLOCKS, re.DOTALL),
        _REFUSED,
        _nearest,
    ),
    (
        re.compile(
            r"rank 1 block shapes.*?multiple of (\d+).*?tiling size \((\d+) .*?"
            r"Block spec for (\S+) in pallas_call .*? has block shape \(.*?(\d+)\)?,?\), array shape \((\d+),?\)",
            re.DOTALL,
        ),
        _REFUSED,
        _nearest_in_a_row,
    ),
    (
        re.compile(r"in memory space (?:ANY|HBM) only blocks having the same block shape as the array"),
        _REFUSED,
        "an argument that stays in main memory has no blocks: leave memory_space out of its BlockSpec, or copy parts "
        "with pltpu.make_async_copy",
    ),
    (
        re.compile(r"(?:ANY|HBM) memory space can only be accessed using async_copy"),
        _REFUSED,
        "a reference in main memory cannot be loaded: leave memory_space out of its BlockSpec, or copy it to scratch "
        "in VMEM with pltpu.make_async_copy",
    ),
    (
        re.compile(r"Can only (load scalars from|store scalars to) SMEM"),
        _REFUSED,
        "scalar memory holds one number at a time: pass what is used as a vector as an ordinary input, in VMEM",
    ),
    (
        re.compile(r"Cannot store scalars to VMEM"),
        _REFUSED,
        "VMEM is written in vectors: store a slice of shape (1, n), or give the output "
        "pl.BlockSpec(memory_space=pltpu.SMEM)",
    ),
    (
        re.compile(r"`broadcast_to` is a Triton-specific primitive"),
        _REFUSED,
        "a reference is indexed by arrays, which Triton takes and a TPU does not: index by integers, slices and pl.ds",
    ),
    (
        re.compile(r"'vector.extract_strided_slice' op expected strides"),
        _REFUSED,
        "a loaded value is sliced with a stride: stride the reference, as x_ref[pl.ds(0, n, stride=2), :], or split "
        "outside the kernel",
    ),
    (
        re.compile(r"Expected matmul acc to be 32-bit"),
        _REFUSED,
        "a TPU sums products in 32 bits: say preferred_element_type=jnp.float32 (jnp.int32 of integers), then convert",
    ),
    (
        re.compile(r"Scan with \d+ extensive (?:in|out)put"),
        _LACKING,
        "jax.lax.scan lowers with a carry alone: use jax.lax.fori_loop, and index references by pl.ds",
    ),
    (
        re.compile(r"Only take_along_axis-like gathers supported"),
        _LACKING,
        "gathers lower in the form of jnp.take_along_axis alone: load row by row with indices in SMEM, multiply by a "
        "one-hot matrix, or let an index map choose the block (scalar prefetch)",
    ),
    (
        re.compile(r"is_stable=True is not supported"),
        _LACKING,
        "jax.lax.top_k lowers with is_stable=False alone",
    ),
    (
        re.compile(r"64-bit types are not supported"),
        _LACKING,
        "TPU kernels have no 64-bit types: use 32 bits; under jax_enable_x64, Python integers, jnp.arange and "
        "jnp.argmax make 64",
    ),
    (
        re.compile(r"Unsigned integer dtype (\w+) is not supported for dot_general"),
        _LACKING,
        "products of {0} are not lowered: convert to a signed dtype that is wide enough",
    ),
    (
        re.compile(r"masked swap with non-32-bit data"),
        _LACKING,
        "masked stores are of 32 bits alone: select with jnp.where, and store all",
    ),
    (
        re.compile(r"Reductions over unsigned integers not implemented"),
        _LACKING,
        "unsigned integers are not reduced: convert to int32 or float32 before",
    ),
    (
        re.compile(r"for reduce_index|^Only float32 is supported"),
        _LACKING,
        "jnp.argmax and jnp.argmin are of float32 alone: convert, or compare an iota with the maximum",
    ),
    (
        re.compile(r"Length of grid does not match length of dimension semantics"),
        _REFUSED,
        "dimension_semantics needs one of 'parallel' and 'arbitrary' for each dimension of the grid",
    ),
    (
        re.compile(r"#tpu.dimension_semantics<(\w+)>"),
        _REFUSED,
        "dimension_semantics takes 'parallel' and 'arbitrary', not '{0}'",
    ),
    (
        re.compile(r"DShapedArray\("),
        _REFUSED,
        "a load has a size known at run time: load all, and mask with jnp.where",
    ),
)

_JAX = str(Path(jax.__file__).parent)
_LINE = re.compile(r'"([^"]+\.py)":(\d+)')

COMPILING: tuple[Rule, ...] = (
    (
        re.compile(r"Could not convert JSON string to proto"),
        Verdict.UNAVAILABLE,
        "libtpu is older than this JAX, and does not know all that it writes",
    ),
    (
        re.compile(r"Invalid vector type for load.*?xf16", re.DOTALL),
        _LACKING,
        "no TPU has vectors of float16: convert to bfloat16 or float32 before the call",
    ),
    (
        re.compile(r"\(size=(\d+)\) would exceed memory \(size=(\d+)\).*?space=smem.*?tag = '([^']*)'", re.DOTALL),
        Verdict.RESOURCE_EXCEEDED,
        "needs {0} bytes of scalar memory for its {2}, and there are {1}: prefetch what the kernel reads alone, and "
        "pass the rest as an ordinary input",
    ),
    (
        re.compile(r"Unsupported matmul \w+ type on target: vector<[\dx]*x(\w+)>"),
        _LACKING,
        "this TPU does not multiply matrices of {0}: convert to bfloat16, which holds int8 exactly, and sum in float32",
    ),
    (
        re.compile(r"Bad lhs/rhs type: 'vector<[\dx]*x(\w+)>' 'vector<[\dx]*x(\w+)>'"),
        _LACKING,
        "this TPU does not multiply matrices of {0} and {1}: convert outside the kernel",
    ),
    (
        re.compile(r"float acc with int lhs|Integer inputs with bitwidth (\d+) are not supported as matmul"),
        _LACKING,
        "integers are multiplied as int8, and summed in int32: convert others to bfloat16 or float32",
    ),
    (
        re.compile(r"unsupported shape cast|Check failed: rem == 0"),
        _REFUSED,
        "a reshape moves elements between lanes and sublanes in a way that Mosaic lacks, or reshapes booleans: reshape "
        "outside the kernel, keep the last dimension in place, and make numbers of booleans first",
    ),
    (
        re.compile(r"Multiple source vregs along gather dimension"),
        _LACKING,
        "jnp.take_along_axis gathers within 128 lanes or 8 sublanes: cut the axis to that, or compare with an iota and "
        "sum",
    ),
    (
        re.compile(r"The last dim size is not 128 in original base memref"),
        _LACKING,
        "a strided load needs rows of 128 elements: cut longer ones into blocks",
    ),
    (
        re.compile(r"cannot statically prove that index in dimension (\d+) is a multiple of (\d+)"),
        _REFUSED,
        "the index along dimension {0} must be a multiple of {1} as far as Mosaic can tell: say "
        "pl.multiple_of(index, {1}) where that is true, or load whole tiles and mask",
    ),
    (
        re.compile(r"aligned to tiles.*?dimension (\d+) is divisible by the tile dimension (\d+)", re.DOTALL),
        _REFUSED,
        "a copy takes whole tiles: along dimension {0} copy a multiple of {1}, and cut after",
    ),
    (
        re.compile(r"inner slice in the DMA transfer must be divisible by|leading tiles have different trailing dim"),
        _REFUSED,
        "a copy takes whole rows of a tile, 512 bytes: copy more and cut after, or pad the array",
    ),
    (
        re.compile(r"failed to legalize operation '(arith\.\w+)'.*?vector<[\dx]*x(\w+)>", re.DOTALL),
        _LACKING,
        "no TPU has {0} of {1}: convert to a wider dtype before",
    ),
    (
        re.compile(r"Unsupported type 'vector<[\dx]*x(\w+)>'"),
        _LACKING,
        "this TPU has no vectors of {0}: convert outside the kernel",
    ),
    (
        re.compile(r"Core-parallel dimension (\d+) has iteration bound: (\d+).*?cores: (\d+)"),
        _REFUSED,
        "dimension {0} of the grid is core-parallel and {1} long, and there are {2} cores: use 'parallel'",
    ),
    (
        re.compile(r"subcore_parallel is only supported on SparseCore"),
        _REFUSED,
        "SUBCORE_PARALLEL is for SparseCores: use 'parallel'",
    ),
    (
        re.compile(r"to not contain X\{64\|128\} element types.*?(\w\d+)\[", re.DOTALL),
        _LACKING,
        "an argument is {0}, and TPU kernels have no 64-bit types: convert before the call",
    ),
)


def place_of(text: str) -> str:
    """` (FILE:LINE)` of the user's code that a message of Mosaic's names, or ""."""
    lines = ((path, line) for path, line in _LINE.findall(text) if not path.startswith(_JAX))
    return next((f" ({shown(path)}:{line})" for path, line in lines), "")
