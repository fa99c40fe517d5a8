"""Segment ids: the segment that each element belongs to. Declared by `kt.segment_ids`."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.kinds.array_argument import array_argument
from kerneltest.declare.kinds.base import ArrayArgument, Namespace, Slot, XpArray, register
from kerneltest.declare.kinds.index import clip_to_integers
from kerneltest.declare.kinds.parts import Parts


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
        """Returns the number of segments."""
        return min(slot.end, slot.shape[-1])

    def total(self, slot: Slot) -> int:
        """Returns the length of the argument's own last axis."""
        return slot.shape[-1]

    def block(self, slot: Slot) -> int:
        """Returns the kernel's block length along the argument's own last axis."""
        return slot.block

    def arrange(self, slot: Slot, sizes: Array) -> Array:
        """Returns, for each element, the number of segments that end before it."""
        ends = np.cumsum(sizes, axis=-1)
        return np.asarray((np.arange(slot.shape[-1])[:, None] >= ends[..., None, :]).sum(axis=-1))

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns the values clipped and sorted."""
        return np.sort(clip_to_integers(values, max(slot.end - 1, 0)), axis=-1)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns the ids of segments of equal size."""
        return position[-1] * self.count(slot) // max(slot.shape[-1], 1)
