"""Patterns of masks."""

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.plan.families import Rng, Slot, family, is_mask


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
