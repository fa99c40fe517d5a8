"""Special families: NaN, infinities, zeros of both signs, subnormal and extreme numbers, and masked arrays."""

from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, float_format
from kerneltest.plan.families import (
    Rng,
    Slot,
    family,
    is_integer_data,
    is_mask,
    is_unbounded,
    is_unbounded_array,
    normal,
)


def _at(values: Array, position: int, special: float) -> Array:
    """`values` with `special` at a flat position."""
    out = values.copy()
    out.reshape(-1)[position] = special
    return out


@family(group="special", applies=is_unbounded, each=True)
def one_inf(slot: Slot, rng: Rng) -> Array:
    """A single +inf."""
    return _at(normal(slot, rng), int(rng.integers(slot.size)), np.inf)


@family(
    group="special",
    applies=lambda slot: is_unbounded_array(slot) or (is_unbounded(slot) and not slot.domain),
    each=True,
)
def one_negative_inf(slot: Slot, rng: Rng) -> Array:
    """A single -inf."""
    return _at(normal(slot, rng), int(rng.integers(slot.size)), -np.inf)


def _masked(slot: Slot, where: tuple[Any, ...], rng: Rng) -> Array:
    if slot.role == "mask":
        values = np.ones(slot.shape, bool)
        values[where] = False
        return values
    values = normal(slot, rng)
    values[where] = -np.inf
    return values


def _maskable(slot: Slot) -> bool:
    return is_unbounded_array(slot) or (is_mask(slot) and slot.size > 0)


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


@family(group="special", applies=is_unbounded, each=True)
def nan_first(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element."""
    return _at(normal(slot, rng), 0, np.nan)


@family(group="special", applies=is_unbounded, each=True)
def nan_last(slot: Slot, rng: Rng) -> Array:
    """A NaN in the last element."""
    return _at(normal(slot, rng), -1, np.nan)


def _has_tail(slot: Slot) -> bool:
    return is_unbounded_array(slot) and slot.shape[-1] > slot.block and slot.shape[-1] % slot.block != 0


@family(group="special", applies=_has_tail, each=True)
def nan_tail(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element past the last full block."""
    values = normal(slot, rng)
    values[..., slot.shape[-1] // slot.block * slot.block] = np.nan
    return values


@family(group="special", applies=lambda slot: is_unbounded_array(slot) and slot.shape[-1] > 1, each=True)
def nan_and_inf_in_one_tile(slot: Slot, rng: Rng) -> Array:
    """A NaN and an infinity side by side."""
    values = _at(normal(slot, rng), 0, np.nan)
    return _at(values, 1, np.inf)


@family(group="special", applies=is_unbounded, each=True)
def signed_zeros(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs."""
    return slot.cast(rng.choice((-0.0, 0.0), slot.shape))


@family(group="special", applies=is_unbounded)
def signed_zeros_everywhere(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs in all arguments at once, since -0 + 0 is 0 and -0 + y is y."""
    return signed_zeros(slot, rng)


@family(group="special", applies=lambda slot: is_unbounded(slot) and slot.domain is None, each=True)
def subnormals(slot: Slot, rng: Rng) -> Array:
    """Numbers between the smallest subnormal and the smallest normal one, both signs."""
    fmt = float_format(slot.dtype)
    steps = rng.integers(1, 2 ** (fmt.precision - 1), slot.shape)
    return slot.cast(steps * fmt.smallest_subnormal * rng.choice((-1.0, 1.0), slot.shape))


@family(group="special", applies=lambda slot: is_unbounded(slot) and slot.domain is None, each=True)
def largest_finite(slot: Slot, rng: Rng) -> Array:
    """One element is the dtype's largest finite number."""
    return _at(normal(slot, rng), int(rng.integers(slot.size)), float(ml_dtypes.finfo(slot.dtype).max))


@family(group="special", applies=is_integer_data)
def extreme_integers(slot: Slot, rng: Rng) -> Array:
    """The least and the greatest integer and their neighbours: sums wrap around."""
    info = ml_dtypes.iinfo(slot.dtype)
    edges = np.array([info.min, int(info.min) + 1, 0, 1, int(info.max) - 1, info.max], np.int64)
    return rng.choice(edges, slot.shape).astype(slot.dtype)
