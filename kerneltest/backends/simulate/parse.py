"""Triton IR from bytecode to plain data: functions, regions and operations, with dead code left out."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.places import shown
from kerneltest.jaxprs.compat.mlir import attributes_of, triton_body

ELEMENTS: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
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

# Operations that do something besides giving a result; all others are dead where nobody uses it.
_EFFECTS = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.print", "tt.assert", "tt.debug_barrier"})


# The bulk of a kernel: nothing about them is asked but their operands.
_PLAIN = frozenset(
    "tt.splat tt.addptr tt.broadcast arith.addi arith.subi arith.muli arith.andi arith.ori arith.select".split()
)


class UnknownOperationError(Exception):
    """An operation or a type that the simulator does not know."""


@dataclass(frozen=True, slots=True)
class Type:
    """Of a value: a scalar or a tensor (one a program), of numbers or of pointers.

    Attributes:
      shape: () for a scalar.
      dtype: of the numbers, or of what the pointers point to.
      pointer: whether it holds pointers.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pointer: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A block of operations.

    Attributes:
      arguments: the numbers of the values it is entered with.
      types: theirs.
      operations: in order, the last one ends it and names what it yields.
    """

    arguments: tuple[int, ...]
    types: tuple[Type, ...]
    operations: "tuple[Operation, ...]"

    @property
    def yields(self) -> tuple[int, ...]:
        return self.operations[-1].operands


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
      name: as in `arith.addf`.
      operands, results: numbers of values.
      types: of the results.
      attributes: by name, as plain data.
      regions: nested code.
      place: the kernel's source line behind it, as FILE:LINE.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[Type, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...]
    place: str


def parse(bytecode: bytes) -> Region:
    """The body of the one function in a module; its arguments are pointers.

    Raises:
      UnknownOperationError: a type that the simulator does not know.
    """
    with triton_body(bytecode) as body:
        return _Reader().region(body)


class _Reader:
    """Numbers values as they come."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def region(self, region: Any) -> Region:
        (block,) = region.blocks
        arguments = tuple(self.number(argument) for argument in block.arguments)
        operations = [self.operation(op.operation) for op in block.operations]
        types = tuple(parse_type(str(argument.type)) for argument in block.arguments)
        return Region(arguments, types, _alive(operations))

    def operation(self, op: Any) -> Operation:
        return Operation(
            name=op.name,
            operands=tuple(self.number(operand) for operand in op.operands),
            results=tuple(self.number(result) for result in op.results),
            types=tuple(parse_type(str(result.type)) for result in op.results),
            attributes=attributes_of(op) if op.name not in _PLAIN else {},
            regions=tuple(self.region(region) for region in op.regions),
            place="" if op.name in _PLAIN else _place(str(op.location)),
        )


def _alive(operations: list[Operation]) -> tuple[Operation, ...]:
    """Without the loads and computations whose result nobody uses: Pallas emits a load before every store."""
    used: set[int] = set()
    kept: list[Operation] = []
    for i, op in enumerate(reversed(operations)):
        if i and not used.intersection(op.results) and not _has_effect(op):
            continue
        kept.append(op)
        used |= _uses(op)
    return tuple(reversed(kept))


def _has_effect(op: Operation) -> bool:
    return op.name in _EFFECTS or any(_has_effect(inner) for region in op.regions for inner in region.operations[:-1])


def _uses(op: Operation) -> set[int]:
    found = set(op.operands)
    for region in op.regions:
        for inner in region.operations:
            found |= _uses(inner)
    return found


_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>")
_POINTER = re.compile(r"!tt\.ptr<([^,>]+)")


@functools.cache
def parse_type(text: str) -> Type:
    """A type from its MLIR text.

    Raises:
      UnknownOperationError: one that the simulator does not know.
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
        raise UnknownOperationError(f"type {text} is not one that the simulator knows")
    return Type(shape, ELEMENTS[element], pointer is not None)


_LINE = re.compile(r'"([^"]+\.py)":(\d+)')


def _place(location: str) -> str:
    found = _LINE.search(location)
    return f"{shown(found.group(1))}:{found.group(2)}" if found else ""
