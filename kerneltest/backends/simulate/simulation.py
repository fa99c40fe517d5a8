"""The simulation of one lowered Pallas call, prepared once for a signature and run on many values.

Whatever does not depend on memory (indices, masks, trip counts) is computed once; the rest is recorded on a tape, whose
loads and stores already know their elements. So a case costs only its loads, its arithmetic and its stores, and memory
is checked once for each signature. Where an address or a branch depends on loaded values, it is computed and checked
while the tape runs.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.simulate.interpreter import BufferPointer, Recorder, Tape
from kerneltest.backends.simulate.ir import Operation, Region, Semantics, Type, unsupported_failure
from kerneltest.backends.simulate.memory import AccessChecker, Fault, Launch, SimulatedBuffer, uninitialised_value
from kerneltest.backends.simulate.operations.operation_table import OPERATIONS
from kerneltest.core.details import Race
from kerneltest.core.dtypes import Array
from kerneltest.core.source_location import relative_path
from kerneltest.trace.jax_compat.mlir import attributes_of, triton_body
from kerneltest.trace.partial_arrays import UNINITIALISED, UNWRITTEN


class Simulation:
    """One Pallas call and its memory.

    Args:
      inputs, outputs: buffers in the function's order of arguments. An output that shares an input's memory is the same
        object as the input.
      hints: possible causes of an access past a buffer's end, by the buffer's name.
      programs: the linear ids of the programs to run; by default all.
    """

    def __init__(
        self,
        body: Region,
        grid: tuple[int, int, int],
        inputs: Sequence[SimulatedBuffer],
        outputs: Sequence[SimulatedBuffer],
        hints: dict[str, str],
        programs: Array | None = None,
    ) -> None:
        buffers = [*inputs, *outputs]
        for buffer in outputs:
            buffer.writable = True
        for buffer in buffers:
            buffer.reset()
        if programs is None:
            programs = np.arange(int(np.prod(grid)), dtype=np.int32)
        self.launch = Launch(grid, programs, buffers, AccessChecker(grid, hints, programs))
        self._memory = list({id(buffer): buffer for buffer in buffers}.values())
        self._tape = Tape()
        with np.errstate(all="ignore"):
            pointers = [BufferPointer(i, np.zeros(1, np.int64)) for i in range(len(buffers))]
            Recorder(self.launch, self._tape).enter(body, pointers)
        self._written = [buffer.written.copy() for buffer in buffers]

    def run(self, inputs: Sequence[tuple[Array, Array | None]]) -> None:
        """Runs the tape on the values and undefined elements of the inputs, which leaves the results in the buffers."""
        self.place(inputs)
        self.execute()

    def place(self, inputs: Sequence[tuple[Array, Array | None]]) -> None:
        """Sets memory to its state before the first program: inputs in place, outputs unwritten."""
        remaining = iter(inputs)
        for buffer in self._memory:
            if buffer.output:
                buffer.data = np.full(buffer.data.size, uninitialised_value(buffer.data.dtype))
                buffer.undefined = None
            else:
                values, undefined = next(remaining)
                buffer.data = values.reshape(-1).copy() if buffer.writable else values.reshape(-1)
                buffer.undefined = None if undefined is None else undefined.reshape(-1).copy()

    def execute(self) -> None:
        """Runs the programs on the present content of memory."""
        if self.launch.dynamic:
            self.launch.checker = self.launch.checker.without_faults()
            for buffer in self._memory:
                buffer.reset()
        faults = self.launch.checker.faults.values()
        raced = [(fault.buffer, fault.offset) for fault in faults if fault.offset is not None]
        for buffer in self._memory:
            buffer.race_values = {offset: [] for name, offset in raced if name == buffer.name}
        self._tape.run()

    def faults(self) -> list[Fault]:
        """Returns the faults of the last run; those of races with the values that programs wrote."""
        values = {(b.name, offset): stored for b in self._memory for offset, stored in b.race_values.items()}
        faults = []
        for fault in self.launch.checker.faults.values():
            stored = values.get((fault.buffer, fault.offset or 0), [])
            if isinstance(fault.detail, Race) and len(stored) > 1:
                distinct = tuple(dict.fromkeys(map(str, stored)))[:2]
                fault = replace(fault, detail=replace(fault.detail, values=distinct))
            faults.append(fault)
        return faults

    def undefined_codes(self, buffer: SimulatedBuffer) -> Array | None:
        """Returns the verdict codes of an output's elements after a run; None if all are defined."""
        codes = np.zeros(buffer.data.size, np.uint8)
        if buffer.undefined is not None:
            codes[buffer.undefined] = UNINITIALISED
        if buffer.output:
            written = buffer.written if self.launch.dynamic else self._written[self.launch.buffers.index(buffer)]
            codes[~written if buffer.writable else slice(None)] = UNWRITTEN
        return codes if codes.any() else None


# A parser of Triton IR: from bytecode to plain data without dead code.

_FLOAT8 = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz")
ELEMENTS: Mapping[str, np.dtype] = {
    "i1": np.dtype(np.bool_),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    **{f"f8{name.upper()}": np.dtype(getattr(ml_dtypes, f"float8_{name}")) for name in _FLOAT8},
}

_UNKNOWN = Semantics()


def parse_body(bytecode: bytes, *, complete: bool = False) -> Region:
    """Returns the body of a module's only function, whose arguments are pointers; `unavailable` for unknown types.

    `complete` includes the location of every operation, and computations whose results are unused.
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
    # Returns the operations without unused computations and unused loads, one of which precedes every store.
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
    """Returns a type, given its MLIR text; `unavailable` if the simulator does not support it."""
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
