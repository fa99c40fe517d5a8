"""The base of kinds that divide an axis into parts: sizes, offsets and segment ids."""

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import DeclarationError
from kerneltest.declare.kinds.base import (
    ArgumentKind,
    ArrayArgument,
    EdgeValues,
    Namespace,
    Rng,
    Slot,
    XpArray,
    array_argument,
    register,
)
from kerneltest.declare.kinds.index import Index, clip_to_integers, least_problem
from kerneltest.declare.problems import hide_frames


def parts_argument(shape: str, role: str, of: str | int | None, up_to: str | int | None, dtype: str) -> ArrayArgument:
    """Returns an argument that divides all of an axis (`of`) or some of it (`up_to`)."""
    problem = ""
    if (of is None) == (up_to is None):
        problem = "give either of=, the length that the parts add up to, or up_to=, the most they may add up to"
    bounded_by = up_to if of is None else of
    return array_argument(shape, dtype, role, bounded_by=bounded_by, exhaustive=of is not None, problem=problem)


class Parts(ArgumentKind):
    """Consecutive parts of an axis, along the last axis of the argument."""

    counts = True
    along_last_axis = True
    jointly_constrained = True
    # the parts of an argument that is not exhaustive may add up to less than the axis
    may_leave_rest: ClassVar[bool] = True

    def count(self, slot: Slot) -> int:
        return slot.shape[-1]

    def total(self, slot: Slot) -> int:
        return slot.end

    def block(self, slot: Slot) -> int:
        return slot.end_block

    def arrange(self, slot: Slot, sizes: Array) -> Array:
        """Returns the argument's values for the sizes of the parts in each row (int64)."""
        raise NotImplementedError

    def from_sizes(self, slot: Slot, sizes: Array) -> Array:
        """Returns the argument's values for the sizes of the parts (int64): one row of them, or one for each row."""
        rows = np.broadcast_to(sizes, (*slot.shape[:-1], sizes.shape[-1]))
        return slot.repair(self.arrange(slot, rows)[..., : slot.shape[-1]])

    def check_total(self, slot: Slot) -> None:
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
        """Returns empty parts, and parts that end next to the ends of blocks."""

        def having(least: int) -> Callable[[Slot], bool]:
            return lambda slot: slot.size > 0 and self.count(slot) >= least

        return [
            EdgeValues(self.first_takes_all, having(1)),
            EdgeValues(self.last_takes_all, having(1)),
            EdgeValues(self.empty_parts, having(2)),
            EdgeValues(self.parts_beside_blocks, having(2)),
        ]

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


# Lengths: integers that count elements along an axis. Declared by `kt.lengths`.


@hide_frames
def lengths(shape: str, *, up_to: str | int, least: int = 0, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that count elements along an axis, none and all of them among them.

        count=kt.lengths("b", up_to="n"), steps=kt.lengths("", up_to=8, least=1)

    Args:
      shape: of the lengths themselves, as in `"b"`.
      up_to: the axis whose elements they count, as `into` of `indices`, or a number; values go up to it.
      least: the least count.
      dtype: an integer dtype, by name.
    """
    return array_argument(shape, dtype, "length", bounded_by=up_to, problem=least_problem(least), least=least)


@register("length")
class Length(Index):
    """Integers from `Slot.least` to `Slot.end`, each by itself."""

    noun = "length"
    includes_end = True

    def longest_sums(self, slot: Slot) -> Array:
        return slot.repair(np.full(slot.shape, slot.end))


# Offsets: the starts of groups, and the end of the last one. Declared by `kt.offsets`.


@hide_frames
def offsets(
    shape: str, *, of: str | int | None = None, up_to: str | int | None = None, dtype: str = "int32"
) -> ArrayArgument:
    """Declares the starts of groups and the end of the last one: integers that ascend from 0 along the last axis.

        cu_seqlens=kt.offsets("b+1", of="tokens")

    Args:
      shape: of the offsets themselves; one more than there are groups, as in `"b+1"`.
      of: the end of the last group: a dim, a length, or products and sums of these.
      up_to: instead, its greatest end.
      dtype: an integer dtype, by name.
    """
    return parts_argument(shape, "offsets", of, up_to, dtype)


@register("offsets")
class Offsets(Parts):
    """Starts of groups, and the end of the last group."""

    noun = "offsets"
    includes_end = True

    def count(self, slot: Slot) -> int:
        return slot.shape[-1] - 1

    def arrange(self, slot: Slot, sizes: Array) -> Array:
        """Returns the sums of the sizes before each group and of all of them."""
        starts = np.zeros((*sizes.shape[:-1], 1), np.int64)
        return np.concatenate([starts, np.cumsum(sizes, axis=-1)], axis=-1)

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns the values clipped and sorted, with 0 first and, if exhaustive, the end last."""
        self.check_total(slot)
        ends = np.sort(clip_to_integers(values, slot.end), axis=-1)
        if slot.exhaustive:
            ends[..., -1:] = slot.end
        ends[..., :1] = 0
        return ends

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        return self.end_of_equal_part(slot, position[-1])


# Partitions: the sizes of groups. Declared by `kt.partition`.


@hide_frames
def partition(
    shape: str, *, of: str | int | None = None, up_to: str | int | None = None, dtype: str = "int32"
) -> ArrayArgument:
    """Declares sizes of groups, along the last axis: integers from 0 on that add up to a length.

    The plan includes equal groups, empty groups, one group that has everything, and groups that end next to the ends of
    blocks.

    Args:
      shape: of the sizes themselves, as in `"g"`.
      of: the length that they add up to: a dim, a length, or products and sums of these.
      up_to: instead, the most that they may add up to.
      dtype: an integer dtype, by name.
    """
    return parts_argument(shape, "partition", of, up_to, dtype)


@register("partition")
class Partition(Parts):
    """Sizes of groups."""

    noun = "partition"
    includes_end = True

    def arrange(self, slot: Slot, sizes: Array) -> Array:
        return sizes

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns sizes cut off at the total; the last one of an exhaustive partition takes the rest."""
        self.check_total(slot)
        ends = np.minimum(np.cumsum(clip_to_integers(values, slot.end), axis=-1), slot.end)
        if slot.exhaustive:
            ends[..., -1:] = slot.end
        return np.diff(ends, axis=-1, prepend=0)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        number = position[-1]
        return self.end_of_equal_part(slot, number + 1) - self.end_of_equal_part(slot, number)


# Segment ids: the segment that each element belongs to. Declared by `kt.segment_ids`.


@hide_frames
def segment_ids(shape: str, *, up_to: str | int | None = None, dtype: str = "int32") -> ArrayArgument:
    """Declares the segment that each element of the last axis belongs to: integers that ascend along it, from 0 on.

    Args:
      shape: of the ids themselves, as in `"b s"`.
      up_to: the greatest number of segments: a dim, a length, or products and sums of these; None for as many as there
        are elements.
      dtype: an integer dtype, by name.
    """
    return array_argument(shape, dtype, "segments", bounded_by=up_to)


@register("segments")
class Segments(Parts):
    """The id of each element's segment."""

    noun = "segments"
    may_leave_rest = False

    def count(self, slot: Slot) -> int:
        return min(slot.end, slot.shape[-1])

    def total(self, slot: Slot) -> int:
        return slot.shape[-1]

    def block(self, slot: Slot) -> int:
        return slot.block

    def arrange(self, slot: Slot, sizes: Array) -> Array:
        """Returns, for each element, the number of segments that end before it."""
        ends = np.cumsum(sizes, axis=-1)
        return np.asarray((np.arange(slot.shape[-1])[:, None] >= ends[..., None, :]).sum(axis=-1))

    def repair(self, slot: Slot, values: Array) -> Array:
        return np.sort(clip_to_integers(values, max(slot.end - 1, 0)), axis=-1)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        return position[-1] * self.count(slot) // max(slot.shape[-1], 1)
