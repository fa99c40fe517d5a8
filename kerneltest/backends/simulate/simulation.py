"""The simulation of one lowered Pallas call, prepared once for a signature and run on many values.

Whatever does not depend on memory (indices, masks, trip counts) is computed once; the rest is recorded on a tape, whose
loads and stores already know their elements. So a case costs only its loads, its arithmetic and its stores, and memory
is checked once for each signature. Where an address or a branch depends on loaded values, it is computed and checked
while the tape runs.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from kerneltest.backends.codegen.tiers import LoweredKernel
from kerneltest.backends.simulate.interpreter import BufferPointer, Recorder, Tape
from kerneltest.backends.simulate.ir import Operation, Region, Semantics, Type, unsupported_failure
from kerneltest.backends.simulate.memory import (
    AccessChecker,
    Fault,
    Launch,
    SimulatedBuffer,
    signless,
    uninitialised_value,
)
from kerneltest.backends.simulate.operations import OPERATIONS
from kerneltest.core.details import Race
from kerneltest.core.dtypes import Array
from kerneltest.core.source_location import relative_path
from kerneltest.trace.jax_compat.mlir import UnreadableError, attributes_of, triton_body
from kerneltest.trace.partial_arrays import UNINITIALISED, UNWRITTEN
from kerneltest.trace.runnable import CallArray, call_arrays
from kerneltest.trace.tracing import Call
from kerneltest.trace.triton_kernels import without_descriptors


def new_buffer(array: CallArray, number: int | None, dtype: np.dtype | None = None, copies: int = 1) -> SimulatedBuffer:
    """Returns a buffer for an input, by its number, or for an output with memory of its own (None)."""
    data = signless(np.zeros(copies * math.prod(array.shape), dtype or array.dtype))
    return SimulatedBuffer(array.name, array.shape, data, output=number is None, copies=copies)


def allocate_buffers(
    call: Call, kernel: LoweredKernel, make: Callable[[CallArray, int | None], Any] = new_buffer
) -> tuple[list[Any], list[Any], dict[str, str]]:
    """Returns the input and output buffers of a lowered call, as `make` makes them, and hints for `AccessChecker`."""
    inputs, outputs = call_arrays(call)
    read = [make(array, number) for number, array in enumerate(inputs)]
    shared = {output: read[number] for output, number in kernel.aliases.items()}
    written = [shared[i] if i in shared else make(array, None) for i, array in enumerate(outputs)]
    return read, written, {array.name: array.hint for array in (*inputs, *outputs) if array.hint}


def new_launch(
    grid: tuple[int, int, int],
    inputs: Sequence[SimulatedBuffer],
    outputs: Sequence[SimulatedBuffer],
    hints: dict[str, str],
    programs: Array,
    arguments: Sequence[int | np.generic] | None = None,
) -> tuple[Launch, list[BufferPointer | Array]]:
    """Returns a launch of some programs of a `LoweredKernel`, and the arguments of their function."""
    for buffer in outputs:
        buffer.writable = True
    buffers = [*inputs, *outputs]
    for buffer in buffers:
        buffer.reset()
    launch = Launch(grid, programs, buffers, AccessChecker(grid, hints, programs))
    given = range(len(buffers)) if arguments is None else arguments
    return launch, [BufferPointer(a, np.zeros(1, np.int64)) if isinstance(a, int) else np.array([a]) for a in given]


class Simulation:
    """One Pallas call and its memory; an output that shares an input's memory is the same buffer.

    `programs` are linear ids; by default all, for each copy that the buffers hold. The others are as for `new_launch`.
    """

    def __init__(
        self,
        body: Region,
        grid: tuple[int, int, int],
        inputs: Sequence[SimulatedBuffer],
        outputs: Sequence[SimulatedBuffer],
        hints: dict[str, str],
        programs: Array | None = None,
        arguments: Sequence[int | np.generic] | None = None,
    ) -> None:
        if programs is None:
            copies = max((buffer.copies for buffer in (*inputs, *outputs)), default=1)
            programs = np.tile(np.arange(int(np.prod(grid)), dtype=np.int32), copies)
        self.launch, pointers = new_launch(grid, inputs, outputs, hints, programs, arguments)
        self._memory = list({id(buffer): buffer for buffer in self.launch.buffers}.values())
        self._tape = Tape()
        with np.errstate(all="ignore"):
            Recorder(self.launch, self._tape).enter(body, pointers)
        self._written = [buffer.written.copy() for buffer in self.launch.buffers]

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


def parse_body(bytecode: bytes, *, complete: bool = False, reader: "TritonReader | None" = None) -> Region:
    """Returns the body of a module's only function; if `complete`, with all locations and unused computations.

    Failure: `unavailable`, for unknown types and for what jaxlib cannot read.
    """
    try:
        with triton_body(without_descriptors(bytecode)) as body:
            return (reader or TritonReader(complete)).region(body)
    except UnreadableError as error:
        raise unsupported_failure(str(error)) from None


_TERMINATORS = frozenset(
    "scf.yield scf.condition tt.return tt.reduce.return tt.scan.return gpu.terminator mosaic_gpu.return "
    "func.return".split()
)


class Reader(ABC):
    """Reads operations of a dialect, and numbers their values in order of definition."""

    unused: ClassVar[re.Pattern[str] | None] = None  # the names of attributes that nothing reads

    def __init__(self, complete: bool) -> None:
        self.types: list[Type] = []
        self._complete = complete  # whether the locations of all operations are read
        self._numbers: dict[Any, int] = {}
        self._parsed: dict[Any, Type] = {}  # by MLIR's own

    @abstractmethod
    def parse_type(self, text: str) -> Type:
        """Returns a type, given its MLIR text; raises a `Failure` if the simulator does not support it."""

    def live(self, operations: list[Operation], yields: tuple[int, ...]) -> tuple[Operation, ...]:
        """Returns those of a region's operations that are executed."""
        return tuple(operations)

    def region(self, region: Any) -> Region:
        """Returns a region. Each block but the first is made a branch, for each place from which it is reached."""
        return self._block(region.blocks[0]) if len(region.blocks) else Region((), (), ())

    def _block(self, block: Any, passed: tuple[int, ...] | None = None) -> Region:
        # `passed` are the numbers of the values with which another block goes on here.
        arguments = self._define(block.arguments) if passed is None else ()
        self._numbers.update(zip(block.arguments, passed or (), strict=False))
        operations: list[Operation] = []
        yields: tuple[int, ...] = ()
        for op in (each.operation for each in block.operations):
            if op.name in _TERMINATORS:
                yields = self._uses(op)
            elif op.name == "cf.br":
                operations += self._block(op.successors[0], self._uses(op)).operations
            elif op.name == "cf.cond_br":  # as after `if ...: return`
                condition, *values = self._uses(op)
                first, second = op.successors
                count = len(first.arguments)
                ways = self._block(first, tuple(values[:count])), self._block(second, tuple(values[count:]))
                kind, name = self.types[condition], "scf.if"
                operations.append(Operation(name, OPERATIONS[name], (condition,), (), (kind,), (), {}, ways, ""))
            else:
                operations.append(self._operation(op))
        return Region(arguments, self.live(operations, yields), yields)

    def _define(self, values: Any) -> tuple[int, ...]:
        first = len(self.types)
        for number, value in enumerate(values, first):
            self._numbers[value] = number
            if (kind := value.type) not in self._parsed:
                self._parsed[kind] = self.parse_type(str(kind))
            self.types.append(self._parsed[kind])
        return tuple(range(first, len(self.types)))

    def _uses(self, op: Any) -> tuple[int, ...]:
        return tuple(self._numbers[operand] for operand in op.operands)

    def _operation(self, op: Any) -> Operation:
        semantics = OPERATIONS.get(op.name, _UNKNOWN)
        operands, regions = self._uses(op), tuple(map(self.region, op.regions))
        results = self._define(op.results)
        location = str(op.location) if self._complete or not semantics.bare else ""
        return Operation(
            name=op.name,
            semantics=semantics,
            operands=operands,
            results=results,
            operand_types=tuple(self.types[number] for number in operands),
            types=tuple(self.types[number] for number in results),
            attributes={} if semantics.bare else attributes_of(op, self.unused),
            regions=regions,
            place=_place(location),
            location=location if self._complete else "",
        )


class TritonReader(Reader):
    """Reads Triton IR."""

    def parse_type(self, text: str) -> Type:
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

    def live(self, operations: list[Operation], yields: tuple[int, ...]) -> tuple[Operation, ...]:
        # Without unused computations and unused loads, one of which precedes every store.
        used = set(yields)
        live: list[Operation] = []
        for op in reversed(operations):
            if not used.isdisjoint(op.results) or op.has_effect() or (self._complete and op.name != "tt.load"):
                live.append(op)
                used |= op.uses()
        return tuple(reversed(live))


_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>")
_POINTER = re.compile(r"!tt\.ptr<([^,>]+)")
_LINE = re.compile(r'"([^"]+\.py)":(\d+)')


def _place(location: str) -> str:
    lines = _LINE.findall(location)  # from the innermost function out
    path, line = next((each for each in lines if "/triton/language/" not in each[0]), lines[0] if lines else ("", ""))
    return f"{relative_path(path)}:{line}" if path else ""
