"""Indices: integers that point at elements along an axis. Declared by `kt.indices`."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from ml_dtypes import iinfo

from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.core.failures import DeclarationError
from kerneltest.declare.kinds.base import (
    DEFAULT_FLOATS,
    ArgumentKind,
    ArrayArgument,
    Dtypes,
    EdgeValues,
    Namespace,
    Rng,
    Slot,
    XpArray,
    array_argument,
    register,
)
from kerneltest.declare.problems import hide_frames

_ROOM = 4  # elements of an array in which both ends and other positions fit
_SHARE_OF_ENDS = 0.4  # of the elements of a shorter array
_SHARE_IGNORED = 0.2
_SPREAD = 40_503  # a multiplier that scatters position codes over an axis


@hide_frames
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
        for name in leaf.dtypes:
            info = iinfo(parse_dtype(name))
            if leaf.sentinel is not None and not int(info.min) <= leaf.sentinel <= int(info.max):
                return f"{name} cannot represent ignore={leaf.sentinel}; choose a wider dtype"
        return ""

    def greatest(self, slot: Slot) -> int:
        return slot.end if self.includes_end else max(slot.end - 1, 0)

    def edge_values(self) -> Sequence[EdgeValues]:
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
        clipped = clip_to_integers(values, self.greatest(slot))
        return clipped if slot.sentinel is None else np.where(values == slot.sentinel, slot.sentinel, clipped)

    def finite_range(self, slot: Slot) -> tuple[float, float]:
        return 0, self.greatest(slot)

    def element(self, slot: Slot, number: float) -> float:
        return number % (self.greatest(slot) + 1)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns positions scattered over the axis, as far as the dtype reaches."""
        count = min(self.greatest(slot), int(np.iinfo(slot.dtype).max)) + 1
        return code * _SPREAD % count


# Permutations: indices that are all different. Declared by `kt.permutation`.


@hide_frames
def permutation(shape: str, *, into: str | int | None = None, dtype: str = "int32") -> ArrayArgument:
    """Declares indices that are all different.

        order=kt.permutation("n"), page_table=kt.permutation("b p", into="pages")

    Args:
      shape: of the indices themselves.
      into: the axis they point into. No two in the whole array are equal, so it must not have more elements than that
        axis (declare so with `where=`). None for the last axis itself, each row a permutation of it.
      dtype: an integer dtype, by name.
    """
    return array_argument(shape, dtype, "permutation", bounded_by=into)


@register("permutation")
class Permutation(ArgumentKind):
    """Indices that differ from each other in each row or, if `Slot.globally_unique`, in the whole array."""

    noun = "permutation"
    counts = True
    along_last_axis = True
    jointly_constrained = True
    distinct = True

    def edge_values(self) -> Sequence[EdgeValues]:
        return [EdgeValues(self.in_order), EdgeValues(self.in_reverse)]

    def in_order(self, slot: Slot, rng: Rng) -> Array:
        """Indices in ascending order from 0."""
        return slot.canonical()

    def in_reverse(self, slot: Slot, rng: Rng) -> Array:
        """Indices in descending order from the last."""
        return slot.repair(slot.end - 1 - slot.canonical().astype(np.int64))

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        if slot.globally_unique:
            return rng.permutation(max(slot.end, slot.size))[: slot.size].reshape(slot.shape)
        return rng.permuted(self.canonical(slot), axis=-1)

    def canonical(self, slot: Slot) -> Array:
        return np.broadcast_to(np.arange(slot.shape[-1]), slot.shape)

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns the ranks of each row or, if globally unique, `values` with repeated ones replaced by unused ones."""
        if not slot.globally_unique:
            return np.asarray(np.argsort(np.argsort(values, axis=-1, kind="stable"), axis=-1, kind="stable"))
        if slot.size > slot.end:
            raise DeclarationError(
                f"{slot.size} different indices do not fit into a length of {slot.end}; exclude it with where="
            )
        flat = np.array(values, np.int64).reshape(-1)
        first = np.zeros(flat.size, bool)
        first[np.unique(flat, return_index=True)[1]] = True
        valid = first & (flat >= 0) & (flat < slot.end)
        unused = np.setdiff1d(np.arange(slot.end), flat[valid])
        flat[~valid] = unused[: int((~valid).sum())]
        return flat.reshape(slot.shape)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        return flat_index(position, slot.shape) if slot.globally_unique else position[-1]


# One-hot rows: zeros and a single one. Declared by `kt.one_hot`.


@hide_frames
def one_hot(shape: str, dtypes: Dtypes = DEFAULT_FLOATS) -> ArrayArgument:
    """Declares rows, along the last axis, of zeros and a single one.

    Args:
      shape: as for `array`, as in `"n classes"`.
      dtypes: as for `array`.
    """
    return array_argument(shape, dtypes, "one_hot")


@register("one_hot")
class OneHot(ArgumentKind):
    """Rows of zeros and a single one."""

    noun = "one-hot"
    along_last_axis = True
    jointly_constrained = True

    def edge_values(self) -> Sequence[EdgeValues]:
        return [EdgeValues(self.ends), EdgeValues(self.ends_reversed)]

    def ends(self, slot: Slot, rng: Rng) -> Array:
        """The one is first, last, second, or second to last."""
        last = max(slot.end - 1, 0)
        hot = np.resize(np.clip([0, last, 1, last - 1], 0, last), slot.shape[:-1])
        return np.asarray(np.arange(slot.shape[-1]) == hot[..., None]).astype(slot.dtype)

    def ends_reversed(self, slot: Slot, rng: Rng) -> Array:
        """The one is last, first, second to last, or second."""
        return self.ends(slot, rng)[..., ::-1]

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns random numbers, the greatest of which becomes the one."""
        return rng.random(slot.shape)

    def repair(self, slot: Slot, values: Array) -> Array:
        if not slot.shape[-1]:
            return np.zeros(slot.shape)
        return np.asarray(np.arange(slot.shape[-1]) == np.argmax(np.asarray(values, np.float64), axis=-1)[..., None])

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns rows whose one moves on by one element from row to row."""
        length = max(slot.shape[-1], 1)
        return position[-1] == flat_index(position, slot.shape) // length % length
