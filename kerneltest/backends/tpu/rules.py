"""What JAX, Mosaic and XLA say of TPU kernels, and what it means to their authors."""

import re
from pathlib import Path

import jax

from kerneltest.backends.explained import Rule
from kerneltest.backends.tpu.memory import LANES, SUBLANES
from kerneltest.core.places import shown
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

LOWERING: tuple[Rule, ...] = (
    (
        re.compile(r"last two dimensions of your block shape are divisible by.*?" + _BLOCKS, re.DOTALL),
        Verdict.COMPILE_ERROR,
        _nearest,
    ),
    (
        re.compile(
            r"rank 1 block shapes.*?multiple of (\d+).*?tiling size \((\d+) .*?"
            r"Block spec for (\S+) in pallas_call .*? has block shape \(.*?(\d+)\)?,?\), array shape \((\d+),?\)",
            re.DOTALL,
        ),
        Verdict.COMPILE_ERROR,
        _nearest_in_a_row,
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
        re.compile(r"Invalid vector type for load.*?memref<[\dx]*xf16|f16.*?Invalid vector type", re.DOTALL),
        Verdict.COMPILE_ERROR,
        "Mosaic has no vectors of float16 on any TPU: convert to bfloat16 or float32 before the call",
    ),
    (
        re.compile(
            r"Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\).*?space=smem.*?tag = '([^']*)'",
            re.DOTALL,
        ),
        Verdict.RESOURCE_EXCEEDED,
        "needs {0} bytes of scalar memory for its {2}, and there are {1}: keep in SMEM what indexes blocks, and pass "
        "the rest as an ordinary input",
    ),
)


def place_of(text: str) -> str:
    """` (FILE:LINE)` of the user's code that a message of Mosaic's names, or ""."""
    lines = ((path, line) for path, line in _LINE.findall(text) if not path.startswith(_JAX))
    return next((f" ({shown(path)}:{line})" for path, line in lines), "")
