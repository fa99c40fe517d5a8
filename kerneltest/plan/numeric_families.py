"""The numeric families: finite values, each chosen to expose one kind of rounding error."""

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, float_format
from kerneltest.core.group_names import GroupName
from kerneltest.plan.families import Rng, Slot, family

_FLOAT16 = float(np.finfo(np.float16).max)


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
