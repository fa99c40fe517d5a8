"""Offsets: the starts of groups, and the end of the last one. Declared by `kt.offsets`."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.kinds.base import ArrayArgument, Namespace, Slot, XpArray, register
from kerneltest.declare.kinds.index import clip_to_integers
from kerneltest.declare.kinds.parts import Parts, parts_argument


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
        """Returns the number of groups, one less than there are offsets."""
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
        """Returns the starts of groups of equal size."""
        return self.end_of_equal_part(slot, position[-1])
