"""The base of kinds that divide an axis into parts: sizes, offsets and segment ids."""

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import DeclarationError
from kerneltest.declare.kinds.array_argument import array_argument
from kerneltest.declare.kinds.base import ArgumentKind, ArrayArgument, EdgeValues, Rng, Slot, XpArray


def parts_argument(shape: str, role: str, of: str | int | None, up_to: str | int | None, dtype: str) -> ArrayArgument:
    """Returns an argument that divides all of an axis (`of`) or some of it (`up_to`)."""
    problem = ""
    if (of is None) == (up_to is None):
        problem = "give either of=, the length that the parts add up to, or up_to=, the most they may add up to"
    bounded_by = up_to if of is None else of
    return array_argument(shape, dtype, role, bounded_by=bounded_by, exhaustive=of is not None, problem=problem)


class Parts(ArgumentKind):
    """Consecutive parts of an axis, along the last axis of the argument.

    Attributes:
      may_leave_rest: the parts of an argument that is not exhaustive may add up to less than the axis.
    """

    counts = True
    along_last_axis = True
    jointly_constrained = True
    may_leave_rest: ClassVar[bool] = True

    def count(self, slot: Slot) -> int:
        """Returns the number of parts."""
        return slot.shape[-1]

    def total(self, slot: Slot) -> int:
        """Returns the number of elements to divide."""
        return slot.end

    def block(self, slot: Slot) -> int:
        """Returns the kernel's block length along the axis that is divided."""
        return slot.end_block

    def arrange(self, slot: Slot, sizes: Array) -> Array:
        """Returns the argument's values for the sizes of the parts in each row (int64)."""
        raise NotImplementedError

    def from_sizes(self, slot: Slot, sizes: Array) -> Array:
        """Returns the argument's values for the sizes of the parts (int64): one row of them, or one for each row."""
        rows = np.broadcast_to(sizes, (*slot.shape[:-1], sizes.shape[-1]))
        return slot.repair(self.arrange(slot, rows)[..., : slot.shape[-1]])

    def check_total(self, slot: Slot) -> None:
        """Raises ValueError if there are no parts to divide the elements among."""
        if slot.exhaustive and slot.end and self.count(slot) <= 0:
            raise DeclarationError(f"no parts add up to {slot.end}; exclude such lengths with where=")

    def end_of_equal_part(self, slot: Slot, number: XpArray) -> XpArray:
        """Returns where the part before part `number` ends if all parts have the same size."""
        return number * self.total(slot) // max(self.count(slot), 1)

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns parts with random ends; half of the time they leave a rest if they may."""
        count, total = self.count(slot), self.total(slot)
        if count <= 0:
            return np.zeros(slot.shape, np.int64)
        if self.may_leave_rest and not slot.exhaustive and rng.random() < 0.5:
            total = int(rng.integers(0, total + 1))
        cuts = np.sort(rng.integers(0, total + 1, (*slot.shape[:-1], count + 1)), axis=-1)
        cuts[..., 0], cuts[..., -1] = 0, total
        return self.from_sizes(slot, np.diff(cuts, axis=-1))

    def canonical(self, slot: Slot) -> Array:
        """Returns parts of equal size, to within one element."""
        count, total = self.count(slot), self.total(slot)
        even = np.diff(np.linspace(0, total, count + 1).astype(np.int64)) if count > 0 else np.zeros(0, np.int64)
        return self.from_sizes(slot, even)

    def edge_values(self) -> Sequence[EdgeValues]:
        """Returns equal parts, empty parts, and parts that end next to the ends of blocks."""

        def having(least: int) -> Callable[[Slot], bool]:
            return lambda slot: slot.size > 0 and self.count(slot) >= least

        return [
            EdgeValues(self.even_parts, having(1)),
            EdgeValues(self.first_takes_all, having(1)),
            EdgeValues(self.last_takes_all, having(1)),
            EdgeValues(self.empty_parts, having(2)),
            EdgeValues(self.parts_beside_blocks, having(2)),
        ]

    def even_parts(self, slot: Slot, rng: Rng) -> Array:
        """Groups of equal size, to within one element."""
        return self.canonical(slot)

    def first_takes_all(self, slot: Slot, rng: Rng) -> Array:
        """Everything is in the first group, and the others are empty."""
        sizes = np.zeros(self.count(slot), np.int64)
        sizes[0] = self.total(slot)
        return self.from_sizes(slot, sizes)

    def last_takes_all(self, slot: Slot, rng: Rng) -> Array:
        """Everything is in the last group, and the others are empty."""
        sizes = np.zeros(self.count(slot), np.int64)
        sizes[-1] = self.total(slot)
        return self.from_sizes(slot, sizes)

    def empty_parts(self, slot: Slot, rng: Rng) -> Array:
        """Every other group is empty."""
        sizes = np.zeros(self.count(slot), np.int64)
        sizes[1::2] = np.diff(np.linspace(0, self.total(slot), len(sizes[1::2]) + 1).astype(np.int64))
        return self.from_sizes(slot, sizes)

    def parts_beside_blocks(self, slot: Slot, rng: Rng) -> Array:
        """Groups end one element before or after the end of a block."""
        total, block = self.total(slot), self.block(slot)
        steps = zip(range(1, self.count(slot)), itertools.cycle((1, -1)), strict=False)
        cuts = [number * block + step for number, step in steps]
        return self.from_sizes(slot, np.diff(np.minimum(np.maximum.accumulate([0, *cuts, total]), total)))
