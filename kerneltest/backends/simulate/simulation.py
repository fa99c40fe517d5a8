"""The simulation of one lowered Pallas call, prepared once for a signature and run on many values.

Whatever does not depend on memory (indices, masks, trip counts) is computed once; the rest is recorded on a tape, whose
loads and stores already know their elements. So a case costs only its loads, its arithmetic and its stores, and memory
is checked once for each signature. Where an address or a branch depends on loaded values, it is computed and checked
while the tape runs.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kerneltest.backends.simulate.access_checker import AccessChecker, Fault
from kerneltest.backends.simulate.buffers import SimulatedBuffer, uninitialised_value
from kerneltest.backends.simulate.ir import Region
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.recorder import Recorder
from kerneltest.backends.simulate.tape import BufferPointer, Tape
from kerneltest.core.details import Race
from kerneltest.core.dtypes import Array
from kerneltest.trace.partial_arrays import UNINITIALISED, UNWRITTEN


class Simulation:
    """One Pallas call and its memory.

    Attributes:
      launch: its programs and buffers.

    Args:
      body: its function.
      grid: programs along x, y and z.
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
        """Runs the tape, which leaves the results in the buffers.

        Args:
          inputs: the values and the mask of undefined elements of each buffer that is not an output.
        """
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
