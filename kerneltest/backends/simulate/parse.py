"""Triton IR from bytecode to plain data: functions, regions and operations, with dead code left out."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.simulate.ir import Operation, Region, Semantics, Type
from kerneltest.backends.simulate.operations.table import OPERATIONS
from kerneltest.core.failures import Failure
from kerneltest.core.source_location import shown
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.mlir import attributes_of, triton_body

ELEMENTS: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(scalar)
    for name, scalar in {
        "i1": np.bool_,
        "i8": np.int8,
        "i16": np.int16,
        "i32": np.int32,
        "i64": np.int64,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "f32": np.float32,
        "f64": np.float64,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn,
        "f8E5M2": ml_dtypes.float8_e5m2,
        "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    }.items()
}

_UNKNOWN = Semantics()


def parse(bytecode: bytes, *, whole: bool = False) -> Region:
    """The body of the one function in a module; its arguments are pointers.

    Args:
      bytecode: the module.
      whole: with the location of every operation, and with computations whose result nobody uses.

    Raises:
      Failure: `unimplemented`, for a type that the simulator does not know.
    """
    with triton_body(bytecode) as body:
        return _Reader(whole).region(body)


class _Reader:
    """Numbers values as they come, and keeps their types."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.numbers: dict[Any, int] = {}
        self.types: list[Type] = []

    def define(self, values: Any) -> tuple[int, ...]:
        """The numbers of some new values."""
        first = len(self.types)
        for number, value in enumerate(values, first):
            self.numbers[value] = number
            self.types.append(parse_type(str(value.type)))
        return tuple(range(first, len(self.types)))

    def uses(self, op: Any) -> tuple[int, ...]:
        return tuple(self.numbers[operand] for operand in op.operands)

    def region(self, region: Any) -> Region:
        (block,) = region.blocks
        arguments = self.define(block.arguments)
        *operations, end = (op.operation for op in block.operations)
        read = [self.operation(op) for op in operations]
        yields = self.uses(end)
        return Region(arguments, _alive(read, yields, self.whole), yields)

    def operation(self, op: Any) -> Operation:
        name = op.name
        semantics = OPERATIONS.get(name, _UNKNOWN)
        operands = self.uses(op)
        regions = tuple(self.region(region) for region in op.regions)
        results = self.define(op.results)
        location = str(op.location) if self.whole or not semantics.bare else ""
        return Operation(
            name=name,
            semantics=semantics,
            operands=operands,
            results=results,
            operand_types=tuple(self.types[number] for number in operands),
            types=tuple(self.types[number] for number in results),
            attributes={} if semantics.bare else attributes_of(op),
            regions=regions,
            place=_place(location),
            location=location if self.whole else "",
        )


def _alive(operations: list[Operation], yields: tuple[int, ...], whole: bool) -> tuple[Operation, ...]:
    """Without the loads whose result nobody uses, since Pallas emits one before every store, and the computations."""
    used = set(yields)
    kept: list[Operation] = []
    for op in reversed(operations):
        if not used.isdisjoint(op.results) or op.has_effect() or (whole and op.name != "tt.load"):
            kept.append(op)
            used |= op.uses()
    return tuple(reversed(kept))


_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>")
_POINTER = re.compile(r"!tt\.ptr<([^,>]+)")


@functools.cache
def parse_type(text: str) -> Type:
    """A type from its MLIR text.

    Raises:
      Failure: `unimplemented`, for one that the simulator does not know.
    """
    shape: tuple[int, ...] = ()
    element = text
    if tensor := _TENSOR.fullmatch(text):
        shape = tuple(int(length) for length in tensor.group(1).split("x")[:-1])
        element = tensor.group(2)
    pointer = _POINTER.match(element)
    if pointer:
        element = pointer.group(1)
    if element not in ELEMENTS:
        raise Failure(Verdict.UNIMPLEMENTED, f"type {text} is not one that the simulator knows")
    return Type(shape, ELEMENTS[element], pointer is not None)


_LINE = re.compile(r'"([^"]+\.py)":(\d+)')


def _place(location: str) -> str:
    line = _LINE.search(location)
    return f"{shown(line.group(1))}:{line.group(2)}" if line else ""
