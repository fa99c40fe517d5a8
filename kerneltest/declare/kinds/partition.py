"""Partitions: the sizes of groups. Declared by `kt.partition`."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.kinds.base import ArrayArgument, Namespace, Slot, XpArray, register
from kerneltest.declare.kinds.index import clip_to_integers
from kerneltest.declare.kinds.parts import Parts, parts_argument


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
        """Returns the sizes."""
        return sizes

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns sizes cut off at the total; the last one of an exhaustive partition takes the rest."""
        self.check_total(slot)
        ends = np.minimum(np.cumsum(clip_to_integers(values, slot.end), axis=-1), slot.end)
        if slot.exhaustive:
            ends[..., -1:] = slot.end
        return np.diff(ends, axis=-1, prepend=0)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns sizes that are equal to within one element."""
        number = position[-1]
        return self.end_of_equal_part(slot, number + 1) - self.end_of_equal_part(slot, number)
