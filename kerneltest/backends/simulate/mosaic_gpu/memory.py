"""Memory of simulated Mosaic GPU kernels, and the order of the accesses to it.

Memory is bytes, in which a layout says where each element of a reference lies, after tiling and swizzling. Races are
found by happens-before, not by bad luck in one interleaving: each thread is a sequence of events, each asynchronous
operation is one event, and a thread or operation knows a set of events, those that it is ordered after. The set is the
bits of an integer. Barriers pass it on. Two accesses to a byte conflict if the later one does not know the earlier.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.simulate.memory import Fault
from kerneltest.core.details import Access, MemoryFault, Race, UndefinedCause, UndefinedSource, Visit
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.partial_arrays import format_element

Key = tuple[int | slice, ...]
PACKED = (np.dtype(ml_dtypes.float4_e2m1fn),)  # dtypes of four bits, which fill a byte only outside of shared memory
_BYTE = np.dtype(np.uint8)


class Layout:
    """The addresses of the elements of a reference, in elements of the dtype, as an array of its shape."""

    def __init__(self, addresses: Array, dtype: np.dtype) -> None:
        self.addresses, self.dtype = addresses, dtype
        self._views: dict[Any, Layout] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.addresses.shape)

    @property
    def size(self) -> int:
        return self.addresses.size * self.dtype.itemsize

    def view(self, key: Key) -> "Layout":
        """Returns the layout of some elements, by an index of integers and slices."""
        name = tuple((part.start, part.stop) if isinstance(part, slice) else part for part in key)
        if name not in self._views:
            self._views[name] = self.moved(self.addresses[key])
        return self._views[name]

    def moved(self, addresses: Array) -> "Layout":
        """Returns the layout with the same elements in another shape or order."""
        return type(self)(addresses, self.dtype)

    def load(self, data: Array) -> Array:
        values = data.view(self.dtype)
        if (row := self.row) is not None:
            return values[row].reshape(self.shape).copy()
        return np.asarray(values[self.addresses])

    def store(self, data: Array, elements: Array) -> None:
        values = data.view(self.dtype)
        if (row := self.row) is not None:
            values[row] = elements.reshape(-1)
        else:
            values[self.addresses] = elements

    @cached_property
    def row(self) -> slice | None:
        """The addresses as a slice, if they are consecutive and in order."""
        flat = self.addresses.reshape(-1)
        if not flat.size or (flat[-1] - flat[0] + 1 == flat.size and (np.diff(flat) == 1).all()):
            start = int(flat[0]) if flat.size else 0
            return slice(start, start + flat.size)
        return None

    @cached_property
    def spots(self) -> slice | Array:
        """The bytes of the elements, as a slice if they are consecutive in any order."""
        width, flat = self.dtype.itemsize, self.addresses.reshape(-1)
        if not flat.size:
            return slice(0, 0)
        low, high = int(flat.min()), int(flat.max())
        if high - low + 1 == flat.size:
            return slice(low * width, (high + 1) * width)
        return np.asarray((flat[:, None] * width + np.arange(width)).reshape(-1))


class PackedLayout(Layout):
    """The layout of elements of four bits, two of which share a byte, the even one in its low bits."""

    @property
    def size(self) -> int:
        return self.addresses.size // 2

    def load(self, data: Array) -> Array:
        at = self.addresses
        return np.asarray(((data[at >> 1] >> ((at & 1) << 2)) & 15).astype(np.uint8).view(self.dtype))

    def store(self, data: Array, elements: Array) -> None:
        bits = elements.astype(self.dtype).view(np.uint8) & 15
        for odd in range(2):
            chosen = (self.addresses & 1) == odd
            at = self.addresses[chosen] >> 1
            data[at] = (data[at] & (15 if odd else 240)) | (bits[chosen] << 4 * odd)

    @cached_property
    def spots(self) -> slice | Array:
        return Layout(np.unique(self.addresses >> 1), _BYTE).spots


def plain_layout(shape: Sequence[int], dtype: np.dtype) -> Layout:
    """Returns the layout of an array in order."""
    return Layout(np.arange(int(np.prod(shape, dtype=np.int64))).reshape(tuple(shape)), dtype)


def tiled_layout(shape: Sequence[int], dtype: np.dtype, offset: int, tile: Sequence[int], swizzle: int) -> Layout:
    """Returns the layout of an array in shared memory whose last axes are cut into tiles, and whose rows are swizzled.

    The swizzle, in bytes, exchanges the 16-byte chunks of a row: the number of a chunk is combined with that of the
    128-byte line, by exclusive or.
    """
    lead, last = tuple(shape[: len(shape) - len(tile)]), tuple(shape[len(shape) - len(tile) :])
    counts = [length // size for length, size in zip(last, tile, strict=True)]
    linear = np.arange(int(np.prod(shape, dtype=np.int64))).reshape((*lead, *counts, *tile))
    axes = [axis + len(lead) + part * len(tile) for axis in range(len(tile)) for part in range(2)]
    per_byte = 2 if dtype in PACKED else 1
    at = linear.transpose(*range(len(lead)), *axes).reshape(tuple(shape)) * dtype.itemsize + offset * per_byte
    if swizzle > 16:
        at = at ^ (((at // per_byte >> 7) & (swizzle // 16 - 1)) << 4) * per_byte
    return Layout(at // dtype.itemsize, dtype) if per_byte == 1 else PackedLayout(at, dtype)


@dataclass(eq=False, slots=True)
class Accessed:
    """One access to memory, as later ones see it."""

    scope: object  # stands for the cluster that made it; those of other clusters are in no order
    event: int  # the bit by which those that are ordered after it know it
    visit: Visit  # who accessed, and where
    # whether it is an ordinary store, which those of the copy engine and tensor core are not ordered after
    unfenced: bool = False


@dataclass(eq=False, slots=True)
class Agent:
    """A thread or an asynchronous operation, which accesses memory."""

    scope: object
    event: int  # its bit now
    known: int  # the bits of the events that it is ordered after, its own included
    who: str
    program: tuple[int, ...]
    # that its reads are recorded in; operations share one, in which a read hides none that may be under way
    slot: int = 0
    asynchronous: bool = False  # whether the copy engine or the tensor core accesses for it


@dataclass(eq=False)
class Faults:
    """The faults of a run, and its reads of memory that was never written."""

    found: dict[tuple[Verdict, str, str], Fault] = field(default_factory=dict)
    reads: dict[UndefinedSource, None] = field(default_factory=dict)

    def add(self, verdict: Verdict, detail: MemoryFault | Race) -> None:
        """Keeps a fault if it is the first of its kind at its buffer and line."""
        self.found.setdefault((verdict, detail.buffer, detail.place), Fault(verdict, detail))


_UNFENCED = "the copy engine and the tensor core do not wait for ordinary stores: call plgpu.commit_smem() in between"


@dataclass(eq=False)
class Memory:
    """An array in global memory, the shared memory of a block, or its tensor memory."""

    name: str
    data: Array  # its bytes
    faults: Faults
    tracked: bool = True  # whether accesses are recorded, which those of an input need not be, since it is only read
    initialised: bool = False
    fenced: bool = False  # whether a fence orders ordinary stores before asynchronous accesses
    # shape, dtype: of an array, to name its elements
    shape: tuple[int, ...] = ()
    dtype: np.dtype = _BYTE

    def __post_init__(self) -> None:
        size = self.data.size if self.tracked else 0
        self.written = np.full(size, self.initialised)
        self.writers = np.zeros(size, np.int32)
        self.readers: dict[int, list[Array]] = {}
        self.log: list[Accessed] = []
        self._unfenced: list[Accessed] = []

    def check(self, agent: Agent, access: Access, place: str, layout: Layout) -> None:
        """Checks a read or write against earlier ones, and records it."""
        spots, writes = layout.spots, access is not Access.LOAD
        visit = Visit(access, agent.program, place, agent.who)
        if not self.tracked:
            if writes:
                words = f"{self.name}, which may only be read, is {visit.text()}"
                self.faults.add(Verdict.INPUT_MODIFIED, MemoryFault("", visit, self.name, words=words))
            return
        self._compare(agent, visit, self.writers[spots], spots)
        if writes:
            for readers in chain.from_iterable(self.readers.values()):
                self._compare(agent, visit, readers[spots], spots)
        elif not (written := self.written[spots]).all():
            first = int(np.argmin(written))
            element = self._element(first + spots.start if isinstance(spots, slice) else int(spots[first]))
            self.faults.reads[UndefinedSource(UndefinedCause.UNWRITTEN, place, self.name + element)] = None
        unfenced = self.fenced and writes and not agent.asynchronous
        self.log.append(Accessed(agent.scope, agent.event, visit, unfenced))
        if self.log[-1].unfenced:
            self._unfenced.append(self.log[-1])
        if writes:
            self.writers[spots], self.written[spots] = len(self.log), True
            return
        slot = self.readers.setdefault(agent.slot, [])
        free = next((readers for readers in slot if not self._under_way(agent, readers[spots])), None)
        if free is None:
            slot.append(free := np.zeros(self.data.size, np.int32))
        free[spots] = len(self.log)

    def _under_way(self, agent: Agent, earlier: Array) -> bool:
        # Whether reads of the agent's cluster may still be under way.
        others = (self.log[number - 1] for number in _distinct(earlier))
        return any(other.scope is agent.scope and not other.event & agent.known for other in others)

    def fence(self, agent: Agent) -> None:
        """Orders what an agent is ordered after before later accesses of the copy engine and the tensor core."""
        for access in self._unfenced:
            access.unfenced = not access.event & agent.known
        self._unfenced = [access for access in self._unfenced if access.unfenced]

    def forget_accesses(self) -> None:
        """Drops what only later accesses need."""
        self.readers, self.log, self._unfenced = {}, [], []
        self.writers = np.zeros(0, np.int32)

    def _compare(self, agent: Agent, visit: Visit, earlier: Array, spots: slice | Array) -> None:
        for number in _distinct(earlier):
            other = self.log[number - 1]
            words = ""
            if other.scope is agent.scope and other.event & agent.known:
                if not (other.unfenced and agent.asynchronous):
                    continue
                words = f"{self.name} is {visit.text()} after it was {other.visit.text()}: {_UNFENCED}"
            at = int(np.flatnonzero(earlier == number)[0])
            element = self._element(at + spots.start if isinstance(spots, slice) else int(spots[at]))
            self.faults.add(Verdict.RACE, Race("", self.name, element, (visit, other.visit), words))

    def _element(self, byte: int) -> str:
        if not self.shape:
            return f" (byte {byte:,})"
        return format_element(self.shape, byte // self.dtype.itemsize)

    def unwritten(self) -> Array | None:
        """Returns a mask of an array's elements that were never written; None if all were."""
        written = self.written.reshape(*self.shape, self.dtype.itemsize).all(axis=-1)
        return None if written.all() else np.logical_not(written)


def _distinct(numbers: Array) -> list[int]:
    # Those that are not 0. Mostly all are the same.
    if not numbers.size or (numbers == numbers[0]).all():
        numbers = numbers[:1]
    return [number for number in np.unique(numbers).tolist() if number]


@dataclass(frozen=True, eq=False, slots=True)
class Ref:
    """A reference: some elements of a memory."""

    memory: Memory
    layout: Layout
    # the elements that were asked for, as text, if they are not all inside: those of `layout` are others
    outside: str = ""

    def at(self, layout: Layout, outside: str = "") -> "Ref":
        return Ref(self.memory, layout, self.outside or outside)

    def check(self, agent: Agent, access: Access, place: str) -> None:
        """Checks a read or write of the elements, and records it if they are those that were asked for."""
        if self.outside:
            visit = Visit(access, agent.program, place, agent.who)
            detail = MemoryFault("", visit, self.memory.name, self.outside)
            self.memory.faults.add(Verdict.OUT_OF_BOUNDS, detail)
        else:
            self.memory.check(agent, access, place, self.layout)
