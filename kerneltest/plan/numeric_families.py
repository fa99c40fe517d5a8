"""The numeric families: ordinary finite values, each so chosen that a kind of rounding error shows in them."""

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, float_format
from kerneltest.plan.families import Rng, Slot, family

_FLOAT16 = float(np.finfo(np.float16).max)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def log_uniform(slot: Slot, rng: Rng) -> Array:
    """Magnitudes from 2^-12 to 2^5, both signs."""
    return slot.cast(np.exp2(rng.uniform(-12, 5, slot.shape)) * rng.choice((-1.0, 1.0), slot.shape))


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def wide_magnitudes(slot: Slot, rng: Rng) -> Array:
    """Magnitudes from 2^-26 to 2^20, as far as the dtype goes: past both ends of what float16 holds exactly."""
    most = min(20, float_format(slot.dtype).max_exponent - 1)
    return slot.cast(np.exp2(rng.uniform(-26, most, slot.shape)) * rng.choice((-1.0, 1.0), slot.shape))


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def small_rows(slot: Slot, rng: Rng) -> Array:
    """Each row ordinary values times a power of two from 2^-20 to 2^-4: what is added to a sum of them, such as an
    epsilon, shows."""
    scales = np.exp2(rng.integers(-20, -3, (*slot.shape[:-1], 1) if slot.shape else ()))
    return slot.cast(rng.standard_normal(slot.shape) * scales)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def large_and_small(slot: Slot, rng: Rng) -> Array:
    """One large value first in each row, small ones after it: a narrow accumulator loses these."""
    values = rng.uniform(0.5, 1.0, slot.shape) * 2.0**-4
    if slot.shape:
        values[..., :1] = 2.0**6
    return slot.cast(values)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def small_and_large(slot: Slot, rng: Rng) -> Array:
    """The same with the large value last: what a narrow accumulator loses depends on the order."""
    return np.ascontiguousarray(large_and_small(slot, rng)[..., ::-1]) if slot.shape else large_and_small(slot, rng)


@family(group="numeric", applies=lambda slot: slot.is_float_data and slot.size > 1)
def alternating(slot: Slot, rng: Rng) -> Array:
    """Terms that cancel in pairs but for their last digits."""
    pairs = rng.uniform(1.0, 2.0, slot.shape)
    pairs[..., 1::2] = -pairs[..., : slot.shape[-1] // 2 * 2 : 2] * (1 + 2.0**-6)
    return slot.cast(pairs)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def far_below_zero(slot: Slot, rng: Rng) -> Array:
    """Values around -200: their exponentials underflow unless the right maximum is subtracted."""
    return slot.cast(rng.standard_normal(slot.shape) - 200)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def below_sentinels(slot: Slot, rng: Rng) -> Array:
    """Values around -2^15, below the -10000 that is taken for -inf by those who avoid it."""
    return slot.cast(32 * rng.standard_normal(slot.shape) - 2.0**15)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def far_above_zero(slot: Slot, rng: Rng) -> Array:
    """Values around 200: their exponentials overflow unless a maximum is subtracted."""
    return slot.cast(rng.standard_normal(slot.shape) + 200)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def constant(slot: Slot, rng: Rng) -> Array:
    """Every element 0.1, rounded: errors of a sum add up, where those of random terms cancel."""
    return slot.cast(np.full(slot.shape, 0.1))


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def nearly_constant(slot: Slot, rng: Rng) -> Array:
    """Values around 1, a hundredth apart: what is left of differences of sums, as in a variance in one pass."""
    return slot.cast(1 + 2.0**-7 * rng.standard_normal(slot.shape))


def _largest(slot: Slot) -> float:
    """The largest number that an argument may hold, or that float16 does; 0 where its author set that aside."""
    own = min(_FLOAT16, float(ml_dtypes.finfo(slot.dtype).max))
    if slot.domain.reaches_extremes:
        return own
    return min(own, slot.domain.high) if np.isfinite(slot.domain.high) else 0.0


@family(group="numeric", applies=lambda slot: slot.is_float_data and _largest(slot) > 0, each=True)
def nearly_largest(slot: Slot, rng: Rng) -> Array:
    """Values from half the largest float16 to all of it: a mean of them is in range, and a sum in float16 is not."""
    return slot.cast(rng.uniform(0.5, 1.0, slot.shape) * _largest(slot))
