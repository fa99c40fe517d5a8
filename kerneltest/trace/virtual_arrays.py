"""Arrays too large for memory, whose elements are computed from their offsets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.jax_compat.jaxprs import DType, Params


@dataclass(frozen=True, eq=False, slots=True)
class VirtualArray:
    """An array whose elements are computed on demand."""

    shape: tuple[int, ...]
    dtype: DType
    read: Callable[[Array], Array]  # from flat offsets, int64 of any shape, to the elements there
    known_offsets: Array | None = None  # of the known elements, int64 (n,), ascending; None if all are known
    undefined: Array | None = None  # for each known element, whether it depends on unwritten memory, bool (n,)
    # Flat offsets of elements that no program writes, int64 (k,).
    unwritten: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def move(self, name: str, params: Params, shape: tuple[int, ...]) -> "VirtualArray | None":
        """Moves the elements into another shape as the primitive `name` does; None for an unsupported move."""
        rule = _MOVES.get(name)
        if rule is None or (params.get("dimensions") is not None and name == "reshape"):
            return None
        source, target = rule(self.shape, shape, params)
        places, undefined = self.known_offsets, self.undefined
        if places is not None:
            moved = target(places)
            order = np.flatnonzero(moved >= 0)
            order = order[np.argsort(moved[order], kind="stable")]
            places, undefined = moved[order], None if undefined is None else undefined[order]
        unwritten = target(self.unwritten)
        remaining = unwritten[unwritten >= 0]
        return VirtualArray(shape, self.dtype, lambda at: self.read(source(at)), places, undefined, remaining)

    def cast(self, dtype: DType) -> "VirtualArray":
        """Converts the elements to another dtype."""
        return replace(self, dtype=dtype, read=lambda at: self.read(at).astype(dtype))


Offsets = Callable[[Array], Array]
# From the old shape, the new shape and the primitive's parameters to two functions of flat offsets: from the new array
# to the old one, and from the old array to the new one (-1 for elements that the new one does not have).
Move = Callable[[tuple[int, ...], tuple[int, ...], Params], tuple[Offsets, Offsets]]


def flat_offsets(indices: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Flat offsets of elements, from an index array for each axis."""
    offset = np.zeros((), np.int64)
    for index, length in zip(indices, shape, strict=True):
        offset = offset * length + index
    return np.asarray(offset)


def axis_indices(offset: Array, shape: tuple[int, ...]) -> list[Array]:
    """An index array for each axis, from flat offsets of elements."""
    indices: list[Array] = []
    for length in reversed(shape):
        indices.insert(0, offset % max(length, 1))
        offset = offset // max(length, 1)
    return indices


def _transpose(before: tuple[int, ...], after: tuple[int, ...], params: Params) -> tuple[Offsets, Offsets]:
    order = params["permutation"]

    def source(at: Array) -> Array:
        indices = axis_indices(at, after)
        return flat_offsets([indices[order.index(axis)] for axis in range(len(before))], before)

    return source, lambda at: flat_offsets([axis_indices(at, before)[axis] for axis in order], after)


def _slice(before: tuple[int, ...], after: tuple[int, ...], params: Params) -> tuple[Offsets, Offsets]:
    steps = params["strides"] or (1,) * len(before)
    spans = list(zip(params["start_indices"], steps, after, strict=True))

    def source(at: Array) -> Array:
        indices = zip(axis_indices(at, after), spans, strict=True)
        return flat_offsets([start + step * i for i, (start, step, _) in indices], before)

    def target(at: Array) -> Array:
        outside = np.zeros(at.shape, bool)
        indices = []
        for index, (start, step, length) in zip(axis_indices(at, before), spans, strict=True):
            new = (index - start) // step
            outside |= ((index - start) % step != 0) | (new < 0) | (new >= length)
            indices.append(new)
        return np.where(outside, -1, flat_offsets(indices, after))

    return source, target


def _broadcast(before: tuple[int, ...], after: tuple[int, ...], params: Params) -> tuple[Offsets, Offsets]:
    axes = params["broadcast_dimensions"]

    def source(at: Array) -> Array:
        indices = axis_indices(at, after)
        pairs = zip(axes, before, strict=True)
        return flat_offsets([indices[a] if n > 1 else indices[a] * 0 for a, n in pairs], before)

    def target(at: Array) -> Array:  # only the first of several copies
        indices = dict(zip(axes, axis_indices(at, before), strict=True))
        return flat_offsets([indices.get(axis, np.zeros((), np.int64)) for axis in range(len(after))], after)

    return source, target


_MOVES: Mapping[str, Move] = {
    **dict.fromkeys("reshape squeeze expand_dims copy copy_p".split(), lambda *_: (lambda at: at, lambda at: at)),
    "transpose": _transpose,
    "slice": _slice,
    "broadcast_in_dim": _broadcast,
}
