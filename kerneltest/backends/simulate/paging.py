"""Buffers too large to hold: pages of what is written, and inputs that follow from an element's offset."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerneltest.backends.simulate.memory import Buffer, Visitors, garbage
from kerneltest.core.dtypes import Array

_PAGE = 256  # elements
_ENOUGH = 8  # programs, of which all store further on than the one before


@dataclass(eq=False, slots=True)
class PagedBuffer(Buffer):
    """A buffer of which only the pages that are touched lie in memory, one after another in `data`.

    Attributes:
      length: in elements.
      read: from offsets, int64, to what stands there before the first program; None for an output.
      pages: the numbers of the pages in memory, in the order in which they were touched.
      low, high: by program, the least and the greatest offset that it has stored to, int64 (programs,); where it has
        stored to nothing, the greatest integer and -1.
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

    def take(self, at: Array, offset: Array) -> Array:
        """What stands at some elements; of an input that nobody writes to it is not kept."""
        if self.read is not None and not self.writable:
            return self.read(offset)
        return self.data[at]

    def places(self, offset: Array) -> Array:
        """Where in `data` elements lie; their pages are brought in."""
        if self.read is not None and not self.writable:
            return offset
        numbers, inverse = np.unique(offset // _PAGE, return_inverse=True)
        new = [number for number in numbers.tolist() if number not in self._frames]
        if new:
            self._bring(np.array(new, np.int64))
        frames = np.array([self._frames[number] for number in numbers.tolist()], np.int64)
        return np.asarray(frames[inverse].reshape(offset.shape) * _PAGE + offset % _PAGE)

    def written_offsets(self) -> Array:
        """The offsets of elements that a program has stored to, ascending."""
        at = np.flatnonzero(self.writers.last >= 0)
        offsets = self.pages[at // _PAGE] * _PAGE + at % _PAGE
        return np.sort(offsets)

    def stored(self, offset: Array, inside: Array) -> None:
        """Notes how far programs have stored; of elements of each program, (programs, ...)."""
        rows = offset.shape[0]
        low = np.where(inside, offset, np.iinfo(np.int64).max).reshape(rows, -1).min(axis=1)
        high = np.where(inside, offset, -1).reshape(rows, -1).max(axis=1)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)

    def beyond(self, grid: tuple[int, int, int], programs: Array) -> Array:
        """Whether the first element and the last one are written by no program, as flat offsets of those.

        That is known where both the first and the last program have run, and all that have store further on the higher
        their number is, counted with the first axis of the grid as the fastest or as the slowest.
        """
        nobody = np.zeros(0, np.int64)
        x, y, z = grid
        if self.low is None or self.high is None or not {0, x * y * z - 1} <= set(programs.tolist()):
            return nobody
        slowest = (programs % x * y + programs // x % y) * z + programs // (x * y)
        for order in (np.argsort(programs), np.argsort(slowest)):
            low, high = self.low[order], self.high[order]
            if len(order) >= _ENOUGH and (high >= 0).all() and (np.diff(low) > 0).all() and (np.diff(high) > 0).all():
                ends = [(0, low[0] > 0), (self.length - 1, high[-1] < self.length - 1)]
                return np.array([offset for offset, missed in ends if missed], np.int64)
        return nobody

    def _bring(self, numbers: Array) -> None:
        self._frames.update(
            zip(numbers.tolist(), range(len(self._frames), len(self._frames) + numbers.size), strict=True)
        )
        self.pages = np.concatenate([self.pages, numbers])
        count = numbers.size * _PAGE
        if self.read is None:
            fresh: Any = np.full(count, garbage(self.data.dtype), self.data.dtype)
        else:
            offset = (numbers[:, None] * _PAGE + np.arange(_PAGE)).reshape(-1)
            fresh = self.read(np.minimum(offset, self.length - 1))
        self.data = np.concatenate([self.data, fresh])
        self.written = np.concatenate([self.written, np.full(count, not self.output)])
        self.writers, self.readers = (_longer(each, count) for each in (self.writers, self.readers))
        if self.undefined is not None:
            self.undefined = np.concatenate([self.undefined, np.zeros(count, bool)])


def _longer(visitors: Visitors, count: int) -> Visitors:
    more = Visitors.nobody(count)
    return Visitors(
        np.concatenate([visitors.first, more.first]),
        np.concatenate([visitors.last, more.last]),
        np.concatenate([visitors.access, more.access]),
    )
