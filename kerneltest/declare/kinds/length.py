"""Lengths: integers that count elements along an axis. Declared by `kt.lengths`."""

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.kinds.array_argument import array_argument
from kerneltest.declare.kinds.base import ArrayArgument, Slot, register
from kerneltest.declare.kinds.index import Index


def lengths(shape: str, *, up_to: str | int, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that count elements along an axis, 0 and all of them among them.

    Args:
      shape: of the lengths themselves, as in `"b"`.
      up_to: the axis whose elements they count, as `into` of `indices`; values go from 0 to its length.
      dtype: an integer dtype, by name.
    """
    return array_argument(shape, dtype, "length", bounded_by=up_to)


@register("length")
class Length(Index):
    """Integers from 0 to `Slot.end`, each by itself."""

    noun = "length"
    includes_end = True

    def longest_sums(self, slot: Slot) -> Array:
        """Returns full lengths."""
        return slot.repair(np.full(slot.shape, slot.end))
