"""Arrays too large to hold: what an element is follows from where it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array


@dataclass(frozen=True, eq=False, slots=True)
class Virtual:
    """An array of which some elements can be asked.

    Attributes:
      shape, dtype: as of any array.
      read: from flat offsets, int64 of any shape, to the elements there.
      places: the flat offsets of elements that are known, int64 (n,), ascending; None where all are.
      undefined: of those, which depend on memory that nobody wrote, bool (n,).
      unwritten: flat offsets of elements that are known to be written by no program, int64 (k,).
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[Array], Array]
    places: Array | None = None
    undefined: Array | None = None
    unwritten: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def moved(self, name: str, params: Mapping[str, Any], shape: tuple[int, ...]) -> "Virtual | None":
        """Its elements moved into another shape by the primitive `name`; None where that is not known."""
        rule = _MOVES.get(name)
        if rule is None or (params.get("dimensions") is not None and name == "reshape"):
            return None
        there, back = rule(self.shape, shape, params)
        order = None
        places = self.places
        if places is not None:
            moved = back(places)
            order = np.flatnonzero(moved >= 0)
            order = order[np.argsort(moved[order], kind="stable")]
            places = moved[order]
        undefined = None if self.undefined is None or order is None else self.undefined[order]
        unwritten = back(self.unwritten)
        kept = unwritten[unwritten >= 0]
        return Virtual(shape, self.dtype, lambda at: self.read(there(at)), places, undefined, kept)

    def cast(self, dtype: np.dtype[Any]) -> "Virtual":
        """Its elements in another dtype."""
        cast = (lambda at: self.read(at).astype(dtype), self.places, self.undefined, self.unwritten)
        return Virtual(self.shape, dtype, *cast)


Offsets = Callable[[Array], Array]
# From the shape before, the shape after and the primitive's parameters to how offsets go back to the array before, and
# how they come from there: -1 for elements that are left out.
Move = Callable[[tuple[int, ...], tuple[int, ...], Mapping[str, Any]], tuple[Offsets, Offsets]]


def flat(indices: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Flat offsets of elements, from an index array for each axis."""
    offset = np.zeros((), np.int64)
    for index, length in zip(indices, shape, strict=True):
        offset = offset * length + index
    return np.asarray(offset)


def unflat(offset: Array, shape: tuple[int, ...]) -> list[Array]:
    """An index array for each axis."""
    indices: list[Array] = []
    for length in reversed(shape):
        indices.insert(0, offset % max(length, 1))
        offset = offset // max(length, 1)
    return indices


def _same(before: tuple[int, ...], after: tuple[int, ...], params: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    return lambda at: at, lambda at: at


def _transposed(before: tuple[int, ...], after: tuple[int, ...], params: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    order = params["permutation"]

    def there(at: Array) -> Array:
        indices = unflat(at, after)
        return flat([indices[order.index(axis)] for axis in range(len(before))], before)

    return there, lambda at: flat([unflat(at, before)[axis] for axis in order], after)


def _sliced(before: tuple[int, ...], after: tuple[int, ...], params: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    steps = params["strides"] or (1,) * len(before)
    spans = list(zip(params["start_indices"], steps, after, strict=True))

    def there(at: Array) -> Array:
        return flat([start + step * i for i, (start, step, _) in zip(unflat(at, after), spans, strict=True)], before)

    def back(at: Array) -> Array:
        left = np.zeros(at.shape, bool)
        indices = []
        for index, (start, step, length) in zip(unflat(at, before), spans, strict=True):
            turn = (index - start) // step
            left |= ((index - start) % step != 0) | (turn < 0) | (turn >= length)
            indices.append(turn)
        return np.where(left, -1, flat(indices, after))

    return there, back


def _broadcast(before: tuple[int, ...], after: tuple[int, ...], params: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    axes = params["broadcast_dimensions"]

    def there(at: Array) -> Array:
        indices = unflat(at, after)
        return flat([indices[a] if n > 1 else indices[a] * 0 for a, n in zip(axes, before, strict=True)], before)

    def back(at: Array) -> Array:  # the first of several copies
        indices = dict(zip(axes, unflat(at, before), strict=True))
        return flat([indices.get(axis, np.zeros((), np.int64)) for axis in range(len(after))], after)

    return there, back


_MOVES: Mapping[str, Move] = {
    **dict.fromkeys("reshape squeeze expand_dims copy copy_p".split(), _same),
    "transpose": _transposed,
    "slice": _sliced,
    "broadcast_in_dim": _broadcast,
}
