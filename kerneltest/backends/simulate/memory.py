"""Memory as it is: buffers of a true length, who wrote and read each element, and what was never written."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.undefined import element

_NOBODY = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that a kernel did to memory and must not.

    Attributes:
      verdict: `out_of_bounds`, `race` or `uninitialised`.
      message: with the buffer, the element, the programs and the source lines.
      buffer: its name.
      offset: of the element that programs raced for, or None.
    """

    verdict: Verdict
    message: str
    buffer: str
    offset: int | None = None


@dataclass(slots=True)
class Visitors:
    """For each element of a buffer, the programs that did one thing to it.

    Attributes:
      first, last: the least and the greatest of their linear ids.
      access: the number of the latest access.
    """

    first: Array
    last: Array
    access: Array

    @classmethod
    def nobody(cls, size: int) -> "Visitors":
        """Of a buffer that nobody has touched."""
        return cls(np.full(size, _NOBODY), np.full(size, -1), np.zeros(size, np.int32))

    def others(self, offset: Array, programs: Array) -> Array:
        """For each pair of element and program, another program that was there, or -1."""
        first, last = self.first[offset], self.last[offset]
        other = np.where(first != programs, first, last)
        return np.where((first == _NOBODY) | (other == programs), -1, other)

    def note(self, offset: Array, programs: Array, number: int) -> None:
        """Adds the programs of one access, which come in ascending order: of those that meet, the last one stays."""
        low = np.minimum(self.first[offset], programs)
        self.last[offset] = np.maximum(self.last[offset], programs)
        self.first[offset[::-1]] = low[::-1]
        self.access[offset] = number


@dataclass(eq=False, slots=True)
class Buffer:
    """One array in memory.

    Attributes:
      name: the kernel's name for it.
      shape: of the array.
      data: its elements, flat.
      output: whether the kernel owes its contents, which nobody has written before.
      writable: whether anything is stored to it.
      updated: whether an atomic operation has worked on it, so that no element is known before all programs have run.
    """

    name: str
    shape: tuple[int, ...]
    data: Array
    output: bool
    writable: bool = False
    written: Array = field(init=False)
    undefined: Array | None = None
    writers: Visitors = field(init=False)
    readers: Visitors = field(init=False)
    raced: dict[int, list[Any]] = field(default_factory=dict)
    updated: bool = False

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets who read and wrote."""
        size = self.data.size if self.writable else 0
        self.written = np.full(size, not self.output)
        self.writers, self.readers = Visitors.nobody(size), Visitors.nobody(size)

    @property
    def size(self) -> int:
        """Its length in elements."""
        return self.data.size

    def places(self, offset: Array) -> Array:
        """Where in `data` elements lie, from their offsets within the buffer."""
        return offset

    def take(self, at: Array, offset: Array) -> Array:
        """What stands at some elements, of which there are some: `at` are their places."""
        return self.data[at]

    def stored(self, offset: Array, inside: Array) -> None:
        """Told which elements programs store to, (programs, ...), where somebody asks how far they get."""

    def element(self, offset: int) -> str:
        """`[3, 4]` for an element, its flat offset where it lies outside."""
        if 0 <= offset < self.size:
            return element(self.shape, offset)
        return f"offset {offset} of {self.size} elements"


@dataclass(frozen=True, eq=False, slots=True)
class Access:
    """One load, store or atomic operation of all programs.

    Attributes:
      kind: `load`, `store` or `atomic`.
      number: its place in the order of accesses.
      offset: (programs, ...) int64, in elements.
      enabled: (programs, ...) bool, by the mask and by the control flow.
      place: the source line.
      inside: of the enabled elements, those that lie in the buffer.
      whole: all do, and all are enabled.
      at: where in the buffer's data that is; the first element's place where not inside.
    """

    kind: str
    number: int
    buffer: Buffer
    offset: Array
    enabled: Array
    place: str
    inside: Array = field(init=False)
    whole: bool = field(init=False)
    at: Array = field(init=False)

    def __post_init__(self) -> None:
        inside = np.asarray((self.offset >= 0) & (self.offset < self.buffer.size) & self.enabled)
        whole = bool(inside.all())
        object.__setattr__(self, "inside", inside)
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "at", self.buffer.places(self.clipped))

    @property
    def clipped(self) -> Array:
        """`offset`, 0 where not inside."""
        return self.offset if self.whole else np.where(self.inside, self.offset, 0)


class Watch:
    """Sees every access in order, and keeps the first fault of each kind on each buffer.

    Args:
      grid: programs along x, y and z.
      hints: buffer name to what may explain an access past its end.
      programs: the linear ids of the programs that run, in ascending order.
    """

    def __init__(self, grid: tuple[int, int, int], hints: dict[str, str], programs: Array) -> None:
        self.grid, self.hints, self.programs = grid, hints, programs
        self.faults: dict[tuple[str, str], Fault] = {}
        self.places: dict[int, str] = {}
        self.sources: dict[str, None] = {}

    def afresh(self) -> "Watch":
        """One that has seen nothing yet, but knows where undefined elements come from."""
        watch = Watch(self.grid, self.hints, self.programs)
        watch.sources.update(self.sources)
        return watch

    def program(self, number: int) -> str:
        """A program's id as the kernel sees it."""
        x, y, _ = self.grid
        ids = (number % x, number // x % y, number // (x * y))
        used = max((axis for axis, length in enumerate(self.grid) if length > 1), default=0)
        return f"program ({', '.join(map(str, ids[: used + 1]))})"

    def see(self, access: Access) -> Array | None:
        """Checks one access; for a load, which of its elements are undefined because nobody wrote them."""
        self.places[access.number] = access.place
        buffer, inside = access.buffer, access.inside
        outside = access.enabled & ~inside
        unread: Array | None = None
        if outside.any():
            self._outside(access, outside)
            unread = np.asarray(outside)
        if not buffer.writable:
            return unread
        offset, at = (np.broadcast_to(each, inside.shape)[inside] for each in (access.offset, access.at))
        programs = self._who(inside)
        if access.kind == "load":
            missing = ~buffer.written[at]
            if missing.any():
                lanes = np.zeros(inside.shape, bool)
                lanes[inside] = missing
                unread = lanes if unread is None else unread | lanes
                self.sources[f"{buffer.name}{buffer.element(int(offset[missing][0]))} read before anything was "
                             f"written there at {access.place}"] = None  # fmt: skip
            self._conflict(access, (offset, at), programs, buffer.writers, "is read by", "was written by")
            buffer.readers.note(at, programs, access.number)
        elif access.kind == "store":
            self._conflict(access, (offset, at), programs, buffer.writers, "is written by", "was written by")
            self._conflict(access, (offset, at), programs, buffer.readers, "is written by", "was read by")
            buffer.writers.note(at, programs, access.number)
            self._conflict(access, (offset, at), programs, buffer.writers, "is written by", "also by")
            buffer.written[at] = True
        else:
            # Atomic operations may meet each other, but nothing else: their programs are kept nowhere.
            self._conflict(access, (offset, at), programs, buffer.writers, "is updated by", "was written by")
            buffer.written[at] = True
        return unread

    def see_address(self, access: Access, masks: Sequence[Array | None]) -> None:
        """Checks that no undefined element, of which there may be in each mask, says what an access touches."""
        if any(mask is not None and mask.any() for mask in masks):
            name = access.buffer.name
            self.add(
                Verdict.UNINITIALISED,
                name,
                f"the address or the mask of a {access.kind} at {name} was computed from memory that was never "
                f"written, at {access.place}",
            )

    def _who(self, inside: Array) -> Array:
        programs = self.programs.reshape(-1, *(1,) * (inside.ndim - 1))
        return np.broadcast_to(programs, inside.shape)[inside]

    def _outside(self, access: Access, outside: Array) -> None:
        buffer = access.buffer
        where = tuple(int(i) for i in np.argwhere(outside)[0])
        offset = int(np.broadcast_to(access.offset, outside.shape)[where])
        who = self.program(int(self.programs[where[0]]))
        hint = f"; {self.hints[buffer.name]}" if buffer.name in self.hints else ""
        self.add(
            Verdict.OUT_OF_BOUNDS,
            buffer.name,
            f"{access.kind} at {buffer.name} {buffer.element(offset)} by {who}, at {access.place}; "
            f"{int(outside.sum())} in all{hint}",
        )

    def _conflict(
        self, access: Access, where: tuple[Array, Array], programs: Array, visitors: Visitors, now: str, before: str
    ) -> None:
        offset, places = where
        others = visitors.others(places, programs)
        clash = others >= 0
        if not clash.any():
            return
        i = int(np.argmax(clash))
        name, at = access.buffer.name, int(offset[i])
        self.add(
            Verdict.RACE,
            name,
            f"{name}{access.buffer.element(at)} {now} {self.program(int(programs[i]))} at {access.place}, and {before} "
            f"{self.program(int(others[i]))} at {self.places[int(visitors.access[places[i]])]}, in no order; "
            f"{int(clash.sum())} in all",
            offset=at,
        )

    def add(self, verdict: Verdict, name: str, message: str, offset: int | None = None) -> None:
        """Keeps the first fault of a kind on a buffer."""
        self.faults.setdefault((verdict, name), Fault(verdict, message, name, offset))


def signless(values: Array) -> Array:
    """The same bits as the IR's integers, which have no sign; booleans are bytes in memory."""
    return values.view(f"i{values.dtype.itemsize}") if values.dtype.kind in "ub" else values


def garbage(dtype: np.dtype[Any]) -> Any:
    """What stands in memory that nobody wrote: NaN, or an unlikely integer."""
    if is_float(dtype):
        return dtype.type(np.nan)
    return np.bool_(True) if dtype == np.bool_ else dtype.type(np.iinfo(dtype).max - 6) if is_integer(dtype) else 0
