"""Buffers with their true lengths, and the state of each element: its writers, its readers, whether it is defined."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import dense_masks
from kerneltest.core.details import (
    Access,
    InputModified,
    MemoryFault,
    Nondeterministic,
    Race,
    UndefinedCause,
    UndefinedSource,
    Visit,
)
from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.partial_arrays import format_element

_NO_PROGRAM = np.iinfo(np.int64).max


@dataclass(slots=True)
class Accessors:
    """The programs that accessed each element in one way: the least and greatest linear id, and the latest access."""

    first: Array
    last: Array
    access: Array

    @classmethod
    def empty(cls, size: int) -> "Accessors":
        return cls(np.full(size, _NO_PROGRAM), np.full(size, -1), np.zeros(size, np.int32))

    def find_others(self, positions: Array, programs: Array) -> Array:
        """Returns, for each pair of element and program, another program that accessed the element, or -1."""
        first, last = self.first[positions], self.last[positions]
        other = np.where(first != programs, first, last)
        return np.where((first == _NO_PROGRAM) | (other == programs), -1, other)

    def record(self, positions: Array, programs: Array, number: int) -> None:
        """Adds the programs of one access, in ascending order. The last of several on one element is kept."""
        low = np.minimum(self.first[positions], programs)
        self.last[positions] = np.maximum(self.last[positions], programs)
        self.first[positions[::-1]] = low[::-1]
        self.access[positions] = number

    def extend(self, count: int) -> "Accessors":
        """Returns the same with `count` elements more, which no program has accessed."""
        more = Accessors.empty(count)
        fields = ("first", "last", "access")
        return Accessors(*(np.concatenate([getattr(each, name) for each in (self, more)]) for name in fields))


@dataclass(eq=False, slots=True)
class SimulatedBuffer:
    """One array in memory."""

    name: str
    shape: tuple[int, ...]
    data: Array  # its elements, flat
    output: bool  # whether the kernel must write it; it starts uninitialised
    writable: bool = False  # whether the kernel stores to it
    # whether each element has been written; empty for a buffer that is not writable, as are the next two
    written: Array = field(init=False)
    undefined: Array | None = None  # whether each element's value is undefined; None if all are defined
    # writers, readers: the programs that wrote and read each element
    writers: Accessors = field(init=False)
    readers: Accessors = field(init=False)
    # the values that programs store to each raced element, by its flat offset
    race_values: dict[int, list[Any]] = field(default_factory=dict)
    atomically_updated: bool = False  # whether no element is final before all programs have run
    copies: int = 1  # of the array, one after another in `data`; each is that of as many programs in turn

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discards the record of reads and writes."""
        size = self.data.size if self.writable else 0
        self.written = np.full(size, not self.output)
        self.writers, self.readers = Accessors.empty(size), Accessors.empty(size)

    @property
    def size(self) -> int:  # in elements
        return self.data.size // self.copies

    def positions(self, offset: Array) -> Array:
        """Returns the positions in `data` of the elements at some offsets (programs, ...) within the buffer."""
        if self.copies == 1:
            return offset
        first = np.repeat(np.arange(self.copies) * self.size, len(offset) // self.copies)
        return np.asarray(offset + first.reshape(-1, *(1,) * (offset.ndim - 1)))

    def gather(self, positions: Array, offset: Array) -> Array:
        """Returns the values of some elements, given their positions in `data` and their offsets."""
        return self.data[positions]

    def describe_element(self, offset: int) -> str:
        """Returns `[3, 4]` for an element, and its flat offset if it lies outside."""
        if 0 <= offset < self.size:
            return format_element(self.shape, offset)
        return f"offset {offset} of {self.size} elements"


def signless(values: Array) -> Array:
    """Returns a view of integers as the IR's signless ones, and of booleans as bytes, as they are in memory."""
    return values.view(f"i{values.dtype.itemsize}") if values.dtype.kind in "ub" else values


def uninitialised_value(dtype: np.dtype) -> Any:
    """Returns the content of memory that was never written: NaN, or an unlikely integer."""
    if is_float(dtype):
        return dtype.type(np.nan)
    return np.bool_(True) if dtype == np.bool_ else dtype.type(np.iinfo(dtype).max - 6) if is_integer(dtype) else 0


# Checks of memory accesses: out of bounds, races between programs, reads of elements that were never written.


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong use of memory; `offset` is that of the element that programs race for."""

    verdict: Verdict
    detail: MemoryFault | Race
    offset: int | None = None

    @property
    def buffer(self) -> str:
        return self.detail.buffer

    @property
    def message(self) -> str:
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


def check_same(
    array: str, shape: tuple[int, ...], first: Array, second: Array, how: tuple[str, str], kernel: str
) -> None:
    """Raises a `Failure` if the flat contents of an output, after two runs of a kernel, differ in a bit."""
    differs = np.flatnonzero(first.view(f"u{first.itemsize}") != second.view(f"u{second.itemsize}"))
    if differs.size:
        index = tuple(int(i) for i in np.unravel_index(differs[0], shape))
        values = str(first[differs[0]]), str(second[differs[0]])
        detail = Nondeterministic(array, index, *values, differs.size, first.size, how, kernel)
        raise Failure(Verdict.NONDETERMINISTIC, detail)


@dataclass(frozen=True, eq=False, slots=True)
class MemoryAccess:
    """One load, store or atomic operation of all programs."""

    kind: Access
    number: int  # its place in the order of accesses
    buffer: SimulatedBuffer
    offset: Array  # (programs, ...) int64, in elements
    enabled: Array  # (programs, ...) bool, by the mask and by the control flow
    place: str
    inside: Array = field(init=False)  # whether each element is enabled and lies in the buffer
    all_inside: bool = field(init=False)
    # positions in the buffer's data; that of the first element for elements that are not inside
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
    """Checks every access in order, and keeps the first fault of each kind on each buffer."""

    def __init__(self, grid: tuple[int, int, int], hints: dict[str, str], programs: Array) -> None:
        # Possible causes of an access past a buffer's end, by the buffer's name; the linear ids of the programs that
        # run, in ascending order.
        self.grid, self.hints, self.programs = grid, hints, programs
        self.faults: dict[tuple[Verdict, str], Fault] = {}
        self.sources: dict[UndefinedSource, None] = {}  # the reads so far whose results are undefined, in order
        self._places: dict[int, str] = {}  # by the number of the access

    def without_faults(self) -> "AccessChecker":
        """Returns a checker that has seen no access yet but keeps the sources of undefined elements."""
        checker = AccessChecker(self.grid, self.hints, self.programs)
        checker.sources.update(self.sources)
        return checker

    def check(self, access: MemoryAccess) -> Array | None:
        """Checks one access; returns the elements of a load that lie outside or were never written."""
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
        programs = np.broadcast_to(self.programs.reshape(-1, *(1,) * (inside.ndim - 1)), inside.shape)[inside]
        where = offset, positions, programs
        self._check_race(access, where, buffer.writers, Access.STORE)
        if access.kind is Access.LOAD:
            unwritten = ~buffer.written[positions]
            if unwritten.any():
                lanes = np.zeros(inside.shape, bool)
                lanes[inside] = unwritten
                undefined = lanes if undefined is None else undefined | lanes
                first = f"{buffer.name}{buffer.describe_element(int(offset[unwritten][0]))}"
                self.sources[UndefinedSource(UndefinedCause.UNWRITTEN, access.place, first)] = None
            buffer.readers.record(positions, programs, access.number)
            return undefined
        if access.kind is Access.STORE:  # atomic operations conflict only with plain accesses, so they are not recorded
            self._check_race(access, where, buffer.readers, Access.LOAD)
            buffer.writers.record(positions, programs, access.number)
            self._check_race(access, where, buffer.writers, Access.STORE)  # between programs of this very access
        buffer.written[positions] = True
        return undefined

    def check_address(self, access: MemoryAccess, where: Sequence[Array], undefined: Sequence[Array | None]) -> None:
        """Checks that an access's offsets and masks are defined, given these and their undefined elements."""
        if depends_on_undefined(where, undefined):
            visit = Visit(access.kind, place=access.place)
            self.add(Verdict.UNINITIALISED, MemoryFault("", visit, access.buffer.name, undefined_address=True))

    def add(self, verdict: Verdict, detail: MemoryFault | Race, offset: int | None = None) -> None:
        """Keeps a fault if it is the first of its kind on its buffer."""
        self.faults.setdefault((verdict, detail.buffer), Fault(verdict, detail, offset))

    def visit(self, access: Access, program: int, place: str) -> Visit:
        """Returns the access of one program, given its linear id."""
        return Visit(access, program_index(self.grid, program), place)

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
        # Checks an access, by the offsets, positions and programs of its elements inside, against earlier ones.
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


def program_coordinates(grid: tuple[int, int, int], number: Any) -> tuple[Any, Any, Any]:
    """Returns the places along x, y and z of a linear id, or of an array of them."""
    x, y, _ = grid
    return number % x, number // x % y, number // (x * y)


def program_index(grid: tuple[int, int, int], number: int) -> tuple[int, ...]:
    """Returns a program's index along the axes of the grid up to the last one longer than 1, given its linear id."""
    used = max((axis for axis, length in enumerate(grid) if length > 1), default=0)
    return program_coordinates(grid, number)[: used + 1]


# Buffers too large to allocate: pages of the elements that are accessed, and inputs computed from their offsets.

_PAGE = 256  # elements
_ENOUGH = 8  # programs with ascending stores, from which the programs between them are inferred


@dataclass(eq=False, slots=True)
class PagedBuffer(SimulatedBuffer):
    """A buffer of which only the accessed pages are in memory, one after another in `data`."""

    length: int = 0  # the length in elements
    # returns the elements' initial values, given their offsets, int64; None for an output
    read: Callable[[Array], Array] | None = None
    # the numbers of the pages in memory, in the order in which they were first accessed
    pages: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    # low, high: the smallest and the largest offset that each program has stored to, int64 (programs,): the largest
    # integer and -1 for a program that has stored nothing. None before the first store.
    low: Array | None = None
    high: Array | None = None
    _frames: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.length

    def gather(self, positions: Array, offset: Array) -> Array:
        """Returns the values of some elements. Those of an input that is not written are computed each time."""
        if self.read is not None and not self.writable:
            return self.read(offset)
        return self.data[positions]

    def positions(self, offset: Array) -> Array:
        """Returns the positions in `data` of some elements, whose pages it loads."""
        if self.read is not None and not self.writable:
            return offset
        numbers, inverse = np.unique(offset // _PAGE, return_inverse=True)
        new = [number for number in numbers.tolist() if number not in self._frames]
        if new:
            self._load_pages(np.array(new, np.int64))
        frames = np.array([self._frames[number] for number in numbers.tolist()], np.int64)
        return np.asarray(frames[inverse].reshape(offset.shape) * _PAGE + offset % _PAGE)

    def written_offsets(self) -> Array:
        """Returns the offsets of the elements that a program has stored to, in ascending order."""
        at = np.flatnonzero(self.writers.last >= 0)
        offsets = self.pages[at // _PAGE] * _PAGE + at % _PAGE
        return np.sort(offsets)

    def note_stored_range(self, offset: Array, inside: Array) -> None:
        """Extends the range of offsets that each program has stored to, given its elements, (programs, ...)."""
        rows = offset.shape[0]
        low = np.where(inside, offset, np.iinfo(np.int64).max).reshape(rows, -1).min(axis=1)
        high = np.where(inside, offset, -1).reshape(rows, -1).max(axis=1)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)

    def unwritten_ends(self, grid: tuple[int, int, int], programs: Array) -> Array:
        """Returns the flat offsets of the first and the last element, if no program of the grid writes them.

        That follows if both the first and the last program have run, and all programs that have run store further on
        the higher their number is, with the first axis of the grid counted as the fastest or as the slowest.
        """
        unknown = np.zeros(0, np.int64)
        if self.low is None or self.high is None or not {0, math.prod(grid) - 1} <= set(programs.tolist()):
            return unknown
        (_, y, z), (of_x, of_y, of_z) = grid, program_coordinates(grid, programs)
        slowest = (of_x * y + of_y) * z + of_z
        for order in (np.argsort(programs), np.argsort(slowest)):
            low, high = self.low[order], self.high[order]
            if len(order) >= _ENOUGH and (high >= 0).all() and (np.diff(low) > 0).all() and (np.diff(high) > 0).all():
                ends = [(0, low[0] > 0), (self.length - 1, high[-1] < self.length - 1)]
                return np.array([offset for offset, missed in ends if missed], np.int64)
        return unknown

    def _load_pages(self, numbers: Array) -> None:
        self._frames.update(
            zip(numbers.tolist(), range(len(self._frames), len(self._frames) + numbers.size), strict=True)
        )
        self.pages = np.concatenate([self.pages, numbers])
        count = numbers.size * _PAGE
        if self.read is None:
            initial = np.full(count, uninitialised_value(self.data.dtype), self.data.dtype)
        else:
            offset = (numbers[:, None] * _PAGE + np.arange(_PAGE)).reshape(-1)
            initial = self.read(np.minimum(offset, self.length - 1))
        self.data = np.concatenate([self.data, initial])
        self.written = np.concatenate([self.written, np.full(count, not self.output)])
        self.writers, self.readers = self.writers.extend(count), self.readers.extend(count)
        if self.undefined is not None:
            self.undefined = np.concatenate([self.undefined, np.zeros(count, bool)])


# One launch of a kernel: its programs, the buffers that they share, and the checks of their accesses.


@dataclass(eq=False, slots=True)
class Launch:
    """Programs and the buffers that they share, in the order of the function's arguments."""

    grid: tuple[int, int, int]
    programs: Array  # the linear ids of those that run, in ascending order for each copy, int32 (programs,)
    buffers: Sequence[SimulatedBuffer]
    checker: AccessChecker
    # whether an address, a mask or a branch depends on loaded values, so that every access is checked when it happens
    dynamic: bool = False
    _accesses: int = 0

    def next_access(self, kind: Access, number: int, place: str, where: Sequence[Array]) -> MemoryAccess:
        """Returns the next access to a buffer, of the elements with some offsets that any number of masks enable."""
        buffer, (offset, *masks) = self.buffers[number], where
        enabled = intersect_masks(masks, offset.ndim)
        shape = np.broadcast_shapes(offset.shape, enabled.shape)
        if buffer.writable or buffer.copies > 1:
            shape = (self.programs.size, *shape[1:])  # races depend on which program accesses an element
        self._accesses += 1
        offset, enabled = np.broadcast_to(offset, shape), np.broadcast_to(enabled, shape)
        access = MemoryAccess(kind, self._accesses, buffer, offset, enabled, place)
        if kind is not Access.LOAD and not buffer.writable and access.inside.any():
            raise Failure(Verdict.INPUT_MODIFIED, InputModified(number))
        return access


def intersect_masks(masks: Sequence[Array], axes: int) -> Array:
    """Returns the conjunction of masks, all of which have the programs' axis first, with a number of axes."""
    enabled = np.ones((1,) * axes, bool)
    for mask in masks:
        enabled = enabled & mask.reshape(*mask.shape, *(1,) * (axes - mask.ndim))
    return enabled


def depends_on_undefined(where: Sequence[Array], undefined: Sequence[Array | None]) -> bool:
    """Returns the lanes whose offset or a mask (`where`) is undefined, and that no defined mask disables."""
    if all(lanes is None for lanes in undefined):
        return False
    lanes, *of_masks = dense_masks(where, undefined)
    offset, *masks = where
    possible = intersect_masks([mask | unknown for mask, unknown in zip(masks, of_masks, strict=True)], offset.ndim)
    known = intersect_masks([~unknown for unknown in of_masks], offset.ndim)
    return bool((possible & (lanes | ~known)).any())
