"""What a kernel did to memory and must not."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from kerneltest.core.details.base import BaseDetail, within


class Access(StrEnum):
    """How memory is touched."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    BLOCK = "block"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Visit:
    """A program that touches an element.

    Attributes:
      access: how.
      program: its number along each axis of the grid; () where it is not known.
      place: FILE:LINE of the access, or "".
      thread: the core or warpgroup that makes it, as text; "" where programs are not told apart further.
    """

    access: Access
    program: tuple[int, ...] = ()
    place: str = ""
    thread: str = ""


@dataclass(frozen=True, slots=True)
class MemoryFault(BaseDetail):
    """An access outside a buffer, or of memory that was never written.

    Attributes:
      kernel: whose call it is; "" where the kernel has one only.
      visit: the first access that is wrong.
      buffer: the name of the argument or output.
      element: what was accessed, as text: `[3, 4]`, or `offset 1024` past the end.
      words: the fault in words, without the kernel's name.
      others: further faults of the same call, each in a line.
    """

    kernel: str
    visit: Visit
    buffer: str
    element: str
    words: str
    others: tuple[str, ...] = ()
    kind: Literal["memory_fault"] = "memory_fault"

    @property
    def place(self) -> str:
        return self.visit.place

    @property
    def essence(self) -> str:
        return f"{self.visit.access} of {self.buffer}"

    def text(self) -> str:
        return "\n".join(f"{within(self.kernel)}{line}" for line in (self.words, *self.others))


@dataclass(frozen=True, slots=True)
class Race(BaseDetail):
    """Two programs or threads touch one element, at least one of them writes, and nothing orders them.

    Attributes:
      kernel: whose call it is; "" where the kernel has one only.
      buffer: the name of the argument, output or scratch memory.
      element: as text, or "".
      visits: the accesses, where they are known.
      words: the race in words, without the kernel's name.
      others: further faults of the same call, each in a line.
    """

    kernel: str
    buffer: str
    element: str
    visits: tuple[Visit, ...]
    words: str
    others: tuple[str, ...] = ()
    kind: Literal["race"] = "race"

    @property
    def place(self) -> str:
        return next((visit.place for visit in self.visits if visit.place), "")

    @property
    def essence(self) -> str:
        return self.buffer

    def text(self) -> str:
        return "\n".join(f"{within(self.kernel)}{line}" for line in (self.words, *self.others))


@dataclass(frozen=True, slots=True)
class Undefined(BaseDetail):
    """Elements of an output that were never written, or that depend on memory that was not.

    Attributes:
      array: `output 0`.
      unwritten: whether they were never written themselves.
      count, total: elements.
      first: indices of the first, as text.
      sources: where the memory they depend on was read, in words.
      sampled: whether only a sample of the elements was looked at.
      remark: a further clause; "" for none.
    """

    array: str
    unwritten: bool
    count: int
    total: int
    first: str
    sources: tuple[str, ...] = ()
    sampled: bool = False
    remark: str = ""
    kind: Literal["undefined"] = "undefined"

    @property
    def essence(self) -> str:
        return f"{self.array} {'unwritten' if self.unwritten else 'uninitialised'}"

    def text(self) -> str:
        sampled = "sampled " if self.sampled else ""
        count = f"{self.count} of {self.total} {sampled}elements of {self.array}"
        what = "were never written" if self.unwritten else "depend on memory never written"
        more = "; ".join(filter(None, (*self.sources, self.remark)))
        return f"{count} {what}, the first {self.first}{'; ' if more else ''}{more}"
