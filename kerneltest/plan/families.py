"""Named ways of filling a signature with values: the registry that users extend (`standard_families` fills it).

A family is given a `Slot`, what there is to know of one array argument, and returns its values. Families with a
target (`each=True`) disturb one argument at a time; the others then hold ordinary values. Numeric ones do both.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.plan.constrained import ordinary
from kerneltest.plan.slots import Slot as Slot

GROUPS = ("structural", "numeric", "special", "masks")

Rng = np.random.Generator

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
            if slot.role == "data":
                values = small_integers(slot, rng) if self.structural or not is_float(slot.dtype) else normal(slot, rng)
            else:
                values = ordinary(slot, rng)
            return slot.kept(values)
        values = slot.kept(np.asarray(self.make(slot, rng)))
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


def may_be_nan(slot: Slot) -> bool:
    """Floats among which NaN may be."""
    return slot.is_float_data and slot.size > 0 and slot.domain.admits_nan


def may_be_infinite(slot: Slot) -> bool:
    """Floats among which +inf may be."""
    return slot.is_float_data and slot.size > 0 and slot.domain.admits_infinity(1)


def may_be_masked(slot: Slot) -> bool:
    """Floats along some axis, of which any may be -inf."""
    return may_be_negative_infinite(slot) and bool(slot.shape)


def may_be_negative_infinite(slot: Slot) -> bool:
    """Floats among which -inf may be."""
    return slot.is_float_data and slot.size > 0 and slot.domain.admits_infinity(-1)


def is_integer_data(slot: Slot) -> bool:
    """Integers of any size."""
    return slot.role == "data" and is_integer(slot.dtype) and slot.domain.reaches_extremes


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


@family(group="structural")
def small_integers(slot: Slot, rng: Rng) -> Array:
    """Random integers small enough for every product and sum to be exact."""
    limit = min(slot.exact_limit, 100)
    return slot.cast(rng.integers(-limit, limit + 1, slot.shape))


@family(group="numeric", applies=lambda slot: slot.is_float_data)
def normal(slot: Slot, rng: Rng) -> Array:
    """Normally distributed values."""
    return slot.cast(rng.standard_normal(slot.shape))
