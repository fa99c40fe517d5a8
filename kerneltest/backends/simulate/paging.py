"""Buffers too large to allocate: pages of the elements that are accessed, and inputs computed from their offsets."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kerneltest.backends.simulate.buffers import SimulatedBuffer, uninitialised_value
from kerneltest.core.dtypes import Array

_PAGE = 256  # elements
_ENOUGH = 8  # programs with ascending stores, from which the programs between them are inferred


@dataclass(eq=False, slots=True)
class PagedBuffer(SimulatedBuffer):
    """A buffer of which only the accessed pages are in memory, one after another in `data`.

    Attributes:
      length: the length in elements.
      read: returns the elements' initial values, given their offsets, int64; None for an output.
      pages: the numbers of the pages in memory, in the order in which they were first accessed.
      low, high: the smallest and the largest offset that each program has stored to, int64 (programs,): the largest
        integer and -1 for a program that has stored nothing. None before the first store.
    """

    length: int = 0
    read: Callable[[Array], Array] | None = None
    pages: Array = field(default_factory=lambda: np.zeros(0, np.int64))
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
        x, y, z = grid
        if self.low is None or self.high is None or not {0, x * y * z - 1} <= set(programs.tolist()):
            return unknown
        slowest = (programs % x * y + programs // x % y) * z + programs // (x * y)
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
