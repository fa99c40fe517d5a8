"""The numeric families: finite values, each chosen to expose one kind of rounding error."""

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, float_format
from kerneltest.core.group_names import GroupName
from kerneltest.declare.domains import SCALE
from kerneltest.plan.families import Rng, Slot, family

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
    """One large value first in each row, then small ones, which a narrow accumulator loses."""
    values = rng.uniform(0.5, 1.0, slot.shape) * 2.0**-4
    if slot.shape:
        values[..., :1] = 2.0**6
    return slot.cast(values)


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data)
def small_and_large(slot: Slot, rng: Rng) -> Array:
    """Small values first in each row, then a large one: the loss in a narrow accumulator depends on the order."""
    return np.ascontiguousarray(large_and_small(slot, rng)[..., ::-1]) if slot.shape else large_and_small(slot, rng)


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
    has_floats = slot.is_float_data and slot.size > 0 and slot.dtype.name != SCALE
    return slot.domain.finite_range(slot.dtype)[1] if has_floats else 0.0


def _sign(slot: Slot, sizes: Array, rng: Rng) -> Array:
    """Returns numbers with random signs, as far as the domain admits negative ones."""
    return np.where(
        -sizes >= slot.domain.finite_range(slot.dtype)[0], sizes * rng.choice((-1.0, 1.0), slot.shape), sizes
    )


@family(group=GroupName.NUMERIC, applies=lambda slot: _reach(slot) >= _INT8)
def half_integers(slot: Slot, rng: Rng) -> Array:
    """Halves between integers and the numbers next to them; the largest in each row is 127, or 1 if it is the only one.

    A kernel that quantises rows to int8 or rounds to integers has to decide every one of them.
    """
    halves = (rng.integers(0, int(_INT8), slot.shape) + 0.5).astype(slot.dtype)
    next_to = np.nextafter(halves, rng.choice((0, _INT8), slot.shape).astype(slot.dtype))
    sizes = np.where(rng.random(slot.shape) < 0.75, halves, next_to).astype(np.float64)
    if slot.shape[-1:] > (1,):
        np.put_along_axis(sizes, rng.integers(0, slot.shape[-1], (*slot.shape[:-1], 1)), _INT8, axis=-1)
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
