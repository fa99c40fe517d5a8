"""One lowered Pallas call, ready for any values: what depends on no memory is done, the rest is on a tape.

Operations on values that are known beforehand (indices, masks, loop bounds) are computed once; the tape's loads and
stores already know their elements. So a case costs its loads, its arithmetic and its stores, and memory is checked once
a signature. Where an address or a branch depends on loaded values, it is computed and checked as the tape runs.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Region
from kerneltest.backends.simulate.launch import Launch
from kerneltest.backends.simulate.memory import Buffer, Fault, Watch, garbage
from kerneltest.backends.simulate.recorder import Recorder
from kerneltest.backends.simulate.tape import Pointer, Tape
from kerneltest.core.dtypes import Array
from kerneltest.trace.undefined import UNINITIALISED, UNWRITTEN


class Simulation:
    """One Pallas call and its memory.

    Attributes:
      launch: its programs and buffers.

    Args:
      body: its function.
      grid: programs along x, y and z.
      inputs, outputs: in the function's order of arguments; an output that shares an input's memory is its buffer.
      hints: for `Watch`.
      programs: the linear ids of the programs to run, by default all.
    """

    def __init__(
        self,
        body: Region,
        grid: tuple[int, int, int],
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
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
        self.launch = Launch(grid, programs, buffers, Watch(grid, hints, programs))
        self._memory = list({id(buffer): buffer for buffer in buffers}.values())
        self._tape = Tape()
        with np.errstate(all="ignore"):
            pointers = [Pointer(i, np.zeros(1, np.int64)) for i in range(len(buffers))]
            Recorder(self.launch, self._tape).enter(body, pointers)
        self._written = [buffer.written.copy() for buffer in buffers]

    def run(self, inputs: Sequence[tuple[Array, Array | None]]) -> None:
        """Runs the tape; the buffers then hold the results.

        Args:
          inputs: for each buffer that is no output, its values and the mask of its undefined elements.
        """
        self.place(inputs)
        self.execute()

    def place(self, inputs: Sequence[tuple[Array, Array | None]]) -> None:
        """Puts memory as it is before the first program: inputs in it, outputs unwritten."""
        given = iter(inputs)
        for buffer in self._memory:
            if buffer.output:
                buffer.data = np.full(buffer.data.size, garbage(buffer.data.dtype))
                buffer.undefined = None
            else:
                values, undefined = next(given)
                buffer.data = values.reshape(-1).copy() if buffer.writable else values.reshape(-1)
                buffer.undefined = None if undefined is None else undefined.reshape(-1).copy()

    def execute(self) -> None:
        """Runs the programs on memory as it is."""
        if self.launch.dynamic:
            self.launch.watch = self.launch.watch.afresh()
            for buffer in self._memory:
                buffer.reset()
        faults = self.launch.watch.faults.values()
        raced = [(fault.buffer, fault.offset) for fault in faults if fault.offset is not None]
        for buffer in self._memory:
            buffer.raced = {offset: [] for name, offset in raced if name == buffer.name}
        self._tape.run()

    def faults(self) -> list[Fault]:
        """What the last run did to memory and must not."""
        values = {(b.name, offset): seen for b in self._memory for offset, seen in b.raced.items()}
        return [
            replace(fault, message=fault.message + _difference(values.get((fault.buffer, fault.offset or 0), [])))
            for fault in self.launch.watch.faults.values()
        ]

    def undefined(self, buffer: Buffer) -> Array | None:
        """The verdict codes of an output's undefined elements after a run, or None."""
        codes = np.zeros(buffer.data.size, np.uint8)
        if buffer.undefined is not None:
            codes[buffer.undefined] = UNINITIALISED
        if buffer.output:
            written = buffer.written if self.launch.dynamic else self._written[self.launch.buffers.index(buffer)]
            codes[~written if buffer.writable else slice(None)] = UNWRITTEN
        return codes if codes.any() else None


def _difference(values: Sequence[Any]) -> str:
    if len(values) < 2:
        return ""
    distinct = list(dict.fromkeys(str(value) for value in values))
    return f"; all write {distinct[0]}" if len(distinct) == 1 else f"; they write {' and '.join(distinct[:2])}"
