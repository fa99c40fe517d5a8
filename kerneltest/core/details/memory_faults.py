"""Wrong uses of memory: accesses out of bounds, races, and elements without a defined value."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from kerneltest.core.details.base import BaseDetail, kernel_prefix


class Access(StrEnum):
    """The ways in which memory is accessed."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    BLOCK = "block"
    COPY = "copy"

    @property
    def participle(self) -> str:
        """`read` after "is"."""
        return {Access.LOAD: "read", Access.ATOMIC: "updated"}.get(self, "written")


def _at(place: str) -> str:
    return f" at {place}" if place else ""


@dataclass(frozen=True, slots=True)
class Visit:
    """One program's access to an element."""

    access: Access  # the way in which the element is accessed
    program: tuple[int, ...] = ()  # the program's index along each axis of the grid; () if unknown
    place: str = ""  # FILE:LINE of the access, or ""
    thread: str = ""  # the core or warpgroup that makes it, as text; "" if programs are not divided further

    @property
    def who(self) -> str:
        """`program (3, 1)`, or the thread."""
        if self.thread:
            return self.thread
        return f"program ({', '.join(map(str, self.program))})" if self.program else "a program"

    def text(self) -> str:
        """`written by program (3, 1) at FILE:LINE`."""
        return f"{self.access.participle} by {self.who}{_at(self.place)}"


@dataclass(frozen=True, slots=True)
class IndexOverflow:
    """Integer arithmetic that does not fit its type, on the way to an address or a mask."""

    expression: str  # the operation with its operands, `65,536 x 40,960`
    bits: int  # the result's exact value is at least 2**bits, or less than -(2**bits)
    accessed: int  # offset of the accessed element
    intended: int  # offset of the element that exact arithmetic gives. It equals `accessed` if only the mask differs


@dataclass(frozen=True, slots=True)
class MemoryFault(BaseDetail):
    """An access outside a buffer, or one whose address or mask is wrong."""

    kernel: str  # the name of the kernel; "" if there is only one
    visit: Visit  # the first wrong access
    buffer: str  # the name of the argument or output
    element: str = ""  # the element as text: `[3, 4]`, or `offset 1024 of 1000 elements`
    # the fault in the words of the tool or interpreter that found it; "" to render it from the other fields
    words: str = ""
    others: tuple[str, ...] = ()  # further faults of the same call, one line each
    count: int = 0  # the number of wrong accesses; 0 if unknown
    hint: str = ""  # a possible cause or remedy, or ""
    overflow: IndexOverflow | None = None  # the index overflow that led to the wrong access, if one did
    undefined_address: bool = False  # whether the address or the mask was computed from memory that was never written
    kind: Literal["memory_fault"] = "memory_fault"

    @property
    def place(self) -> str:
        return self.visit.place

    @property
    def essence(self) -> str:
        return f"{self.visit.access} of {self.buffer}"

    def text(self) -> str:
        return _faults(self, self.hint)

    def sentence(self) -> str:
        access, place = f"{self.visit.access} at {self.buffer}", f", at {self.place}" if self.place else ""
        if self.undefined_address:
            return f"the address or the mask of a {access} was computed from memory that was never written{place}"
        if (wrap := self.overflow) is None:
            return f"{access} {self.element} by {self.visit.who}{place}"
        effect = (
            "is wrongly masked"
            if wrap.accessed == wrap.intended
            else f"accesses offset {wrap.accessed:,} instead of {wrap.intended:,}"
        )
        cause = f"an index wraps around: {wrap.expression} is past 2^{wrap.bits}"
        return f"{cause}, so the {access} by {self.visit.who} {effect}{place}"


@dataclass(frozen=True, slots=True)
class Race(BaseDetail):
    """Two programs or threads access one element, at least one of them writes, and nothing orders them."""

    kernel: str  # the name of the kernel; "" if there is only one
    buffer: str  # the name of the argument, output or scratch memory
    element: str  # the element as text, `[3, 4]`, or ""
    visits: tuple[Visit, ...]  # the two accesses, the later one first; () if unknown
    words: str = ""  # the race in the words of the interpreter that found it; "" to render it from the other fields
    others: tuple[str, ...] = ()  # further faults of the same call, one line each
    count: int = 0  # the number of conflicting accesses; 0 if unknown
    # distinct values that the programs write to the element, at most two; one if all write the same; () if unknown
    values: tuple[str, ...] = ()
    kind: Literal["race"] = "race"

    @property
    def place(self) -> str:
        return next((visit.place for visit in self.visits if visit.place), "")

    @property
    def essence(self) -> str:
        return self.buffer

    def text(self) -> str:
        subject = "all" if len(self.values) == 1 else "programs"
        return _faults(self, f"{subject} write {' and '.join(self.values)}" if self.values else "")

    def sentence(self) -> str:
        match self.visits:
            case (one, other) if (one.access, one.place) == (other.access, other.place):
                visits = f"{one.access.participle} by {one.who} and by {other.who}{_at(one.place)}"
            case _:
                visits = " and ".join(visit.text() for visit in self.visits) or "accessed"
        return f"{self.buffer}{self.element} is {visits}, in no order"


def _faults(found: MemoryFault | Race, remark: str) -> str:
    parts = [found.words or found.sentence(), f"{found.count} in all" if found.count else "", remark]
    lines = "; ".join(filter(None, parts)), *found.others
    return "\n".join(f"{kernel_prefix(found.kernel)}{line}" for line in lines)


class UndefinedCause(StrEnum):
    """Reads whose results are undefined.

    They are reads of an unwritten element, of a block that is partly unwritten, past an array's end, of masked elements
    without `other`, and of elements of `jax.lax.empty` that were never filled.
    """

    UNWRITTEN = "unwritten"
    PARTLY_WRITTEN = "partly written"
    PAST_END = "past end"
    MASKED = "masked"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class UndefinedSource:
    """A read from which undefined elements come."""

    cause: UndefinedCause  # the kind of read
    place: str  # FILE:LINE of the read, or ""
    # the element or buffer that was read, as `x_ref[3]`; "" for a masked load and for `jax.lax.empty`
    element: str = ""

    def text(self) -> str:
        """`x_ref[3] is read at FILE:LINE before anything was written there`."""
        at = _at(self.place)
        return {
            UndefinedCause.UNWRITTEN: f"{self.element} is read{at} before anything was written there",
            UndefinedCause.PARTLY_WRITTEN: f"{self.element} is read{at} before all of it was written",
            UndefinedCause.PAST_END: f"{self.element} is read past the end of its array{at}",
            UndefinedCause.MASKED: f"a masked load without `other`{at}",
            UndefinedCause.EMPTY: f"jax.lax.empty{at} was not filled completely",
        }[self.cause]


@dataclass(frozen=True, slots=True)
class Undefined(BaseDetail):
    """Elements of an output that were never written, or that depend on memory that was not."""

    array: str  # `output 0`
    unwritten: bool  # whether the elements themselves were never written
    # count, total: elements
    count: int
    total: int
    first: str  # indices of the first one, as text
    sources: tuple[UndefinedSource, ...] = ()  # the reads that the elements depend on
    sampled: bool = False  # whether only a sample of the elements was checked
    remark: str = ""  # anything else known of them, or ""
    kind: Literal["undefined"] = "undefined"

    @property
    def place(self) -> str:
        return next((source.place for source in self.sources if source.place), "")

    @property
    def essence(self) -> str:
        return f"{self.array} {'unwritten' if self.unwritten else 'uninitialised'}"

    def text(self) -> str:
        elements = "sampled elements" if self.sampled else "elements"
        count = f"{self.count} of {self.total} {elements} of {self.array}"
        state = "were never written" if self.unwritten else "depend on memory never written"
        parts = [f"{count} {state}, the first {self.first}", *(source.text() for source in self.sources)]
        return "; ".join([*parts, self.remark] if self.remark else parts)
