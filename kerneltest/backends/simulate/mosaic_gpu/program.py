"""Reads a module of the Mosaic GPU dialect into plain data."""

import re
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.simulate.ir import Region, Type, unsupported_failure
from kerneltest.backends.simulate.simulation import ELEMENTS, Reader
from kerneltest.trace.jax_compat.mlir import attributes_of

_OPAQUE = np.dtype(object)  # pointers, structures and barriers: types of a dialect, whose names begin with !
_ELEMENTS = {
    **ELEMENTS,
    "index": np.dtype(np.int64),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
}
_SHAPED = re.compile(r"(vector|memref)<((?:[\d?]+x)*)([^,>]+)")
_UNUSED = re.compile("layouts?$|Flags$|^fastmath$|^constraints$")


def read_program(module: Any) -> tuple[Region, int]:
    """Returns the body of a module's kernel, and the number of its values."""
    functions = (op.operation for block in module.regions[0] for op in block)
    function = next(op for op in functions if op.name == "func.func" and len(op.regions[0].blocks))
    reader = _MosaicReader(complete=True)
    return reader.region(function.regions[0]), len(reader.types)


class _MosaicReader(Reader):
    def parse_type(self, text: str) -> Type:
        """Returns a type; `pointer` says that it is a reference."""
        shaped = _SHAPED.match(text)
        kind, lengths, element = shaped.groups() if shaped else ("", "", text)
        if element not in _ELEMENTS and not element.startswith("!"):
            raise unsupported_failure(f"elements of type {element}")
        shape = tuple(int(length) for length in lengths.split("x")[:-1])
        return Type(shape, _ELEMENTS.get(element, _OPAQUE), kind == "memref")

    def attributes(self, op: Any) -> dict[str, Any]:
        return {key: _attribute(value) for key, value in attributes_of(op, _UNUSED).items()}


_INTEGERS = re.compile(r"-?\d+")
_ARRAY = re.compile(r"array<i\d+(?:: [-\d, ]+)?>|\[[-\d, :i]*\]")


def _attribute(value: Any) -> Any:
    # Integers of an array as a tuple.
    if isinstance(value, str) and _ARRAY.fullmatch(value):
        return tuple(map(int, _INTEGERS.findall(re.sub(r"i\d+", "", value))))
    return value


_TRANSFORM = re.compile(r"tile<\[([^\]]*)\]>|swizzle<(\d+)")


def transforms_of(attribute: str, place: str) -> tuple[tuple[int, ...], int]:
    """Returns the tile, () for none, and the swizzle in bytes of a reference to shared memory."""
    tile: tuple[int, ...] = ()
    swizzle = 16
    for lengths, width in _TRANSFORM.findall(attribute):
        if lengths and tile:
            raise unsupported_failure("memory that is tiled twice", place)
        tile, swizzle = (tuple(map(int, lengths.split(","))), swizzle) if lengths else (tile, int(width))
    return tile, swizzle
