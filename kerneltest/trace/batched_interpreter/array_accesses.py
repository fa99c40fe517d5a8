"""Accesses by arrays of positions along each axis. Positions outside the memory are as in Pallas' interpreter."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.access_regions import AccessRegion
from kerneltest.trace.batched_interpreter.batched_values import BatchedRef, UnknownError, unwritten_memory


class _Slices(NamedTuple):
    """Slices that an access by arrays amounts to.

    Attributes:
      inside: the slices, cut off at the memory's end; the first one is that of all rows.
      lengths: the number of positions along each axis of the memory, inside and beyond its end.
      shape: the shape of the access's result, without rows.
    """

    inside: tuple[slice, ...]
    lengths: tuple[int, ...]
    shape: tuple[int, ...]


def check_room(memory: BatchedRef, rows: int) -> None:
    """Checks that each of the rows that write to a memory has its own.

    Raises:
      UnknownError: they share it.
    """
    if len(memory.array) < rows:
        raise UnknownError("rows that write different values to memory that they share")


def positions(memory: Array, arrays: Sequence[Array]) -> tuple[tuple[Array, ...], Array | None]:
    """The positions of an access along each axis, rows first, and a mask of those inside the memory.

    Args:
      memory: that is accessed.
      arrays: the access's positions, as `aligned_positions` returns them.

    Returns:
      Arrays that broadcast together, and the mask; None if all positions are inside.
    """
    shape = memory.shape[1:]
    row = np.arange(len(memory)).reshape(-1, *(1,) * (arrays[0].ndim - 1))
    inside: Array | None = None
    found = [row]
    for each, n in zip(arrays, shape, strict=True):
        least, most = (int(each.min()), int(each.max())) if each.size else (0, 0)
        at = np.where(each < 0, each + n, each) if least < 0 else each
        if most >= n or least < -n:
            here = (at >= 0) & (at < n)
            inside = here if inside is None else inside & here
            at = np.clip(at, 0, max(n - 1, 0))
        found.append(at)
    return tuple(found), inside


def aligned_positions(region: AccessRegion) -> list[Array]:
    """The positions of an access by arrays along each axis of the memory, in arrays of the same rank."""
    arrays = [np.asarray(each).astype(np.int64, copy=False) for each in region.arrays]
    arrays = [each.reshape(1) if not each.ndim else each for each in arrays]
    most = max(each.ndim for each in arrays)
    return [each.reshape(len(each), *(1,) * (most - each.ndim), *each.shape[1:]) for each in arrays]


def _as_slices(arrays: Sequence[Array], shape: Sequence[int]) -> _Slices | None:
    """Returns slices of all rows with the same elements in the same order; None if no slices have them.

    Slices have them if the positions along each axis count up by one from at least 0, each along an axis of its own.
    """
    last = 0
    found, lengths = [slice(None)], []
    for each, n in zip(arrays, shape, strict=True):
        flat = each.reshape(-1)
        if not flat.size:
            return None
        start, end = int(flat[0]), int(flat[-1]) + 1
        if start < 0 or end - start != flat.size:
            return None
        if flat.size > 1:
            axis = each.shape.index(max(each.shape))
            if each.shape[axis] != flat.size or axis <= last or (np.diff(flat) != 1).any():
                return None
            last = axis
        found.append(slice(start, min(end, n)))
        lengths.append(flat.size)
    return _Slices(tuple(found), tuple(lengths), np.broadcast(*arrays).shape[1:])


def gather(memory: Array, region: AccessRegion) -> Array:
    """Reads by arrays of positions; those outside read unwritten memory."""
    arrays = aligned_positions(region)
    slices = _as_slices(arrays, memory.shape[1:])
    if slices is not None:
        part = memory[slices.inside]
        if part.shape[1:] == slices.lengths:
            return part.reshape(len(memory), *slices.shape).copy()
        whole = unwritten_memory((len(memory), *slices.lengths), memory.dtype)
        whole[tuple(map(slice, part.shape))] = part
        return whole.reshape(len(memory), *slices.shape)
    at, inside = positions(memory, arrays)
    if not memory.size:
        return unwritten_memory(np.broadcast(*at).shape, memory.dtype)
    found = memory[at]
    return found if inside is None else np.where(inside, found, unwritten_memory((1,), memory.dtype))


def scatter(memory: BatchedRef, region: AccessRegion, values: Array, *, add: bool = False) -> None:
    """Writes by arrays of positions, or adds there; those outside are left out.

    Raises:
      UnknownError: as `check_room` does.
    """
    arrays = aligned_positions(region)
    slices = None if add else _as_slices(arrays, memory.array.shape[1:])
    if slices is not None:
        check_room(memory, len(values))
        part = memory.array[slices.inside]
        values = np.broadcast_to(values, (len(values), *slices.shape)).reshape(len(values), *slices.lengths)
        part[...] = values[(slice(None), *map(slice, part.shape[1:]))]
        return
    at, inside = positions(memory.array, arrays)
    whole = np.broadcast(*at).shape
    check_room(memory, max(whole[0], len(values)))
    # Of equal positions, the last one in this order counts. NumPy may visit arrays of several axes in another.
    values = np.broadcast_to(values, whole).ravel()
    at = tuple(np.broadcast_to(each, whole).ravel() for each in at)
    if inside is not None:
        chosen = np.broadcast_to(inside, whole).ravel()
        values, at = values[chosen], tuple(each[chosen] for each in at)
    if add:
        np.add.at(memory.array, at, values)
    else:
        memory.array[at] = values
