"""Named ways of filling a signature with values: the registry that users extend (`standard_families` fills it).

A family is given a `Slot`, what there is to know of one array argument, and returns its values. Families with a
target (`each=True`) disturb one argument at a time; the others then hold ordinary values. Numeric ones do both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer

GROUPS = ("structural", "numeric", "special", "masks")

Rng = np.random.Generator

_LARGEST_SCALE = 12  # as an exponent: a product with it stays finite in most formats


@dataclass(frozen=True, slots=True)
class Slot:
    """One array argument of one signature, which a family fills.

    Attributes:
      role: `data`, `mask`, `index` or `length`.
      shape: its lengths in elements, outermost first.
      dtype: of its values.
      blocks: the kernel's block length for each axis, in elements, or None.
      domain: least and greatest value of data; None for every value the dtype has.
      order: its position among the array arguments.
      end: for an index or a length, the length of the dim it points into.
      limit: finds out `exact_limit`, for which it evaluates the oracle once a signature.
    """

    role: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: tuple[int | None, ...]
    domain: tuple[float, float] | None
    order: int
    end: int
    limit: Callable[[], int]

    @property
    def exact_limit(self) -> int:
        """Integers up to it may be multiplied in pairs and summed without any rounding."""
        return self.limit()

    @property
    def is_float_data(self) -> bool:
        """Whether it holds data of a floating dtype."""
        return self.role == "data" and is_float(self.dtype)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape))

    @property
    def block(self) -> int:
        """The block length of the last axis, or all of its length; 1 without axes."""
        return (self.blocks[-1] or self.shape[-1]) if self.shape else 1

    def cast(self, values: Array) -> Array:
        """`values` moved into the domain, as the slot's dtype: integers wrap around, finite floats stay finite.

        A scale (`float8_e8m0fnu`) has no sign and no zero, so that `values` are its exponents.
        """
        if self.dtype.name == "float8_e8m0fnu":
            values = np.exp2(np.clip(np.rint(np.asarray(values, np.float64)), -_LARGEST_SCALE, _LARGEST_SCALE))
        if self.domain is not None:
            low, high = self.domain
            if np.isfinite(low) and np.isfinite(high):
                values = np.where((values < low) | (values > high), low + np.abs(values) % (high - low or 1), values)
            values = np.clip(values, low, high)
        elif is_integer(self.dtype) and self.dtype.itemsize < 8:
            info = ml_dtypes.iinfo(self.dtype)
            span = int(info.max) - int(info.min) + 1
            values = (np.asarray(values, np.int64) - int(info.min)) % span + int(info.min)
        if is_float(self.dtype):
            most = float(ml_dtypes.finfo(self.dtype).max)
            values = np.where(np.isfinite(values), np.clip(values, -most, most), values)
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
    def structural(self) -> bool:
        """Whether its values keep a kernel's arithmetic exact, so that no bit may be off."""
        return self.group == "structural"

    @property
    def what(self) -> str:
        """The family in a sentence."""
        return (self.make.__doc__ or self.name).strip()

    def fill(self, slot: Slot, rng: Rng, hit: bool) -> Array:
        """Values for a slot; ordinary ones where the family is not about it.

        Raises:
          ValueError: the family made values of another shape or dtype.
        """
        if not (hit and self.applies(slot)):
            return _ordinary(slot, rng, whole=self.structural)
        values = np.asarray(self.make(slot, rng))
        if (values.shape, values.dtype) != (slot.shape, slot.dtype):
            made, asked = [f"{each.dtype}{list(each.shape)}" for each in (values, slot)]
            raise ValueError(f"it made {made} and was asked for {asked}")
        return values


FAMILIES: dict[str, Family] = {}


def without_values(name: str, group: str) -> Family:
    """A family that fills no argument: its name is under what the cases of another group are recorded."""
    return Family(name, group, lambda slot, rng: np.zeros(slot.shape, slot.dtype), lambda slot: False, False, True)


def is_data(slot: Slot) -> bool:
    """Data of any dtype."""
    return slot.role == "data"


def is_unbounded(slot: Slot) -> bool:
    """Floats that may be infinite at one end at least, so that NaN may be among them."""
    return slot.is_float_data and slot.size > 0 and (slot.domain is None or not np.isfinite(slot.domain).all())


def is_unbounded_array(slot: Slot) -> bool:
    """Floats along some axis, of which any may be -inf."""
    return is_unbounded(slot) and bool(slot.shape) and (slot.domain is None or slot.domain[0] == -np.inf)


def is_integer_data(slot: Slot) -> bool:
    """Integers of any size."""
    return slot.role == "data" and is_integer(slot.dtype) and slot.domain is None


def is_mask(slot: Slot) -> bool:
    """Masks with axes."""
    return slot.role == "mask" and bool(slot.shape)


def family(
    *, group: str, applies: Condition = is_data, each: bool = False, without_arrays: bool = False, name: str = ""
) -> Callable[[Fill], Fill]:
    """Registers a function `(slot, rng) -> values` as a family; in a `conftest.py`, to try every suite with it.

        @kt.family(group="numeric", applies=lambda slot: slot.is_float_data)
        def far_above_zero(slot, rng):
            \"\"\"Values around 200.\"\"\"
            return slot.cast(rng.standard_normal(slot.shape) + 200)

    The function gets a `Slot` and a `numpy.random.Generator`, whose seed is the case's, and returns an array of the
    slot's shape and dtype. Its docstring is shown in reports.

    Args:
      group: how cases are judged: `structural` (values so small and whole that a kernel's arithmetic is exact, judged
        bit for bit), `numeric` (by the error bound), `special` (by class and bound) or `masks`.
      applies: whether a slot can be filled so; by default all data, whatever its dtype.
      each: one case for each argument that can be filled so, the others ordinary, rather than one for all at once. A
        numeric family that fills all at once also fills one alone, in turn, where there are several.
      without_arrays: also planned for a kernel that takes no array at all.
      name: of the family; by default the function's.

    Raises:
      ValueError: an unknown group, or a name that another module has taken.
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


@family(group="structural")
def small_integers(slot: Slot, rng: Rng) -> Array:
    """Random integers small enough for every product and sum to be exact."""
    limit = min(slot.exact_limit, 100)
    return slot.cast(rng.integers(-limit, limit + 1, slot.shape))


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def normal(slot: Slot, rng: Rng) -> Array:
    """Normally distributed values."""
    return slot.cast(rng.standard_normal(slot.shape))
