"""Masks: values that say which elements count. Declared by `kt.mask`."""

import math
from collections.abc import Callable, Sequence
from numbers import Real

import numpy as np
from ml_dtypes import iinfo

from kerneltest.core.dtypes import Array, is_float, parse_dtype
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.kinds.base import (
    ArgumentKind,
    ArrayArgument,
    Dtypes,
    EdgeValues,
    Rng,
    Slot,
    array_argument,
    register,
)
from kerneltest.declare.problems import hide_frames


@hide_frames
def mask(shape: str, dtypes: Dtypes = "bool", *, hidden: float = 0, shown: float = 1) -> ArrayArgument:
    """Declares an array that says which elements count: booleans, or two numbers.

    The plan masks nothing, everything, one element, all but one, whole blocks and a row, and uses a causal, a ragged
    and a random pattern.

        kt.mask("m n"), kt.mask("m n", "int32"), kt.mask("m n", "float32", hidden=-np.inf, shown=0)

    Args:
      shape: as for `array`, as in `"m n"`, or `"b"` for one flag a sequence. Whole blocks are masked along dims
        with a block.
      dtypes: `"bool"`, or dtypes of numbers, as for `array`.
      hidden, shown: the value of an element that does not count, and that of one that does.
    """
    problem = ""
    if not all(isinstance(value, (Real, np.number)) for value in (hidden, shown)):
        problem = f"hidden= and shown= are numbers, not {hidden!r} and {shown!r}"
    elif hidden == shown:
        problem = f"hidden= and shown= are both {shown!r}; they must differ"
    return array_argument(shape, dtypes, "mask", mask_values=(hidden, shown), problem=problem)


@register("mask")
class Mask(ArgumentKind):
    """Two values: one for elements that are masked (hidden), one for those that are visible (shown)."""

    noun = "mask"
    is_mask = True

    def find_mistake(self, leaf: ArrayArgument) -> str:
        hidden, shown = leaf.mask_values
        for each in dict.fromkeys([*leaf.dtypes, *(name for names in leaf.on.values() for name in names)]):
            if hidden == shown or not _distinguishes(each, leaf.mask_values):
                return (
                    f"as a mask, {each} cannot represent both hidden={hidden:g} and shown={shown:g}; choose a dtype "
                    "that can, as in kt.mask('m n', 'float32', hidden=..., shown=...)"
                )
        return ""

    def edge_values(self) -> Sequence[EdgeValues]:
        patterns: dict[Callable[[Slot, Rng], Array], Callable[[Slot], bool]] = {
            self.no_mask: lambda slot: bool(slot.shape),
            self.causal: lambda slot: len(slot.shape) > 1,
            self.ragged: lambda slot: bool(slot.shape),
            self.whole_tiles: lambda slot: bool(slot.shape) and slot.block < slot.shape[-1],
            self.random_mask: lambda slot: bool(slot.shape),
            self.one_visible: lambda slot: slot.size > 1,
            self.one_hidden: lambda slot: slot.size > 1,
        }
        return [EdgeValues(make, applies, GroupName.MASKS) for make, applies in patterns.items()]

    def no_mask(self, slot: Slot, rng: Rng) -> Array:
        """Everything is visible."""
        return np.ones(slot.shape, bool)

    def causal(self, slot: Slot, rng: Rng) -> Array:
        """Row i sees columns up to i."""
        return np.tril(np.ones(slot.shape, bool))

    def ragged(self, slot: Slot, rng: Rng) -> Array:
        """Each row sees a prefix of random length."""
        ends = rng.integers(0, slot.shape[-1] + 1, (*slot.shape[:-1], 1))
        return np.asarray(np.arange(slot.shape[-1]) < ends)

    def whole_tiles(self, slot: Slot, rng: Rng) -> Array:
        """Each tile of the last axis is visible or masked as a whole."""
        blocks = -(-slot.shape[-1] // slot.block)
        return np.repeat(rng.random((*slot.shape[:-1], blocks)) < 0.5, slot.block, axis=-1)[..., : slot.shape[-1]]

    def random_mask(self, slot: Slot, rng: Rng) -> Array:
        """Each element is visible with probability one half."""
        return rng.random(slot.shape) < 0.5

    def one_visible(self, slot: Slot, rng: Rng) -> Array:
        """One element is visible."""
        return np.asarray(np.arange(slot.size).reshape(slot.shape) == rng.integers(slot.size))

    def one_hidden(self, slot: Slot, rng: Rng) -> Array:
        """One element is masked."""
        return ~self.one_visible(slot, rng)

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns a mask of which three quarters are visible."""
        return np.where(rng.random(slot.shape) < 0.75, *slot.mask_values[::-1])

    def repair(self, slot: Slot, values: Array) -> Array:
        return np.where(values == np.asarray(slot.mask_values[0]).astype(slot.dtype), *slot.mask_values)

    def canonical(self, slot: Slot) -> Array:
        return np.full(slot.shape, slot.mask_values[1], slot.dtype)

    def coerce(self, slot: Slot, values: Array) -> Array:
        """Returns the mask's own two values for booleans."""
        return np.where(values, *slot.mask_values[::-1]).astype(slot.dtype) if values.dtype == np.bool_ else values

    def finite_range(self, slot: Slot) -> tuple[float, float]:
        return min(slot.mask_values), max(slot.mask_values)

    def element(self, slot: Slot, number: float) -> float:
        return slot.mask_values[bool(number)]

    def code_table(self, slot: Slot, codes: Array) -> Array:
        """Returns a mask of which four fifths are visible."""
        return slot.coerce(np.asarray(codes % 5 != 3))


def _distinguishes(dtype_name: str, values: tuple[float, float]) -> bool:
    """Returns whether a dtype holds two values precisely enough to tell them apart."""
    dtype = parse_dtype(dtype_name)
    if is_float(dtype):
        rounded = [float(np.asarray(value).astype(dtype)) for value in values]
        return rounded[0] != rounded[1] and not any(math.isnan(value) for value in values)
    least, most = (0, 1) if dtype == np.bool_ else (int(iinfo(dtype).min), int(iinfo(dtype).max))
    return all(least <= value <= most and value == int(value) for value in values)
