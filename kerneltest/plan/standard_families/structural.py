"""Structural families: values for which a kernel's arithmetic is exact in any order, so that no bit may be off."""

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.plan.families import Rng, Slot, family, small_integers


def has_several(slot: Slot) -> bool:
    return slot.role == "data" and slot.size > 1


@family(group="structural", without_arrays=True)
def position_coded(slot: Slot, rng: Rng) -> Array:
    """Every element says where it came from, so that a shifted or swapped block shows."""
    limit = max(_prime_below(min(slot.exact_limit, 251)), 2)
    code = np.zeros(slot.shape, np.int64)
    for axis, stride in zip(range(len(slot.shape)), (1, 7, 31, 53), strict=False):
        where = np.arange(slot.shape[-1 - axis]) * stride
        code = code + where.reshape((-1,) + (1,) * axis)
    return slot.cast((code + 17 * slot.order) % limit - limit // 2)


@family(group="structural")
def ones(slot: Slot, rng: Rng) -> Array:
    """All ones: a sum counts its terms, so a lost or doubled block shows as a count."""
    return slot.cast(np.ones(slot.shape))


@family(group="structural", applies=has_several)
def one_hot_per_tile(slot: Slot, rng: Rng) -> Array:
    """Zeros but for one element in each block of the last axis: a block that is lost or counted twice shows itself."""
    values = np.zeros(slot.shape)
    length = slot.shape[-1]
    for number, start in enumerate(range(0, length, slot.block)):
        at = start + int(rng.integers(min(slot.block, length - start)))
        values[..., at] = 1 + number % max(min(slot.exact_limit, 50), 1)
    return slot.cast(values)


@family(group="structural", applies=has_several)
def constant_rows(slot: Slot, rng: Rng) -> Array:
    """Each row one number: what mixes rows shows, what mixes columns does not."""
    limit = min(slot.exact_limit, 100)
    return slot.cast(np.broadcast_to(rng.integers(-limit, limit + 1, (*slot.shape[:-1], 1)), slot.shape))


@family(group="structural", applies=has_several)
def sorted_rows(slot: Slot, rng: Rng) -> Array:
    """Ascending rows: the greatest element is always in the last block."""
    return slot.cast(np.sort(small_integers(slot, rng).astype(np.float64), axis=-1))


@family(group="structural", applies=has_several)
def ties(slot: Slot, rng: Rng) -> Array:
    """Two values only, so that the greatest element occurs many times, in several blocks."""
    return slot.cast(rng.choice((-1, 1), slot.shape))


@family(group="structural", applies=lambda slot: slot.role in ("index", "length") and slot.size > 0)
def ends(slot: Slot, rng: Rng) -> Array:
    """Indices and lengths at both ends of what they may be, and beside them."""
    top = slot.end if slot.role == "length" else max(slot.end - 1, 0)
    return np.resize(np.clip([0, top, 1, top - 1], 0, top), slot.shape).astype(slot.dtype)


def _prime_below(limit: int) -> int:
    return next((p for p in range(limit, 1, -1) if all(p % d for d in range(2, int(p**0.5) + 1))), 1)
