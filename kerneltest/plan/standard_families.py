"""The families that every pairing is tried with, group by group. Loading this registers them.

`kt.family` is taken from here, so that a user's families come after them, wherever they are registered.
"""

import itertools
from typing import Any

import ml_dtypes
import numpy as np

import kerneltest.plan.numeric_families  # noqa: F401 - they register themselves
from kerneltest.core.dtypes import Array, float_format
from kerneltest.plan.constrained import even, groups, mended, of_parts, plain, to_part
from kerneltest.plan.families import (
    Rng,
    Slot,
    is_integer_data,
    is_mask,
    may_be_infinite,
    may_be_masked,
    may_be_nan,
    may_be_negative_infinite,
    normal,
    small_integers,
)
from kerneltest.plan.families import family as family


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


@family(group="structural", applies=lambda slot: slot.role in ("index", "length", "one_hot") and slot.size > 0)
def ends(slot: Slot, rng: Rng) -> Array:
    """Indices and lengths at both ends of what they may be, and beside them."""
    top = slot.end if slot.role == "length" else max(slot.end - 1, 0)
    if slot.role == "one_hot":
        at = np.resize(np.clip([0, top, 1, top - 1], 0, top), slot.shape[:-1])
        return np.asarray(np.arange(slot.shape[-1]) == at[..., None]).astype(slot.dtype)
    return mended(slot, np.resize(np.clip([0, top, 1, top - 1], 0, top), slot.shape))


def _has_parts(slot: Slot) -> bool:
    return slot.role in ("partition", "offsets", "segments") and slot.size > 0 and groups(slot) > 0


def _sizes(slot: Slot) -> Array:
    return np.zeros(groups(slot), np.int64)


@family(group="structural", applies=_has_parts)
def even_parts(slot: Slot, rng: Rng) -> Array:
    """Groups of one size, as far as there is one."""
    return of_parts(slot, even(slot))


@family(group="structural", applies=_has_parts)
def first_takes_all(slot: Slot, rng: Rng) -> Array:
    """Everything is in the first group, and the others are empty."""
    sizes = _sizes(slot)
    sizes[0] = to_part(slot)
    return of_parts(slot, sizes)


@family(group="structural", applies=_has_parts)
def last_takes_all(slot: Slot, rng: Rng) -> Array:
    """Everything is in the last group, and those before it are empty."""
    sizes = _sizes(slot)
    sizes[-1] = to_part(slot)
    return of_parts(slot, sizes)


@family(group="structural", applies=lambda slot: _has_parts(slot) and groups(slot) > 1)
def empty_parts(slot: Slot, rng: Rng) -> Array:
    """Every other group is empty."""
    sizes = _sizes(slot)
    sizes[1::2] = np.diff(np.linspace(0, to_part(slot), len(sizes[1::2]) + 1).astype(np.int64))
    return of_parts(slot, sizes)


@family(group="structural", applies=lambda slot: _has_parts(slot) and groups(slot) > 1)
def parts_beside_blocks(slot: Slot, rng: Rng) -> Array:
    """Groups end one element before and one after the ends of blocks."""
    block = slot.block if slot.role == "segments" else slot.end_block
    cuts = [
        number * block + step for number, step in zip(range(1, groups(slot)), itertools.cycle((1, -1)), strict=False)
    ]
    ends = np.minimum(np.maximum.accumulate([0, *cuts, to_part(slot)]), to_part(slot))
    return of_parts(slot, np.diff(ends))


@family(group="structural", applies=lambda slot: slot.role == "permutation" and slot.size > 0)
def in_order(slot: Slot, rng: Rng) -> Array:
    """Indices from the first on."""
    return plain(slot)


@family(group="structural", applies=lambda slot: slot.role == "permutation" and slot.size > 0)
def in_reverse(slot: Slot, rng: Rng) -> Array:
    """Indices from the last on backwards."""
    return mended(slot, slot.end - 1 - plain(slot).astype(np.int64))


def _prime_below(limit: int) -> int:
    return next((p for p in range(limit, 1, -1) if all(p % d for d in range(2, int(p**0.5) + 1))), 1)


def _at(values: Array, position: int, special: float) -> Array:
    """`values` with `special` at a flat position."""
    out = values.copy()
    out.reshape(-1)[position] = special
    return out


@family(group="special", applies=may_be_infinite, each=True)
def one_inf(slot: Slot, rng: Rng) -> Array:
    """A single +inf."""
    return _at(normal(slot, rng), int(rng.integers(slot.size)), np.inf)


@family(group="special", applies=may_be_negative_infinite, each=True)
def one_negative_inf(slot: Slot, rng: Rng) -> Array:
    """A single -inf."""
    return _at(normal(slot, rng), int(rng.integers(slot.size)), -np.inf)


def _masked(slot: Slot, where: tuple[Any, ...], rng: Rng) -> Array:
    if slot.role == "mask":
        seen = np.ones(slot.shape, bool)
        seen[where] = False
        return seen
    values = normal(slot, rng)
    values[where] = -np.inf
    return values


def _maskable(slot: Slot) -> bool:
    return may_be_masked(slot) or (is_mask(slot) and slot.size > 0)


@family(group="special", applies=_maskable, each=True)
def all_masked_tile(slot: Slot, rng: Rng) -> Array:
    """The first whole block of the last axis is masked (-inf, or False in a mask)."""
    return _masked(slot, (..., slice(0, slot.block)), rng)


@family(group="special", applies=lambda slot: _maskable(slot) and len(slot.shape) > 1, each=True)
def all_masked_row(slot: Slot, rng: Rng) -> Array:
    """One row is masked from end to end."""
    return _masked(slot, (..., int(rng.integers(slot.shape[-2])), slice(None)), rng)


@family(group="special", applies=_maskable, each=True)
def all_masked_array(slot: Slot, rng: Rng) -> Array:
    """Everything is masked."""
    return _masked(slot, (...,), rng)


@family(group="special", applies=may_be_nan, each=True)
def nan_first(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element."""
    return _at(normal(slot, rng), 0, np.nan)


@family(group="special", applies=may_be_nan, each=True)
def nan_last(slot: Slot, rng: Rng) -> Array:
    """A NaN in the last element."""
    return _at(normal(slot, rng), -1, np.nan)


def _has_tail(slot: Slot) -> bool:
    return may_be_masked(slot) and may_be_nan(slot) and slot.shape[-1] > slot.block and slot.shape[-1] % slot.block != 0


@family(group="special", applies=_has_tail, each=True)
def nan_tail(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element past the last full block."""
    values = normal(slot, rng)
    values[..., slot.shape[-1] // slot.block * slot.block] = np.nan
    return values


@family(
    group="special",
    applies=lambda slot: may_be_nan(slot) and may_be_infinite(slot) and bool(slot.shape) and slot.shape[-1] > 1,
    each=True,
)
def nan_and_inf_in_one_tile(slot: Slot, rng: Rng) -> Array:
    """A NaN and an infinity side by side."""
    values = _at(normal(slot, rng), 0, np.nan)
    return _at(values, 1, np.inf)


def _may_be_signed_zero(slot: Slot) -> bool:
    return slot.is_float_data and slot.size > 0 and slot.domain.admits_zero and not slot.domain.bounded


@family(group="special", applies=_may_be_signed_zero, each=True)
def signed_zeros(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs."""
    return slot.cast(rng.choice((-0.0, 0.0), slot.shape))


@family(group="special", applies=_may_be_signed_zero)
def signed_zeros_everywhere(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs in all arguments at once, since -0 + 0 is 0 and -0 + y is y."""
    return signed_zeros(slot, rng)


def _may_be_huge(slot: Slot) -> bool:
    return slot.is_float_data and slot.size > 0 and slot.domain.reaches_extremes


@family(
    group="special",
    applies=lambda slot: _may_be_huge(slot) and slot.domain.admits_zero and float_format(slot.dtype).precision > 1,
    each=True,
)
def subnormals(slot: Slot, rng: Rng) -> Array:
    """Numbers between the smallest subnormal and the smallest normal one, both signs."""
    fmt = float_format(slot.dtype)
    steps = rng.integers(1, 2 ** (fmt.precision - 1), slot.shape)
    return slot.cast(steps * fmt.smallest_subnormal * rng.choice((-1.0, 1.0), slot.shape))


@family(group="special", applies=_may_be_huge, each=True)
def largest_finite(slot: Slot, rng: Rng) -> Array:
    """One element is the dtype's largest finite number."""
    return _at(normal(slot, rng), int(rng.integers(slot.size)), float(ml_dtypes.finfo(slot.dtype).max))


@family(group="special", applies=is_integer_data)
def extreme_integers(slot: Slot, rng: Rng) -> Array:
    """The least and the greatest integer and their neighbours: sums wrap around."""
    info = ml_dtypes.iinfo(slot.dtype)
    edges = np.array([info.min, int(info.min) + 1, 0, 1, int(info.max) - 1, info.max], np.int64)
    return rng.choice(edges, slot.shape).astype(slot.dtype)


@family(group="masks", applies=is_mask)
def no_mask(slot: Slot, rng: Rng) -> Array:
    """Everything is visible."""
    return np.ones(slot.shape, bool)


@family(group="masks", applies=is_mask)
def causal(slot: Slot, rng: Rng) -> Array:
    """Row i sees columns up to i."""
    return np.tril(np.ones(slot.shape, bool)) if len(slot.shape) > 1 else np.ones(slot.shape, bool)


@family(group="masks", applies=is_mask)
def ragged(slot: Slot, rng: Rng) -> Array:
    """Each row sees a prefix of random length."""
    ends = rng.integers(0, slot.shape[-1] + 1, (*slot.shape[:-1], 1))
    return np.asarray(np.arange(slot.shape[-1]) < ends)


@family(group="masks", applies=is_mask)
def whole_tiles(slot: Slot, rng: Rng) -> Array:
    """Tiles of the last axis are visible or masked as a whole."""
    blocks = -(-slot.shape[-1] // slot.block)
    return np.repeat(rng.random((*slot.shape[:-1], blocks)) < 0.5, slot.block, axis=-1)[..., : slot.shape[-1]]


@family(group="masks", applies=is_mask)
def random_mask(slot: Slot, rng: Rng) -> Array:
    """Each element is visible with probability one half."""
    return rng.random(slot.shape) < 0.5
