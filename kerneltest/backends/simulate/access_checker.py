"""Checks of memory accesses: out of bounds, races between programs, reads of elements that were never written."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kerneltest.backends.simulate.buffers import Accessors, SimulatedBuffer
from kerneltest.core.details import Access, MemoryFault, Race, UndefinedCause, UndefinedSource, Visit
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong use of memory.

    Attributes:
      verdict: `out_of_bounds`, `race` or `uninitialised`.
      detail: the access, the buffer, the element, the programs and the source lines.
      offset: the flat offset of the element that programs race for; None for anything but a race.
    """

    verdict: Verdict
    detail: MemoryFault | Race
    offset: int | None = None

    @property
    def buffer(self) -> str:
        """The name of the buffer."""
        return self.detail.buffer

    @property
    def message(self) -> str:
        """The fault in words."""
        return self.detail.text()


def memory_failure(kernel: str, faults: Sequence[Fault]) -> Failure:
    """Returns the failure of a kernel that has some faults, at least one: the most severe one with the others below."""
    worst = max(faults, key=lambda fault: fault.verdict.severity)
    others = tuple(
        fault.message if fault.verdict is worst.verdict else f"{fault.verdict}: {fault.message}"
        for fault in faults
        if fault is not worst
    )
    return Failure(worst.verdict, replace(worst.detail, kernel=kernel, others=others))


@dataclass(frozen=True, eq=False, slots=True)
class MemoryAccess:
    """One load, store or atomic operation of all programs.

    Attributes:
      kind: load, store or atomic.
      number: its place in the order of accesses.
      buffer: the buffer that is accessed.
      offset: (programs, ...) int64, in elements.
      enabled: (programs, ...) bool, by the mask and by the control flow.
      place: FILE:LINE of the source.
      inside: whether each element is enabled and lies in the buffer.
      all_inside: whether all are and do.
      positions: positions in the buffer's data; that of the first element for elements that are not inside.
    """

    kind: Access
    number: int
    buffer: SimulatedBuffer
    offset: Array
    enabled: Array
    place: str
    inside: Array = field(init=False)
    all_inside: bool = field(init=False)
    positions: Array = field(init=False)

    def __post_init__(self) -> None:
        inside = np.asarray((self.offset >= 0) & (self.offset < self.buffer.size) & self.enabled)
        object.__setattr__(self, "inside", inside)
        object.__setattr__(self, "all_inside", bool(inside.all()))
        object.__setattr__(self, "positions", self.buffer.positions(self.clipped_offset))

    @property
    def clipped_offset(self) -> Array:
        """`offset`, and 0 for elements that are not inside."""
        return self.offset if self.all_inside else np.where(self.inside, self.offset, 0)


class AccessChecker:
    """Checks every access in order, and keeps the first fault of each kind on each buffer.

    Attributes:
      faults: the faults found so far, by verdict and buffer.
      sources: the reads so far whose results are undefined, in order.

    Args:
      grid: programs along x, y and z.
      hints: possible causes of an access past a buffer's end, by the buffer's name.
      programs: the linear ids of the programs that run, in ascending order.
    """

    def __init__(self, grid: tuple[int, int, int], hints: dict[str, str], programs: Array) -> None:
        self.grid, self.hints, self.programs = grid, hints, programs
        self.faults: dict[tuple[Verdict, str], Fault] = {}
        self.sources: dict[UndefinedSource, None] = {}
        self._places: dict[int, str] = {}  # by the number of the access

    def without_faults(self) -> "AccessChecker":
        """Returns a checker that has seen no access yet but keeps the sources of undefined elements."""
        checker = AccessChecker(self.grid, self.hints, self.programs)
        checker.sources.update(self.sources)
        return checker

    def check(self, access: MemoryAccess) -> Array | None:
        """Checks one access.

        Returns:
          For a load, a mask of the elements that are undefined because they lie outside or were never written.
        """
        self._places[access.number] = access.place
        buffer, inside = access.buffer, access.inside
        outside = access.enabled & ~inside
        undefined: Array | None = None
        if outside.any():
            self._add_out_of_bounds(access, outside)
            undefined = np.asarray(outside)
        if not buffer.writable:
            return undefined
        offset, positions = (np.broadcast_to(each, inside.shape)[inside] for each in (access.offset, access.positions))
        programs = self._programs_of(inside)
        where = offset, positions, programs
        if access.kind is Access.LOAD:
            unwritten = ~buffer.written[positions]
            if unwritten.any():
                lanes = np.zeros(inside.shape, bool)
                lanes[inside] = unwritten
                undefined = lanes if undefined is None else undefined | lanes
                first = f"{buffer.name}{buffer.describe_element(int(offset[unwritten][0]))}"
                self.sources[UndefinedSource(UndefinedCause.UNWRITTEN, access.place, first)] = None
            self._check_race(access, where, buffer.writers, Access.STORE)
            buffer.readers.record(positions, programs, access.number)
        elif access.kind is Access.STORE:
            self._check_race(access, where, buffer.writers, Access.STORE)
            self._check_race(access, where, buffer.readers, Access.LOAD)
            buffer.writers.record(positions, programs, access.number)
            self._check_race(access, where, buffer.writers, Access.STORE)  # between programs of this very access
            buffer.written[positions] = True
        else:
            # Atomic operations conflict only with plain accesses, so their programs are not recorded.
            self._check_race(access, where, buffer.writers, Access.STORE)
            buffer.written[positions] = True
        return undefined

    def check_address(self, access: MemoryAccess, masks: Sequence[Array | None]) -> None:
        """Checks that an access's offsets and masks are defined, given a mask of the undefined elements of each."""
        if any(mask is not None and mask.any() for mask in masks):
            visit = Visit(access.kind, place=access.place)
            self.add(Verdict.UNINITIALISED, MemoryFault("", visit, access.buffer.name, undefined_address=True))

    def add(self, verdict: Verdict, detail: MemoryFault | Race, offset: int | None = None) -> None:
        """Keeps a fault if it is the first of its kind on its buffer."""
        self.faults.setdefault((verdict, detail.buffer), Fault(verdict, detail, offset))

    def visit(self, access: Access, program: int, place: str) -> Visit:
        """Returns the access of one program, given its linear id."""
        return Visit(access, program_index(self.grid, program), place)

    def _programs_of(self, inside: Array) -> Array:
        """Returns the linear ids of the programs of the elements inside."""
        programs = self.programs.reshape(-1, *(1,) * (inside.ndim - 1))
        return np.broadcast_to(programs, inside.shape)[inside]

    def _add_out_of_bounds(self, access: MemoryAccess, outside: Array) -> None:
        buffer = access.buffer
        where = tuple(int(i) for i in np.argwhere(outside)[0])
        offset = int(np.broadcast_to(access.offset, outside.shape)[where])
        detail = MemoryFault(
            kernel="",
            visit=self.visit(access.kind, int(self.programs[where[0]]), access.place),
            buffer=buffer.name,
            element=buffer.describe_element(offset),
            count=int(outside.sum()),
            hint=self.hints.get(buffer.name, ""),
        )
        self.add(Verdict.OUT_OF_BOUNDS, detail)

    def _check_race(
        self, access: MemoryAccess, where: tuple[Array, Array, Array], earlier: Accessors, earlier_kind: Access
    ) -> None:
        """Checks an access against the earlier ones of one kind.

        Args:
          access: the access.
          where: offsets, positions and programs of its elements inside.
          earlier: the programs of the earlier accesses.
          earlier_kind: the kind of the earlier accesses.
        """
        offset, positions, programs = where
        others = earlier.find_others(positions, programs)
        conflicts = others >= 0
        if not conflicts.any():
            return
        i = int(np.argmax(conflicts))
        place = self._places[int(earlier.access[positions[i]])]
        detail = Race(
            kernel="",
            buffer=access.buffer.name,
            element=access.buffer.describe_element(int(offset[i])),
            visits=(
                self.visit(access.kind, int(programs[i]), access.place),
                self.visit(earlier_kind, int(others[i]), place),
            ),
            count=int(conflicts.sum()),
        )
        self.add(Verdict.RACE, detail, offset=int(offset[i]))


def program_index(grid: tuple[int, int, int], number: int) -> tuple[int, ...]:
    """Returns a program's index along the axes of the grid up to the last one longer than 1, given its linear id."""
    x, y, _ = grid
    index = (number % x, number // x % y, number // (x * y))
    used = max((axis for axis, length in enumerate(grid) if length > 1), default=0)
    return index[: used + 1]
