"""Named ways of filling a signature with values: each a function of a few lines, in a registry users extend.

A family is given a `Slot`, what there is to know of one array argument, and returns its values. Families with a
target (`each=True`) disturb one argument at a time; the others then hold ordinary values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.dtypes import Array, float_format, is_float, is_integer

GROUPS = ("structural", "numeric", "special", "masks")
NO_VALUES = "signatures"  # the group of tiers that take a signature somewhere and run nothing

Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class Slot:
    """One array argument of one signature.

    Attributes:
      role: `data`, `mask`, `index` or `length`.
      shape: its lengths, outermost first.
      dtype: its dtype.
      tiles: the kernel's block length for each axis, or None.
      domain: least and greatest value, or None.
      order: its position among the array arguments.
      end: for an index or a length, the length of the dim it points into.
      exact_limit: integers up to it may be multiplied in pairs and summed without any rounding.
    """

    role: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    tiles: tuple[int | None, ...]
    domain: tuple[float, float] | None
    order: int
    end: int
    exact_limit: int

    @property
    def is_float_data(self) -> bool:
        return self.role == "data" and is_float(self.dtype)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def tile(self) -> int:
        """The block length of the last axis, or all of it."""
        return (self.tiles[-1] or self.shape[-1]) if self.shape else 1

    def cast(self, values: Array) -> Array:
        """`values` moved into the domain, as the slot's dtype."""
        if self.domain is not None:
            low, high = self.domain
            if np.isfinite(low) and np.isfinite(high):
                values = np.where((values < low) | (values > high), low + np.abs(values) % (high - low or 1), values)
            values = np.clip(values, low, high)
        elif is_integer(self.dtype):
            info = ml_dtypes.iinfo(self.dtype)
            span = int(info.max) - int(info.min) + 1
            values = (np.asarray(values, np.int64) - int(info.min)) % span + int(info.min)
        return np.asarray(values).astype(self.dtype)


Fill = Callable[[Slot, Rng], Array]
Condition = Callable[[Slot], bool]


@dataclass(frozen=True, slots=True)
class Family:
    """A named way of filling arguments.

    Attributes:
      name: in ids and reports.
      group: one of `GROUPS`; structural families are judged bit for bit where the kernel's arithmetic allows.
      make: from a slot and a generator to its values.
      applies: whether a slot can be filled so.
      each: one case for each argument to which it applies, the others ordinary, rather than one for all.
      without_arrays: also planned for a kernel that takes no array at all.
    """

    name: str
    group: str
    make: Fill
    applies: Condition
    each: bool
    without_arrays: bool

    @property
    def what(self) -> str:
        """The family in a sentence."""
        return (self.make.__doc__ or self.name).strip()

    def fill(self, slot: Slot, rng: Rng, hit: bool) -> Array:
        """Values for a slot; ordinary ones where the family is not about it."""
        if hit and self.applies(slot):
            return self.make(slot, rng)
        return _ordinary(slot, rng, whole=self.group == "structural")


FAMILIES: dict[str, Family] = {}
SIGNATURE = Family("signature", NO_VALUES, lambda slot, rng: np.zeros(slot.shape), lambda slot: False, False, True)


def is_data(slot: Slot) -> bool:
    return slot.role == "data"


def is_float_data(slot: Slot) -> bool:
    return slot.is_float_data and slot.size > 0 and (slot.domain is None or not np.isfinite(slot.domain).all())


def is_integer_data(slot: Slot) -> bool:
    return slot.role == "data" and is_integer(slot.dtype) and slot.domain is None


def is_mask(slot: Slot) -> bool:
    return slot.role == "mask" and bool(slot.shape)


def has_axes(slot: Slot) -> bool:
    return is_float_data(slot) and bool(slot.shape) and (slot.domain is None or slot.domain[0] == -np.inf)


def family(
    *, group: str, applies: Condition = is_data, each: bool = False, without_arrays: bool = False, name: str = ""
) -> Callable[[Fill], Fill]:
    """Registers a function `(slot, rng) -> values` as a family under its own name.

    Raises:
      ValueError: an unknown group, or a name that is taken.
    """
    if group not in GROUPS:
        raise ValueError(f"family: unknown group {group!r}; choose one of {', '.join(GROUPS)}")

    def register(make: Fill) -> Fill:
        chosen = name or make.__name__
        if chosen in FAMILIES and FAMILIES[chosen].make.__module__ != make.__module__:
            raise ValueError(f"family: the name {chosen!r} is taken by {FAMILIES[chosen].make.__module__}")
        FAMILIES[chosen] = Family(chosen, group, make, applies, each, without_arrays)
        return make

    return register


def _ordinary(slot: Slot, rng: Rng, whole: bool) -> Array:
    match slot.role:
        case "mask":
            return rng.random(slot.shape) < 0.75
        case "index":
            return _with_ends(rng.integers(0, max(slot.end, 1), slot.shape), 0, max(slot.end - 1, 0), slot)
        case "length":
            return _with_ends(rng.integers(0, slot.end + 1, slot.shape), 0, slot.end, slot)
        case _:
            return small_integers(slot, rng) if whole or not is_float(slot.dtype) else normal(slot, rng)


def _with_ends(values: Array, low: int, high: int, slot: Slot) -> Array:
    flat = np.array(values).reshape(-1)
    flat[-1:], flat[:1] = high, low  # the first element wins where there is only one
    return flat.reshape(slot.shape).astype(slot.dtype)


def _at(slot: Slot, values: Array, position: int, special: float) -> Array:
    """`values` with `special` at a flat position of the last row (or of the vector)."""
    out = values.copy()
    out.reshape(-1)[position] = special
    return out


@family(group="structural", without_arrays=True)
def position_coded(slot: Slot, rng: Rng) -> Array:
    """Every element says where it came from, so that a shifted or swapped block shows."""
    limit = max(_prime_below(min(slot.exact_limit, 251)), 2)
    code = np.zeros(slot.shape, np.int64)
    for axis, stride in zip(range(len(slot.shape)), (1, 7, 31, 53), strict=False):
        where = np.arange(slot.shape[-1 - axis]) * stride
        code = code + where.reshape((-1,) + (1,) * axis)
    return slot.cast((code + 17 * slot.order) % limit - limit // 2)


@family(group="structural", without_arrays=False)
def small_integers(slot: Slot, rng: Rng) -> Array:
    """Random integers small enough for every product and sum to be exact."""
    limit = min(slot.exact_limit, 100)
    return slot.cast(rng.integers(-limit, limit + 1, slot.shape))


@family(group="structural")
def ones(slot: Slot, rng: Rng) -> Array:
    """All ones: a sum counts its terms, so a lost or doubled block shows as a count."""
    return slot.cast(np.ones(slot.shape))


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def normal(slot: Slot, rng: Rng) -> Array:
    """Normally distributed values."""
    return slot.cast(rng.standard_normal(slot.shape))


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def log_uniform(slot: Slot, rng: Rng) -> Array:
    """Magnitudes from 2^-12 to 2^5, both signs."""
    return slot.cast(np.exp2(rng.uniform(-12, 5, slot.shape)) * rng.choice((-1.0, 1.0), slot.shape))


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def large_and_small(slot: Slot, rng: Rng) -> Array:
    """One large value first in each row, small ones after it: a narrow accumulator loses these."""
    values = rng.uniform(0.5, 1.0, slot.shape) * 2.0**-4
    if slot.shape:
        values[..., :1] = 2.0**6
    return slot.cast(values)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def far_below_zero(slot: Slot, rng: Rng) -> Array:
    """Values around -200: their exponentials underflow unless the right maximum is subtracted."""
    return slot.cast(rng.standard_normal(slot.shape) - 200)


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def far_above_zero(slot: Slot, rng: Rng) -> Array:
    """Values around 200: their exponentials overflow unless a maximum is subtracted."""
    return slot.cast(rng.standard_normal(slot.shape) + 200)


@family(group="special", applies=is_float_data, each=True)
def one_inf(slot: Slot, rng: Rng) -> Array:
    """A single +inf."""
    return _at(slot, normal(slot, rng), int(rng.integers(slot.size)), np.inf)


@family(group="special", applies=lambda slot: has_axes(slot) or (is_float_data(slot) and not slot.domain), each=True)
def one_negative_inf(slot: Slot, rng: Rng) -> Array:
    """A single -inf."""
    return _at(slot, normal(slot, rng), int(rng.integers(slot.size)), -np.inf)


def _masked(slot: Slot, where: tuple[Any, ...], rng: Rng) -> Array:
    if slot.role == "mask":
        values = np.ones(slot.shape, bool)
        values[where] = False
        return values
    values = normal(slot, rng)
    values[where] = -np.inf
    return values


def _maskable(slot: Slot) -> bool:
    return has_axes(slot) or (is_mask(slot) and slot.size > 0)


@family(group="special", applies=_maskable, each=True)
def all_masked_tile(slot: Slot, rng: Rng) -> Array:
    """The first whole tile of the last axis is masked (-inf, or False in a mask)."""
    return _masked(slot, (..., slice(0, slot.tile)), rng)


@family(group="special", applies=lambda slot: _maskable(slot) and len(slot.shape) > 1, each=True)
def all_masked_row(slot: Slot, rng: Rng) -> Array:
    """One row is masked from end to end."""
    return _masked(slot, (..., int(rng.integers(slot.shape[-2])), slice(None)), rng)


@family(group="special", applies=_maskable, each=True)
def all_masked_array(slot: Slot, rng: Rng) -> Array:
    """Everything is masked."""
    return _masked(slot, (...,), rng)


@family(group="special", applies=is_float_data, each=True)
def nan_first(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element."""
    return _at(slot, normal(slot, rng), 0, np.nan)


@family(group="special", applies=is_float_data, each=True)
def nan_last(slot: Slot, rng: Rng) -> Array:
    """A NaN in the last element."""
    return _at(slot, normal(slot, rng), -1, np.nan)


def _has_tail(slot: Slot) -> bool:
    return has_axes(slot) and slot.shape[-1] > slot.tile and slot.shape[-1] % slot.tile != 0


@family(group="special", applies=_has_tail, each=True)
def nan_tail(slot: Slot, rng: Rng) -> Array:
    """A NaN in the first element past the last full tile."""
    values = normal(slot, rng)
    values[..., slot.shape[-1] // slot.tile * slot.tile] = np.nan
    return values


@family(group="special", applies=lambda slot: has_axes(slot) and slot.shape[-1] > 1, each=True)
def nan_and_inf_in_one_tile(slot: Slot, rng: Rng) -> Array:
    """A NaN and an infinity side by side."""
    values = _at(slot, normal(slot, rng), 0, np.nan)
    return _at(slot, values, 1, np.inf)


@family(group="special", applies=is_float_data, each=True)
def signed_zeros(slot: Slot, rng: Rng) -> Array:
    """Zeros of both signs."""
    return slot.cast(rng.choice((-0.0, 0.0), slot.shape))


@family(group="special", applies=lambda slot: is_float_data(slot) and slot.domain is None, each=True)
def subnormals(slot: Slot, rng: Rng) -> Array:
    """Numbers between the smallest subnormal and the smallest normal one, both signs."""
    fmt = float_format(slot.dtype)
    steps = rng.integers(1, 2 ** (fmt.precision - 1), slot.shape)
    return slot.cast(steps * fmt.smallest_subnormal * rng.choice((-1.0, 1.0), slot.shape))


@family(group="special", applies=lambda slot: is_float_data(slot) and slot.domain is None, each=True)
def largest_finite(slot: Slot, rng: Rng) -> Array:
    """One element is the dtype's largest finite number."""
    return _at(slot, normal(slot, rng), int(rng.integers(slot.size)), float(ml_dtypes.finfo(slot.dtype).max))


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
    tiles = -(-slot.shape[-1] // slot.tile)
    return np.repeat(rng.random((*slot.shape[:-1], tiles)) < 0.5, slot.tile, axis=-1)[..., : slot.shape[-1]]


@family(group="masks", applies=is_mask)
def random_mask(slot: Slot, rng: Rng) -> Array:
    """Each element is visible with probability one half."""
    return rng.random(slot.shape) < 0.5


def _prime_below(limit: int) -> int:
    return next((p for p in range(limit, 1, -1) if all(p % d for d in range(2, int(p**0.5) + 1))), 1)
