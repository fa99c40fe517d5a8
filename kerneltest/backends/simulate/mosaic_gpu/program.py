"""Reads a module of the Mosaic GPU dialect into plain data."""

import re
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.simulate.ir import Operation, Region, Semantics, Type, unsupported_failure
from kerneltest.backends.simulate.operations.operation_table import OPERATIONS
from kerneltest.backends.simulate.simulation import ELEMENTS
from kerneltest.core.source_location import relative_path
from kerneltest.trace.jax_compat.mlir import attributes_of

_OPAQUE = np.dtype(object)  # pointers, structures and barriers: types of a dialect, whose names begin with !
_ELEMENTS = {**ELEMENTS, "index": np.dtype(np.int64), "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu)}
_SHAPED = re.compile(r"(vector|memref)<((?:[\d?]+x)*)([^,>]+)")
_LINE = re.compile(r'"([^"]+\.py)":(\d+)')
_UNUSED = re.compile("layouts?$|Flags$|^fastmath$|^constraints$")
_TERMINATORS = ("scf.yield", "scf.condition", "gpu.terminator", "mosaic_gpu.return", "func.return")


def read_program(module: Any) -> tuple[Region, int]:
    """Returns the body of a module's kernel, and the number of its values."""
    functions = (op.operation for block in module.regions[0] for op in block)
    function = next(op for op in functions if op.name == "func.func" and len(op.regions[0].blocks))
    reader = _Reader()
    return reader.region(function.regions[0]), len(reader.types)


def parse_type(text: str) -> Type:
    """Returns a type, given its MLIR text; `pointer` says that it is a reference.

    Raises:
      Failure: `unavailable` if its elements are of an unknown type.
    """
    shaped = _SHAPED.match(text)
    kind, lengths, element = shaped.groups() if shaped else ("", "", text)
    if element not in _ELEMENTS and not element.startswith("!"):
        raise unsupported_failure(f"elements of type {element}")
    shape = tuple(int(length) for length in lengths.split("x")[:-1])
    return Type(shape, _ELEMENTS.get(element, _OPAQUE), kind == "memref")


class _Reader:
    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.types: list[Type] = []
        self._parsed: dict[Any, Type] = {}

    def type(self, value: Any) -> Type:
        kind = value.type
        if kind not in self._parsed:
            self._parsed[kind] = parse_type(str(kind))
        return self._parsed[kind]

    def define(self, values: Any) -> tuple[int, ...]:
        first = len(self.types)
        for number, value in enumerate(values, first):
            self.numbers[value] = number
            self.types.append(self.type(value))
        return tuple(range(first, len(self.types)))

    def region(self, region: Any) -> Region:
        if not len(region.blocks):
            return Region((), (), ())
        (block,) = region.blocks
        arguments = self.define(block.arguments)
        operations: list[Operation] = []
        yields: tuple[int, ...] = ()
        for op in block.operations:
            if op.operation.name in _TERMINATORS:
                yields = tuple(self.numbers[operand] for operand in op.operation.operands)
            else:
                operations.append(self.operation(op.operation))
        return Region(arguments, tuple(operations), yields)

    def operation(self, op: Any) -> Operation:
        operands = tuple(self.numbers[operand] for operand in op.operands)
        regions = tuple(self.region(region) for region in op.regions)
        results = self.define(op.results)
        name = op.name
        return Operation(
            name=name,
            semantics=OPERATIONS.get(name, Semantics()),
            operands=operands,
            results=results,
            operand_types=tuple(self.types[number] for number in operands),
            types=tuple(self.types[number] for number in results),
            attributes={key: _attribute(value) for key, value in attributes_of(op, _UNUSED).items()},
            regions=regions,
            place=_place(str(op.location)),
        )


def _place(location: str) -> str:
    line = _LINE.search(location)
    return f"{relative_path(line[1])}:{line[2]}" if line else ""


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
