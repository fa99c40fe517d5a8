"""Indices: integers that point at elements along an axis. Declared by `kt.indices`."""

from collections.abc import Sequence

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
def indices(
    shape: str, *, into: str | int, ignore: int | None = None, least: int = 0, dtype: str = "int32"
) -> ArrayArgument:
    """Declares integers that point at elements along an axis, its first and last element among them.

        labels=kt.indices("b", into="classes", ignore=-100)

    Args:
      shape: of the indices themselves, as in `"q"`.
      into: the axis they point into: a dim, a length, or products and sums such as `"pages*size"`; values go from 0 to
        its length - 1.
      ignore: a further integer that stands for no element, as in padded labels: none, one, some and all elements are.
      least: the least position, as in `least=1` where position 0 is a blank.
      dtype: an integer dtype, by name.
    """
    problem = _problem(ignore) or least_problem(least)
    return array_argument(shape, dtype, "index", bounded_by=into, problem=problem, sentinel=ignore, least=least)


def _problem(ignore: object) -> str:
    is_integer = ignore is None or (isinstance(ignore, int) and not isinstance(ignore, bool))
    return "" if is_integer else f"ignore= is an integer such as -100, not {ignore!r}"


def least_problem(least: object) -> str:
    """Returns the mistake in a least position or count; "" if there is none."""
    is_natural = isinstance(least, int) and not isinstance(least, bool) and least >= 0
    return "" if is_natural else f"least= is an integer from 0 on, not {least!r}"


def clip_to_integers(values: Array, most: int, least: int = 0) -> Array:
    """Returns integers (int64) from `least` to `most` near some numbers; NaN becomes the least one."""
    wide = np.nan_to_num(np.asarray(values, np.float64), nan=least, posinf=most, neginf=least)
    return np.clip(wide, least, most).astype(np.int64)


def flat_index(position: Sequence[XpArray], shape: Sequence[int]) -> XpArray:
    """Returns the index in the flattened array of a position, which has an index along each axis of `shape`."""
    flat = position[0]
    for index, length in zip(position[1:], shape[1:], strict=True):
        flat = flat * length + index
    return flat


class Positions(ArgumentKind):
    """Integers that point at elements, some of which may be a sentinel that stands for none."""

    counts = True

    def find_mistake(self, leaf: ArrayArgument) -> str:
        for name in leaf.dtypes:
            info = iinfo(parse_dtype(name))
            if leaf.sentinel is not None and not int(info.min) <= leaf.sentinel <= int(info.max):
                return f"{name} cannot represent ignore={leaf.sentinel}; choose a wider dtype"
        return ""

    def edge_values(self) -> Sequence[EdgeValues]:
        return [
            EdgeValues(self.all_ignored, lambda slot: slot.sentinel is not None and slot.size > 0),
            EdgeValues(self.one_ignored, lambda slot: slot.sentinel is not None and slot.size > 1),
        ]

    def all_ignored(self, slot: Slot, rng: Rng) -> Array:
        """Every index is the sentinel that stands for no element."""
        return np.full(slot.shape, slot.sentinel).astype(slot.dtype)

    def one_ignored(self, slot: Slot, rng: Rng) -> Array:
        """One index is the sentinel that stands for no element."""
        values = np.array(self.positions(slot, rng))
        values.reshape(-1)[rng.integers(slot.size)] = slot.sentinel
        return slot.repair(values)

    def positions(self, slot: Slot, rng: Rng) -> Array:
        """Returns random positions, still to be repaired."""
        raise NotImplementedError

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns random positions, a fifth of them ignored if there is a sentinel."""
        positions = self.positions(slot, rng)
        if slot.sentinel is None:
            return positions
        return np.where(rng.random(slot.shape) < _SHARE_IGNORED, slot.sentinel, positions)


@register("index")
class Index(Positions):
    """Integers from `Slot.least` to `Slot.end` - 1, each by itself; a subclass may include `Slot.end`."""

    noun = "index"
    pointwise = True

    def greatest(self, slot: Slot) -> int:
        greatest = slot.end if self.includes_end else max(slot.end - 1, 0)
        if greatest < slot.least and slot.size:
            raise DeclarationError(
                f"no number from {slot.least} on is in a length of {slot.end}; exclude it with where="
            )
        return greatest

    def edge_values(self) -> Sequence[EdgeValues]:
        return [EdgeValues(self.ends), EdgeValues(self.ends_reversed), *super().edge_values()]

    def ends(self, slot: Slot, rng: Rng) -> Array:
        """The least and the greatest position, and the positions next to them."""
        most = self.greatest(slot)
        return slot.repair(np.resize([slot.least, most, slot.least + 1, most - 1], slot.shape))

    def ends_reversed(self, slot: Slot, rng: Rng) -> Array:
        """The greatest and the least position, and the positions next to them."""
        return slot.repair(slot.least + self.greatest(slot) - self.ends(slot, rng).astype(np.int64))

    def positions(self, slot: Slot, rng: Rng) -> Array:
        """Returns random positions. The first is the least and the last the greatest, if there is room for others."""
        least, most = slot.least, self.greatest(slot)
        flat = rng.integers(least, max(most, least) + 1, slot.shape).reshape(-1)
        if flat.size >= _ROOM:
            flat[-1], flat[0] = most, least
        else:
            flat = np.where(rng.random(flat.size) < _SHARE_OF_ENDS, rng.choice((least, most), flat.size), flat)
        return flat.reshape(slot.shape)

    def repair(self, slot: Slot, values: Array) -> Array:
        clipped = clip_to_integers(values, self.greatest(slot), slot.least)
        return clipped if slot.sentinel is None else np.where(values == slot.sentinel, slot.sentinel, clipped)

    def finite_range(self, slot: Slot) -> tuple[float, float]:
        return slot.least, self.greatest(slot)

    def element(self, slot: Slot, number: float) -> float:
        return slot.least + number % max(self.greatest(slot) - slot.least + 1, 1)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns positions scattered over the axis, as far as the dtype reaches."""
        count = min(self.greatest(slot), int(np.iinfo(slot.dtype).max)) + 1 - slot.least
        return slot.least + code * _SPREAD % max(count, 1)


# Permutations: indices that are all different. Declared by `kt.permutation`.


@hide_frames
def permutation(
    shape: str, *, into: str | int | None = None, ignore: int | None = None, dtype: str = "int32"
) -> ArrayArgument:
    """Declares indices that are all different.

        order=kt.permutation("n"), page_table=kt.permutation("b p", into="pages", ignore=-1)

    Args:
      shape: of the indices themselves.
      into: the axis they point into. No two in the whole array are equal, so it must not have more elements than that
        axis (declare so with `where=`). None for the last axis itself, each row a permutation of it.
      ignore: a further integer that stands for no element, at any number of places, such as -1 for a page that is not
        there. Then the array may have more elements than the axis.
      dtype: an integer dtype, by name.
    """
    return array_argument(shape, dtype, "permutation", bounded_by=into, problem=_problem(ignore), sentinel=ignore)


@register("permutation")
class Permutation(Positions):
    """Indices that differ in each row or, if `Slot.globally_unique`, in the whole array, save for the sentinel."""

    noun = "permutation"
    along_last_axis = True
    jointly_constrained = True
    distinct = True

    def edge_values(self) -> Sequence[EdgeValues]:
        return [EdgeValues(self.in_order), EdgeValues(self.in_reverse), *super().edge_values()]

    def in_order(self, slot: Slot, rng: Rng) -> Array:
        """Indices in ascending order from 0."""
        return slot.canonical()

    def in_reverse(self, slot: Slot, rng: Rng) -> Array:
        """Indices in descending order from the last."""
        return slot.repair(slot.end - 1 - slot.canonical().astype(np.int64))

    def positions(self, slot: Slot, rng: Rng) -> Array:
        if slot.globally_unique:
            return rng.permutation(max(slot.end, slot.size))[: slot.size].reshape(slot.shape)
        return rng.permuted(self.canonical(slot), axis=-1)

    def canonical(self, slot: Slot) -> Array:
        return np.broadcast_to(np.arange(slot.shape[-1]), slot.shape)

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns the ranks of each row or, if globally unique, `values` with repeated ones replaced by unused ones."""
        if not slot.globally_unique and slot.sentinel is None:
            return np.asarray(np.argsort(np.argsort(values, axis=-1, kind="stable"), axis=-1, kind="stable"))
        if not slot.globally_unique:
            return np.apply_along_axis(_different, -1, values, slot.shape[-1], slot.sentinel) if slot.size else values
        if slot.size > slot.end and slot.sentinel is None:
            raise DeclarationError(
                f"{slot.size} different indices do not fit into a length of {slot.end}; exclude it with where="
            )
        return _different(np.reshape(values, -1), slot.end, slot.sentinel).reshape(slot.shape)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        flat = flat_index(position, slot.shape) if slot.globally_unique else position[-1]
        return flat if slot.sentinel is None else xp.where(flat < slot.end, flat, slot.sentinel)


def _different(values: Array, end: int, sentinel: int | None) -> Array:
    """Returns indices (int64) with repeated and impossible ones replaced by unused ones, then by the sentinel."""
    flat = np.array(values, np.int64)
    absent = np.zeros(flat.size, bool) if sentinel is None else flat == sentinel
    first = np.zeros(flat.size, bool)
    first[np.unique(flat, return_index=True)[1]] = True
    valid = first & (flat >= 0) & (flat < end) & ~absent
    wrong, unused = np.flatnonzero(~valid & ~absent), np.setdiff1d(np.arange(end), flat[valid])
    flat[wrong[: unused.size]] = unused[: wrong.size]
    flat[wrong[unused.size :]] = sentinel or 0
    return flat


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
