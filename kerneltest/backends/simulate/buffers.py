"""Buffers with their true lengths, and the state of each element: its writers, its readers, whether it is defined."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.trace.partial_arrays import format_element

_NO_PROGRAM = np.iinfo(np.int64).max


@dataclass(slots=True)
class Accessors:
    """The programs that accessed each element of a buffer in one way, reading or writing.

    Attributes:
      first, last: the smallest and the largest of their linear ids, by element.
      access: the number of the latest access, by element.
    """

    first: Array
    last: Array
    access: Array

    @classmethod
    def empty(cls, size: int) -> "Accessors":
        """Returns the state of a buffer that no program has accessed."""
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
        return Accessors(
            np.concatenate([self.first, more.first]),
            np.concatenate([self.last, more.last]),
            np.concatenate([self.access, more.access]),
        )


@dataclass(eq=False, slots=True)
class SimulatedBuffer:
    """One array in memory.

    Attributes:
      name: the kernel's name for it.
      shape: the array's shape.
      data: its elements, flat.
      output: whether the kernel must write it; it starts uninitialised.
      writable: whether the kernel stores to it.
      written: whether each element has been written; empty for a buffer that is not writable.
      undefined: whether each element's value is undefined; None if all are defined.
      writers, readers: the programs that wrote and read each element; empty for a buffer that is not writable.
      race_values: the values that programs store to each raced element, by its flat offset.
      atomically_updated: whether an atomic operation has updated it, so that no element is final before all programs
        have run.
    """

    name: str
    shape: tuple[int, ...]
    data: Array
    output: bool
    writable: bool = False
    written: Array = field(init=False)
    undefined: Array | None = None
    writers: Accessors = field(init=False)
    readers: Accessors = field(init=False)
    race_values: dict[int, list[Any]] = field(default_factory=dict)
    atomically_updated: bool = False

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discards the record of reads and writes."""
        size = self.data.size if self.writable else 0
        self.written = np.full(size, not self.output)
        self.writers, self.readers = Accessors.empty(size), Accessors.empty(size)

    @property
    def size(self) -> int:
        """The length in elements."""
        return self.data.size

    def positions(self, offset: Array) -> Array:
        """Returns the positions in `data` of the elements at some offsets within the buffer."""
        return offset

    def gather(self, positions: Array, offset: Array) -> Array:
        """Returns the values of some elements, given their positions in `data` and their offsets."""
        return self.data[positions]

    def note_stored_range(self, offset: Array, inside: Array) -> None:
        """Notes the elements that programs store to, (programs, ...). Only a `PagedBuffer` needs that."""

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
