"""Values that are no data: those that point, count, mask, or hang together, such as a partition. One table by role."""

from collections.abc import Callable

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, is_integer
from kerneltest.declare.arguments import COUNTING
from kerneltest.plan.slots import Slot

Rng = np.random.Generator


def ordinary(slot: Slot, rng: Rng) -> Array:
    """Random values of an argument that is no data, as its role has them.

    Raises:
      ValueError: there are none, as of a permutation of fewer elements than it has.
    """
    return mended(slot, _RANDOM[slot.role](slot, rng))


def mended(slot: Slot, values: Array) -> Array:
    """The values that the role of an argument allows next to some numbers: these, where it allows them.

    Raises:
      ValueError: as `ordinary` does.
    """
    right = np.asarray(_MENDED[slot.role](slot, values) if slot.role in _MENDED else values)
    if (
        slot.role in COUNTING
        and is_integer(slot.dtype)
        and right.size
        and right.max() > (most := int(ml_dtypes.iinfo(slot.dtype).max))
    ):
        raise ValueError(f"it counts up to {right.max()}, and {slot.dtype} ends at {most}; declare a wider dtype")
    return right.astype(slot.dtype)


def plain(slot: Slot) -> Array:
    """The plainest values of an argument that is no data: all shown, zeros, parts alike, in order."""
    match slot.role:
        case "mask":
            return np.full(slot.shape, slot.fills[1], slot.dtype)
        case "partition" | "offsets" | "segments":
            return of_parts(slot, even(slot))
        case "permutation":
            return mended(slot, np.broadcast_to(np.arange(slot.shape[-1]), slot.shape))
    return mended(slot, np.zeros(slot.shape, slot.dtype))


def groups(slot: Slot) -> int:
    """How many parts a partition, offsets or segments have."""
    last = slot.shape[-1]
    return {"partition": last, "offsets": last - 1, "segments": min(slot.end, last)}[slot.role]


def even(slot: Slot) -> Array:
    """The sizes of parts that are as alike as can be, int64."""
    count, total = groups(slot), to_part(slot)
    return np.diff(np.linspace(0, total, count + 1).astype(np.int64)) if count > 0 else np.zeros(0, np.int64)


def to_part(slot: Slot) -> int:
    """How many elements there are to part."""
    return slot.shape[-1] if slot.role == "segments" else slot.end


def of_parts(slot: Slot, sizes: Array) -> Array:
    """A partition, offsets or segments with parts of some sizes (int64, one row of them or one for each row)."""
    rows = np.broadcast_to(sizes, (*slot.shape[:-1], sizes.shape[-1]))
    if slot.role == "segments":
        ends = np.cumsum(rows, axis=-1)
        values = (np.arange(slot.shape[-1])[:, None] >= ends[..., None, :]).sum(axis=-1)
    elif slot.role == "offsets":
        values = np.concatenate([np.zeros((*rows.shape[:-1], 1), np.int64), np.cumsum(rows, axis=-1)], axis=-1)
    else:
        values = rows
    return mended(slot, values[..., : slot.shape[-1]])


def _random_parts(slot: Slot, rng: Rng) -> Array:
    count, total = groups(slot), to_part(slot)
    if count <= 0:
        return np.zeros(slot.shape, np.int64)
    if not slot.whole and slot.role != "segments" and rng.random() < 0.5:
        total = int(rng.integers(0, total + 1))
    cuts = np.sort(rng.integers(0, total + 1, (*slot.shape[:-1], count + 1)), axis=-1)
    cuts[..., 0], cuts[..., -1] = 0, total
    return of_parts(slot, np.diff(cuts, axis=-1))


def _random_order(slot: Slot, rng: Rng) -> Array:
    if slot.apart:
        return rng.permutation(max(slot.end, slot.size))[: slot.size].reshape(slot.shape)
    return rng.permuted(np.broadcast_to(np.arange(slot.shape[-1]), slot.shape), axis=-1)


def with_ends(slot: Slot, values: Array, low: int, high: int) -> Array:
    """`values` with the least in the first place and the greatest in the last."""
    flat = np.array(values).reshape(-1)
    flat[-1:], flat[:1] = high, low  # the first element wins where there is only one
    return flat.reshape(slot.shape)


def _random_index(slot: Slot, rng: Rng) -> Array:
    top = max(slot.end - 1, 0)
    return with_ends(slot, rng.integers(0, top + 1, slot.shape), 0, top)


_RANDOM: dict[str, Callable[[Slot, Rng], Array]] = {
    "mask": lambda slot, rng: np.where(rng.random(slot.shape) < 0.75, *slot.fills[::-1]),
    "index": _random_index,
    "length": lambda slot, rng: with_ends(slot, rng.integers(0, slot.end + 1, slot.shape), 0, slot.end),
    "partition": _random_parts,
    "offsets": _random_parts,
    "segments": _random_parts,
    "permutation": _random_order,
    "one_hot": lambda slot, rng: rng.random(slot.shape),
    "key": lambda slot, rng: rng.integers(0, 2**32, slot.shape),
    "raw_key": lambda slot, rng: rng.integers(0, 2**32, slot.shape),
    "derived": lambda slot, rng: np.zeros(slot.shape),
}


def _whole(values: Array, top: int) -> Array:
    """Integers from 0 to `top`."""
    wide = np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=top, neginf=0)
    return np.clip(wide, 0, top).astype(np.int64)


def _check_comes_to_all(slot: Slot, parts: int) -> None:
    if slot.whole and slot.end and parts <= 0:
        raise ValueError(f"no parts come to {slot.end}; say which lengths are right with where=")


def _partition(slot: Slot, values: Array) -> Array:
    _check_comes_to_all(slot, slot.shape[-1])
    ends = np.minimum(np.cumsum(_whole(values, slot.end), axis=-1), slot.end)
    if slot.whole:
        ends[..., -1:] = slot.end
    return np.diff(ends, axis=-1, prepend=0)


def _offsets(slot: Slot, values: Array) -> Array:
    _check_comes_to_all(slot, slot.shape[-1] - 1)
    ends = np.sort(_whole(values, slot.end), axis=-1)
    ends[..., -1:] = slot.end if slot.whole else ends[..., -1:]
    ends[..., :1] = 0
    return ends


def _permutation(slot: Slot, values: Array) -> Array:
    if not slot.apart:
        order: Array = np.argsort(np.argsort(values, axis=-1, kind="stable"), axis=-1, kind="stable")
        return order
    if slot.size > slot.end:
        raise ValueError(
            f"{slot.size} indices of which none occurs twice do not fit into {slot.end}; say which lengths are right "
            "with where="
        )
    flat = np.asarray(values, np.int64).reshape(-1)
    first = np.zeros(flat.size, bool)
    first[np.unique(flat, return_index=True)[1]] = True
    right = first & (flat >= 0) & (flat < slot.end)
    unused = np.setdiff1d(np.arange(slot.end), flat[right])
    flat = flat.copy()
    flat[~right] = unused[: int((~right).sum())]
    return flat.reshape(slot.shape)


def _one_hot(slot: Slot, values: Array) -> Array:
    if not slot.shape[-1]:
        return np.zeros(slot.shape)
    return np.asarray(np.arange(slot.shape[-1]) == np.argmax(np.asarray(values, np.float64), axis=-1)[..., None])


_MENDED: dict[str, Callable[[Slot, Array], Array]] = {
    "mask": lambda slot, values: np.where(values == np.asarray(slot.fills[0]).astype(slot.dtype), *slot.fills),
    "index": lambda slot, values: _whole(values, max(slot.end - 1, 0)),
    "length": lambda slot, values: _whole(values, slot.end),
    "partition": _partition,
    "offsets": _offsets,
    "segments": lambda slot, values: np.sort(_whole(values, max(slot.end - 1, 0)), axis=-1),
    "permutation": _permutation,
    "one_hot": _one_hot,
}

HANGING = frozenset({"partition", "offsets", "segments", "permutation", "one_hot", "key", "raw_key", "derived"})
"""Roles of which no element can be changed alone."""
