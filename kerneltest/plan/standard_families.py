"""The families that every pairing is tested with, group by group. Importing this module registers them.

`kt.family` is imported from here, so that the families of users follow them.
"""

from types import EllipsisType

import ml_dtypes
import numpy as np

import kerneltest.plan.numeric_families  # noqa: F401 - registers its families
from kerneltest.core.dtypes import Array, float_format, is_integer
from kerneltest.core.group_names import GroupName
from kerneltest.plan.families import (
    Rng,
    Slot,
    is_data,
    is_integer_data,
    is_mask,
    may_be_infinite,
    may_be_masked,
    may_be_nan,
    may_be_negative_infinite,
    normal,
    register_edge_values,
    small_integers,
)
from kerneltest.plan.families import family as family

_NEGATIVE_NAN = float(np.copysign(np.nan, -1))


def _has_several(slot: Slot) -> bool:
    return is_data(slot) and slot.size > 1


@family(group=GroupName.STRUCTURAL, without_arrays=True)
def position_coded(slot: Slot, rng: Rng) -> Array:
    """Each element encodes its position, so that a shifted or swapped block is visible."""
    limit = max(_prime_below(min(slot.exact_limit, 251)), 2)
    code = np.zeros(slot.shape, np.int64)
    for axis, stride in zip(range(len(slot.shape)), (1, 7, 31, 53), strict=False):
        where = np.arange(slot.shape[-1 - axis]) * stride
        code = code + where.reshape((-1,) + (1,) * axis)
    if slot.dtype == np.bool_:
        return slot.cast((code + slot.order) % 3 == 0)
    return slot.cast((code + 17 * slot.order) % limit - limit // 2)


@family(group=GroupName.STRUCTURAL)
def ones(slot: Slot, rng: Rng) -> Array:
    """All ones: a sum counts its terms, so a lost or doubled block changes the count."""
    return slot.cast(np.ones(slot.shape))


@family(group=GroupName.STRUCTURAL, applies=_has_several)
def one_hot_per_tile(slot: Slot, rng: Rng) -> Array:
    """One nonzero element in each block of the last axis: a block that is lost or counted twice is identified."""
    values = np.zeros(slot.shape)
    length = slot.shape[-1]
    for number, start in enumerate(range(0, length, slot.block)):
        at = start + int(rng.integers(min(slot.block, length - start)))
        values[..., at] = 1 + number % max(min(slot.exact_limit, 50), 1)
    return slot.cast(values)


@family(group=GroupName.STRUCTURAL, applies=_has_several)
def constant_rows(slot: Slot, rng: Rng) -> Array:
    """Each row is one number: mixed rows are visible, mixed columns are not."""
    return np.broadcast_to(small_integers(slot, rng)[..., :1], slot.shape)


@family(group=GroupName.STRUCTURAL, applies=_has_several)
def sorted_rows(slot: Slot, rng: Rng) -> Array:
    """Ascending rows: the greatest element is in the last block."""
    return slot.cast(np.sort(small_integers(slot, rng).astype(np.float64), axis=-1))


@family(group=GroupName.STRUCTURAL, applies=_has_several)
def ties(slot: Slot, rng: Rng) -> Array:
    """Only two values, so that the greatest element occurs many times, in several blocks."""
    return slot.cast(rng.choice((0, 1) if slot.dtype == np.bool_ else (-1, 1), slot.shape))


# The order of registration determines the order of cases.
register_edge_values(GroupName.STRUCTURAL)


def _prime_below(limit: int) -> int:
    return next((p for p in range(limit, 1, -1) if all(p % d for d in range(2, int(p**0.5) + 1))), 1)


def _with_special(values: Array, position: int, special: float) -> Array:
    """Returns `values` with `special` at a position of the flattened array."""
    out = values.copy()
    out.reshape(-1)[position] = special
    return out


@family(group=GroupName.SPECIAL, applies=may_be_infinite, each=True)
def one_inf(slot: Slot, rng: Rng) -> Array:
    """A single +inf."""
    return _with_special(normal(slot, rng), int(rng.integers(slot.size)), np.inf)


@family(group=GroupName.SPECIAL, applies=may_be_negative_infinite, each=True)
def one_negative_inf(slot: Slot, rng: Rng) -> Array:
    """A single -inf."""
    return _with_special(normal(slot, rng), int(rng.integers(slot.size)), -np.inf)


def _mask_out(slot: Slot, where: tuple[int | slice | EllipsisType, ...], rng: Rng) -> Array:
    if is_mask(slot):
        seen = np.ones(slot.shape, bool)
        seen[where] = False
        return seen
    values = normal(slot, rng)
    values[where] = -np.inf
    return values


def _can_be_masked(slot: Slot) -> bool:
    return may_be_masked(slot) or (is_mask(slot) and slot.size > 0)


@family(group=GroupName.SPECIAL, applies=lambda slot: _can_be_masked(slot) and slot.block < slot.shape[-1], each=True)
def all_masked_tile(slot: Slot, rng: Rng) -> Array:
    """The first whole block of the last axis is masked (-inf, or False in a mask)."""
    return _mask_out(slot, (..., slice(0, slot.block)), rng)


@family(group=GroupName.SPECIAL, applies=lambda slot: _can_be_masked(slot) and slot.shape[-2:-1] > (1,), each=True)
def all_masked_row(slot: Slot, rng: Rng) -> Array:
    """One row is masked from end to end."""
    return _mask_out(slot, (..., int(rng.integers(slot.shape[-2])), slice(None)), rng)


@family(group=GroupName.SPECIAL, applies=_can_be_masked, each=True)
def all_masked_array(slot: Slot, rng: Rng) -> Array:
    """Everything is masked."""
    return _mask_out(slot, (...,), rng)


@family(group=GroupName.SPECIAL, applies=may_be_nan, each=True)
def nan_first(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element."""
    return _with_special(normal(slot, rng), 0, np.nan)


@family(group=GroupName.SPECIAL, applies=may_be_nan, each=True)
def nan_last(slot: Slot, rng: Rng) -> Array:
    """A NaN whose sign bit is set in the last element."""
    return _with_special(normal(slot, rng), -1, _NEGATIVE_NAN)


def _has_tail(slot: Slot) -> bool:
    return may_be_masked(slot) and may_be_nan(slot) and slot.shape[-1] > slot.block and slot.shape[-1] % slot.block != 0


@family(group=GroupName.SPECIAL, applies=_has_tail, each=True)
def nan_tail(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element past the last full block."""
    values = normal(slot, rng)
    values[..., slot.shape[-1] // slot.block * slot.block] = np.nan
    return values


@family(
    group=GroupName.SPECIAL,
    applies=lambda slot: may_be_nan(slot) and may_be_infinite(slot) and bool(slot.shape) and slot.shape[-1] > 1,
    each=True,
)
def nan_and_inf_in_one_tile(slot: Slot, rng: Rng) -> Array:
    """A NaN whose sign bit is set, next to an infinity."""
    values = _with_special(normal(slot, rng), 0, _NEGATIVE_NAN)
    return _with_special(values, 1, np.inf)


def _may_be_signed_zero(slot: Slot) -> bool:
    return slot.is_float_data and slot.size > 0 and slot.domain.admits_zero and not slot.domain.bounded


@family(group=GroupName.SPECIAL, applies=_may_be_signed_zero, each=True)
def signed_zeros(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs."""
    return slot.cast(rng.choice((-0.0, 0.0), slot.shape))


@family(group=GroupName.SPECIAL, applies=_may_be_signed_zero)
def signed_zeros_everywhere(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs in all arguments at once: -0 + 0 is 0, whereas -0 + y is y."""
    return signed_zeros(slot, rng)


def _may_be_huge(slot: Slot) -> bool:
    return slot.is_float_data and slot.size > 0 and slot.domain.reaches_extremes


@family(
    group=GroupName.SPECIAL,
    applies=lambda slot: _may_be_huge(slot) and slot.domain.admits_zero and float_format(slot.dtype).precision > 1,
    each=True,
)
def subnormals(slot: Slot, rng: Rng) -> Array:
    """Subnormal numbers of both signs."""
    fmt = float_format(slot.dtype)
    steps = rng.integers(1, 2 ** (fmt.precision - 1), slot.shape)
    return slot.cast(steps * fmt.smallest_subnormal * rng.choice((-1.0, 1.0), slot.shape))


@family(group=GroupName.SPECIAL, applies=_may_be_huge, each=True)
def largest_finite(slot: Slot, rng: Rng) -> Array:
    """One element is the dtype's largest finite number."""
    return _with_special(normal(slot, rng), int(rng.integers(slot.size)), float(ml_dtypes.finfo(slot.dtype).max))


@family(group=GroupName.SPECIAL, applies=is_integer_data)
def extreme_integers(slot: Slot, rng: Rng) -> Array:
    """The least and the greatest integer and their neighbours: sums wrap around."""
    info = ml_dtypes.iinfo(slot.dtype)
    edges = np.array([info.min, int(info.min) + 1, 0, 1, int(info.max) - 1, info.max], np.int64)
    return rng.choice(edges, slot.shape).astype(slot.dtype)


def _holds_integers(slot: Slot) -> bool:
    return is_data(slot) and is_integer(slot.dtype) and slot.size > 0


@family(group=GroupName.SPECIAL, applies=_holds_integers)
def greatest_integers(slot: Slot, rng: Rng) -> Array:
    """Every element is the greatest integer of the domain, so that nothing cancels in sums and products."""
    return np.full(slot.shape, slot.domain.finite_range(slot.dtype)[1], slot.dtype)


@family(group=GroupName.SPECIAL, applies=_holds_integers)
def least_integers(slot: Slot, rng: Rng) -> Array:
    """Every element is the least integer of the domain."""
    return np.full(slot.shape, slot.domain.finite_range(slot.dtype)[0], slot.dtype)


def _holds_wide_integers(slot: Slot) -> bool:
    """Returns whether it may hold integers of more than 8 bits, of which the other families have only the ends."""
    return _holds_integers(slot) and max(map(abs, slot.domain.finite_range(slot.dtype))) > 128


@family(group=GroupName.SPECIAL, applies=_holds_wide_integers)
def integers_of_all_sizes(slot: Slot, rng: Rng) -> Array:
    """Integers of every number of bits in the domain, of both signs: narrow floats and integers keep only some."""
    low, high = map(int, slot.domain.finite_range(slot.dtype))
    sizes = np.exp2(rng.uniform(0, np.log2(max(high, -low)), slot.shape)).astype(np.int64)
    is_negative = (sizes > high) | ((sizes <= -low) & (rng.random(slot.shape) < 0.5))
    return slot.cast(np.where(is_negative, -sizes, sizes))


register_edge_values(GroupName.MASKS)
