"""A parser of Triton IR: from bytecode to plain data without dead code."""

import functools
import re
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.simulate.ir import Operation, Region, Semantics, Type, unsupported_failure
from kerneltest.backends.simulate.operations.operation_table import OPERATIONS
from kerneltest.core.source_location import relative_path
from kerneltest.trace.jax_compat.mlir import attributes_of, triton_body

ELEMENTS: Mapping[str, np.dtype] = {
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


def parse_body(bytecode: bytes, *, complete: bool = False) -> Region:
    """Returns the body of a module's only function, whose arguments are pointers.

    Args:
      bytecode: the module.
      complete: whether to include the location of every operation, and computations whose results are unused.

    Raises:
      Failure: `unavailable`, for a type that the simulator does not support.
    """
    with triton_body(bytecode) as body:
        return _Reader(complete).region(body)


class _Reader:
    """Reads operations, and numbers their values in order of definition."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.numbers: dict[Any, int] = {}
        self.types: list[Type] = []

    def define(self, values: Any) -> tuple[int, ...]:
        """Returns numbers for new values, whose types it keeps."""
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
        return Region(arguments, _live(read, yields, self.whole), yields)

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


def _live(operations: list[Operation], yields: tuple[int, ...], whole: bool) -> tuple[Operation, ...]:
    """Returns the operations without unused computations and unused loads, one of which precedes every store."""
    used = set(yields)
    live: list[Operation] = []
    for op in reversed(operations):
        if not used.isdisjoint(op.results) or op.has_effect() or (whole and op.name != "tt.load"):
            live.append(op)
            used |= op.uses()
    return tuple(reversed(live))


_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>")
_POINTER = re.compile(r"!tt\.ptr<([^,>]+)")


@functools.cache
def parse_type(text: str) -> Type:
    """Returns a type, given its MLIR text.

    Raises:
      Failure: `unavailable`, if the simulator does not support it.
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
        raise unsupported_failure(f"type {text}")
    return Type(shape, ELEMENTS[element], pointer is not None)


_LINE = re.compile(r'"([^"]+\.py)":(\d+)')


def _place(location: str) -> str:
    line = _LINE.search(location)
    return f"{relative_path(line.group(1))}:{line.group(2)}" if line else ""
