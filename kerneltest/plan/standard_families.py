"""The families that every pairing is tested with, group by group. Importing this module registers them.

`kt.family` is imported from here, so that the families of users follow them.
"""

from types import EllipsisType

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, float_format, is_integer
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.domains import SCALE
from kerneltest.plan.families import (
    Rng,
    Slot,
    is_data,
    normal,
    register_edge_values,
    small_integers,
)
from kerneltest.plan.families import family as family

# The numeric families: finite values, each chosen to expose one kind of rounding error.

_FLOAT16 = float(np.finfo(np.float16).max)
_INT8 = 127.0


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def log_uniform(slot: Slot, rng: Rng) -> Array:
    """Magnitudes from 2^-12 to 2^5, both signs."""
    return slot.cast(np.exp2(rng.uniform(-12, 5, slot.shape)) * rng.choice((-1.0, 1.0), slot.shape))


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def wide_magnitudes(slot: Slot, rng: Rng) -> Array:
    """Magnitudes from 2^-26 to 2^20 within the dtype's range: beyond both ends of float16's normal range."""
    most = min(20, float_format(slot.dtype).max_exponent - 1)
    return slot.cast(np.exp2(rng.uniform(-26, most, slot.shape)) * rng.choice((-1.0, 1.0), slot.shape))


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def small_rows(slot: Slot, rng: Rng) -> Array:
    """Normal values, each row scaled by a power of two from 2^-20 to 2^-4, to expose constants such as an epsilon."""
    scales = np.exp2(rng.integers(-20, -3, (*slot.shape[:-1], 1) if slot.shape else ()))
    return slot.cast(rng.standard_normal(slot.shape) * scales)


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def large_and_small(slot: Slot, rng: Rng) -> Array:
    """One large value at an end of each row, and small ones, which a narrow accumulator loses or not by their order."""
    values = rng.uniform(0.5, 1.0, slot.shape) * 2.0**-4
    if slot.shape and slot.size:
        np.put_along_axis(values, rng.choice((0, -1), (*slot.shape[:-1], 1)), 2.0**6, axis=-1)
    return slot.cast(values)


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data and slot.size > 1)
def alternating(slot: Slot, rng: Rng) -> Array:
    """Pairs of terms that cancel except for their last digits."""
    pairs = rng.uniform(1.0, 2.0, slot.shape)
    pairs[..., 1::2] = -pairs[..., : slot.shape[-1] // 2 * 2 : 2] * (1 + 2.0**-6)
    return slot.cast(pairs)


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def far_below_zero(slot: Slot, rng: Rng) -> Array:
    """Values around -200, whose exponentials underflow unless the right maximum is subtracted."""
    return slot.cast(rng.standard_normal(slot.shape) - 200)


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def below_sentinels(slot: Slot, rng: Rng) -> Array:
    """Values around -2^15, below the -10000 that some kernels use instead of -inf."""
    return slot.cast(32 * rng.standard_normal(slot.shape) - 2.0**15)


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def far_above_zero(slot: Slot, rng: Rng) -> Array:
    """Values around 200, whose exponentials overflow unless a maximum is subtracted."""
    return slot.cast(rng.standard_normal(slot.shape) + 200)


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def constant(slot: Slot, rng: Rng) -> Array:
    """Every element is 0.1, rounded: the errors of a sum add up, whereas those of random terms cancel."""
    return slot.cast(np.full(slot.shape, 0.1))


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def nearly_constant(slot: Slot, rng: Rng) -> Array:
    """Values around 1 that differ by about 1 %: differences of sums, as in a one-pass variance, lose most digits."""
    return slot.cast(1 + 2.0**-7 * rng.standard_normal(slot.shape))


def _largest(slot: Slot) -> float:
    """Returns the largest number of the argument, at most that of float16; 0 if its domain excludes large numbers."""
    own = min(_FLOAT16, float(ml_dtypes.finfo(slot.dtype).max))
    if slot.domain.reaches_extremes:
        return own
    return min(own, slot.domain.high) if np.isfinite(slot.domain.high) else 0.0


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data and _largest(slot) > 0, each=True)
def nearly_largest(slot: Slot, rng: Rng) -> Array:
    """Values from half the largest float16 up to it: their mean is in range, whereas a sum in float16 overflows."""
    return slot.cast(rng.uniform(0.5, 1.0, slot.shape) * _largest(slot))


def _reach(slot: Slot) -> float:
    """Returns the greatest number of an argument of floats; 0 for other arguments."""
    return slot.domain.finite_range(slot.dtype)[1] if _has_floats(slot) and slot.dtype.name != SCALE else 0.0


def _sign(slot: Slot, sizes: Array, rng: Rng) -> Array:
    """Returns numbers with random signs, as far as the domain admits negative ones."""
    return np.where(
        -sizes >= slot.domain.finite_range(slot.dtype)[0], sizes * rng.choice((-1.0, 1.0), slot.shape), sizes
    )


def _units(slot: Slot, rng: Rng) -> Array:
    """Returns 1 and -1 (or 1/2 or 2), as far as the domain admits them, so that products and quotients keep the digits.

    Matrices have full rank, so that kernels can invert them: one number is in a triangle, another in the rest, and rows
    and columns have random signs.
    """
    low, high = slot.domain.finite_range(slot.dtype)
    if not low <= 1 <= high:
        return slot.sample(rng)
    values, (rows, columns) = _sign(slot, np.ones(slot.shape), rng), (1, 1, *slot.shape)[-2:]
    if min(rows, columns) > 1:
        other = next((power for power in (-1.0, 0.5, 2.0) if low <= power <= high), 1.0)
        triangle = np.tri(rows, columns) if rows > columns else np.tri(columns, rows).T
        values = np.where(triangle > 0, 1.0, other) * values[..., :1] * values[..., :1, :]
    return slot.cast(values)


@family(group=GroupName.NUMERIC, applies=lambda slot: _reach(slot) > 2, others=_units)
def half_integers(slot: Slot, rng: Rng) -> Array:
    """Halves between integers and the numbers next to them; the largest in each row is 127, or 1 if it is the only one.

    A kernel that quantises rows to int8 or rounds to integers has to decide every one of them. In a domain that ends
    before 127, the largest and half of the others are divided by a power of two. Other arguments, such as scales, are 1
    or -1, or 1 and 1/2 or 2 in matrices whose domain has no -1.
    """
    scale = 2.0 ** min(0.0, np.floor(np.log2(_reach(slot) / _INT8)))
    halves = (rng.integers(0, int(_INT8), slot.shape) + 0.5) * scale
    if scale < 1:
        halves = np.where(rng.random(slot.shape) < 0.5, np.floor(halves) + 0.5, halves)
    halves = halves.astype(slot.dtype)
    next_to = np.nextafter(halves, (scale * rng.choice((0, _INT8), slot.shape)).astype(slot.dtype))
    sizes = np.where(rng.random(slot.shape) < 0.75, halves, next_to).astype(np.float64)
    if slot.shape[-1:] > (1,):
        np.put_along_axis(sizes, rng.integers(0, slot.shape[-1], (*slot.shape[:-1], 1)), scale * _INT8, axis=-1)
    else:
        sizes = np.ones(slot.shape)
    return slot.cast(_sign(slot, sizes, rng))


# The largest numbers of narrow formats, and the ends of what rounds to them: int8, uint8, float8 (e4m3, e5m2), float16.
_LIMITS = (_INT8, 127.5, 128, 240, 255, 255.5, 256, 448, 464, 32767, 57344, 61440, _FLOAT16, 65520)


@family(group=GroupName.NUMERIC, applies=lambda slot: _reach(slot) >= _INT8)
def narrow_limits(slot: Slot, rng: Rng) -> Array:
    """Numbers around the largest ones of narrower formats (127, 255, 448, 65504), which a conversion must saturate."""
    known = np.array([limit for limit in _LIMITS if limit <= _reach(slot)])
    sizes = rng.choice(known, slot.shape) * rng.choice((1 - 2.0**-7, 1, 1, 1 + 2.0**-7), slot.shape)
    return slot.cast(_sign(slot, np.minimum(sizes, _reach(slot)), rng))


def _is_wide(slot: Slot) -> bool:
    """Returns whether a bounded domain reaches further than the other families."""
    return slot.domain.bounded and _reach(slot) > _FLOAT16


@family(group=GroupName.NUMERIC, applies=_is_wide)
def near_the_ends(slot: Slot, rng: Rng) -> Array:
    """Magnitudes from half the greatest number of the domain up to it, in all arguments."""
    return slot.cast(_sign(slot, rng.uniform(0.5, 1.0, slot.shape) * _reach(slot), rng))


@family(group=GroupName.NUMERIC, applies=_is_wide)
def one_at_the_end(slot: Slot, rng: Rng) -> Array:
    """One element of each row is the greatest number of the domain, among normal ones."""
    values = np.asarray(slot.sample(rng), np.float64)
    if slot.shape:
        np.put_along_axis(values, rng.integers(0, slot.shape[-1], (*slot.shape[:-1], 1)), _reach(slot), axis=-1)
    return slot.cast(values)


_NEGATIVE_NAN = float(np.copysign(np.nan, -1))


def _has_several(slot: Slot) -> bool:
    return is_data(slot) and slot.size > 1


@family(group=GroupName.STRUCTURAL, without_arrays=True)
def position_coded(slot: Slot, rng: Rng) -> Array:
    """Each element encodes its position, so that a shifted or swapped block is visible."""
    candidates = range(min(slot.exact_limit, 251), 2, -1)
    limit = next((p for p in candidates if all(p % d for d in range(2, int(p**0.5) + 1))), 2)  # a prime
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


def _has_floats(slot: Slot) -> bool:
    return slot.is_float_data and slot.size > 0


def _may_be_nan(slot: Slot) -> bool:
    return _has_floats(slot) and slot.domain.admits_nan


def _may_be_infinite(slot: Slot) -> bool:
    return _has_floats(slot) and slot.domain.admits_infinity(1)


def _may_be_negative_infinite(slot: Slot) -> bool:
    return _has_floats(slot) and slot.domain.admits_infinity(-1)


def _with_special(values: Array, position: int, special: float) -> Array:
    """Returns `values` with `special` at a position of the flattened array."""
    out = values.copy()
    out.reshape(-1)[position] = special
    return out


@family(group=GroupName.SPECIAL, applies=_may_be_infinite, each=True)
def one_inf(slot: Slot, rng: Rng) -> Array:
    """A single +inf."""
    return _with_special(normal(slot, rng), int(rng.integers(slot.size)), np.inf)


@family(group=GroupName.SPECIAL, applies=_may_be_negative_infinite, each=True)
def one_negative_inf(slot: Slot, rng: Rng) -> Array:
    """A single -inf."""
    return _with_special(normal(slot, rng), int(rng.integers(slot.size)), -np.inf)


def _mask_out(slot: Slot, where: tuple[int | slice | EllipsisType, ...], rng: Rng) -> Array:
    if slot.kind.is_mask:
        seen = np.ones(slot.shape, bool)
        seen[where] = False
        return seen
    values = normal(slot, rng)
    values[where] = -np.inf
    return values


def _can_be_masked(slot: Slot) -> bool:
    return bool(slot.shape) and (_may_be_negative_infinite(slot) or (slot.kind.is_mask and slot.size > 0))


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


@family(group=GroupName.SPECIAL, applies=_may_be_nan, each=True)
def nan_first(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element."""
    return _with_special(normal(slot, rng), 0, np.nan)


@family(group=GroupName.SPECIAL, applies=_may_be_nan, each=True)
def nan_last(slot: Slot, rng: Rng) -> Array:
    """A NaN whose sign bit is set in the last element."""
    return _with_special(normal(slot, rng), -1, _NEGATIVE_NAN)


def _has_tail(slot: Slot) -> bool:
    may_be_masked = _may_be_negative_infinite(slot) and bool(slot.shape)
    return may_be_masked and _may_be_nan(slot) and slot.shape[-1] > slot.block and slot.shape[-1] % slot.block != 0


@family(group=GroupName.SPECIAL, applies=_has_tail, each=True)
def nan_tail(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element past the last full block."""
    values = normal(slot, rng)
    values[..., slot.shape[-1] // slot.block * slot.block] = np.nan
    return values


@family(
    group=GroupName.SPECIAL,
    applies=lambda slot: _may_be_nan(slot) and _may_be_infinite(slot) and bool(slot.shape) and slot.shape[-1] > 1,
    each=True,
)
def nan_and_inf_in_one_tile(slot: Slot, rng: Rng) -> Array:
    """A NaN whose sign bit is set, next to an infinity."""
    values = _with_special(normal(slot, rng), 0, _NEGATIVE_NAN)
    return _with_special(values, 1, np.inf)


def _may_be_signed_zero(slot: Slot) -> bool:
    return _has_floats(slot) and slot.domain.admits_zero and not slot.domain.bounded


@family(group=GroupName.SPECIAL, applies=_may_be_signed_zero, each=True)
def signed_zeros(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs."""
    return slot.cast(rng.choice((-0.0, 0.0), slot.shape))


@family(group=GroupName.SPECIAL, applies=_may_be_signed_zero)
def signed_zeros_everywhere(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs in all arguments at once: -0 + 0 is 0, whereas -0 + y is y."""
    return signed_zeros(slot, rng)


def _may_be_huge(slot: Slot) -> bool:
    return _has_floats(slot) and slot.domain.reaches_extremes


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


@family(
    group=GroupName.SPECIAL,
    applies=lambda slot: is_data(slot) and is_integer(slot.dtype) and slot.domain.reaches_extremes,
)
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


@family(group=GroupName.SPECIAL, applies=lambda slot: _holds_integers(slot) and slot.dtype.itemsize <= 2)
def nearly_greatest_integers(slot: Slot, rng: Rng) -> Array:
    """The greatest integer of the domain and the next one below: large sums, odd and even ones."""
    low, high = slot.domain.finite_range(slot.dtype)
    return slot.cast(np.maximum(high - rng.integers(0, 2, slot.shape), low))


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
