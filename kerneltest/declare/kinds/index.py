"""Indices: integers that point at elements along an axis. Declared by `kt.indices`."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from ml_dtypes import iinfo

from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.declare.kinds.array_argument import array_argument
from kerneltest.declare.kinds.base import (
    ArgumentKind,
    ArrayArgument,
    EdgeValues,
    Namespace,
    Rng,
    Slot,
    XpArray,
    register,
)

_ROOM = 4  # elements of an array in which both ends and other positions fit
_SHARE_OF_ENDS = 0.4  # of the elements of a shorter array
_SHARE_IGNORED = 0.2
_SPREAD = 40_503  # a multiplier that scatters position codes over an axis


def indices(shape: str, *, into: str | int, ignore: int | None = None, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that point at elements along an axis, its first and last element among them.

        labels=kt.indices("b", into="classes", ignore=-100)

    Args:
      shape: of the indices themselves, as in `"q"`.
      into: the axis they point into: a dim, a length, or products and sums such as `"pages*size"`; values go from 0 to
        its length - 1.
      ignore: a further integer that stands for no element, as in padded labels: none, one, some and all elements are.
      dtype: an integer dtype, by name.
    """
    is_integer = ignore is None or (isinstance(ignore, int) and not isinstance(ignore, bool))
    problem = "" if is_integer else f"ignore= is an integer such as -100, not {ignore!r}"
    return replace(array_argument(shape, dtype, "index", bounded_by=into, problem=problem), sentinel=ignore)


def clip_to_integers(values: Array, most: int) -> Array:
    """Returns integers (int64) from 0 to `most` near some numbers; NaN becomes 0."""
    wide = np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=most, neginf=0)
    return np.clip(wide, 0, most).astype(np.int64)


def flat_index(position: Sequence[XpArray], shape: Sequence[int]) -> XpArray:
    """Returns the index in the flattened array of a position, which has an index along each axis of `shape`."""
    flat = position[0]
    for index, length in zip(position[1:], shape[1:], strict=True):
        flat = flat * length + index
    return flat


@register("index")
class Index(ArgumentKind):
    """Integers from 0 to `Slot.end` - 1, each by itself; a subclass may include `Slot.end`."""

    noun = "index"
    counts = True
    pointwise = True

    def find_mistake(self, leaf: ArrayArgument) -> str:
        """Checks that every dtype holds the sentinel."""
        for name in leaf.dtypes:
            info = iinfo(parse_dtype(name))
            if leaf.sentinel is not None and not int(info.min) <= leaf.sentinel <= int(info.max):
                return f"{name} cannot represent ignore={leaf.sentinel}; choose a wider dtype"
        return ""

    def greatest(self, slot: Slot) -> int:
        """Returns the greatest value."""
        return slot.end if self.includes_end else max(slot.end - 1, 0)

    def edge_values(self) -> Sequence[EdgeValues]:
        """Returns the ends of the range, from either end, and elements that are ignored."""
        return [
            EdgeValues(self.ends),
            EdgeValues(self.ends_reversed),
            EdgeValues(self.all_ignored, lambda slot: slot.sentinel is not None and slot.size > 0),
            EdgeValues(self.one_ignored, lambda slot: slot.sentinel is not None and slot.size > 1),
        ]

    def all_ignored(self, slot: Slot, rng: Rng) -> Array:
        """Every index is the sentinel that stands for no element."""
        return np.full(slot.shape, slot.sentinel).astype(slot.dtype)

    def one_ignored(self, slot: Slot, rng: Rng) -> Array:
        """One index is the sentinel that stands for no element."""
        values = self._positions(slot, rng)
        values.reshape(-1)[rng.integers(slot.size)] = slot.sentinel
        return slot.repair(values)

    def ends(self, slot: Slot, rng: Rng) -> Array:
        """The least and the greatest position, and the positions next to them."""
        most = self.greatest(slot)
        return slot.repair(np.resize(np.clip([0, most, 1, most - 1], 0, most), slot.shape))

    def ends_reversed(self, slot: Slot, rng: Rng) -> Array:
        """The greatest and the least position, and the positions next to them."""
        return slot.repair(self.greatest(slot) - self.ends(slot, rng).astype(np.int64))

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns random positions, a fifth of them ignored if there is a sentinel."""
        positions = self._positions(slot, rng)
        if slot.sentinel is None:
            return positions
        return np.where(rng.random(slot.shape) < _SHARE_IGNORED, slot.sentinel, positions)

    def _positions(self, slot: Slot, rng: Rng) -> Array:
        """Returns random positions. The first is the least and the last the greatest, if there is room for others."""
        most = self.greatest(slot)
        flat = rng.integers(0, most + 1, slot.shape).reshape(-1)
        if flat.size >= _ROOM:
            flat[-1], flat[0] = most, 0
        else:
            flat = np.where(rng.random(flat.size) < _SHARE_OF_ENDS, rng.choice((0, most), flat.size), flat)
        return flat.reshape(slot.shape)

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns `values` clipped to the range, except for the sentinel."""
        clipped = clip_to_integers(values, self.greatest(slot))
        return clipped if slot.sentinel is None else np.where(values == slot.sentinel, slot.sentinel, clipped)

    def finite_range(self, slot: Slot) -> tuple[float, float]:
        """Returns the least and the greatest position."""
        return 0, self.greatest(slot)

    def element(self, slot: Slot, number: float) -> float:
        """Returns the number, wrapped around the range."""
        return number % (self.greatest(slot) + 1)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns positions scattered over the axis, as far as the dtype reaches."""
        count = min(self.greatest(slot), int(np.iinfo(slot.dtype).max)) + 1
        return code * _SPREAD % count
