"""Families: named ways of filling a signature with values, in a registry that users extend.

A family gets a `Slot`, the description of one array argument, and returns its values. Families with a target
(`each=True`) perturb one argument at a time, while the others hold random values. Numeric families may do both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import DeclarationError, raises_for_user
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.kinds.base import KINDS, EdgeValues
from kerneltest.declare.kinds.base import Rng as Rng
from kerneltest.declare.kinds.base import Slot as Slot

GROUPS = (GroupName.STRUCTURAL, GroupName.NUMERIC, GroupName.SPECIAL, GroupName.MASKS)

Fill = Callable[[Slot, Rng], Array]
Condition = Callable[[Slot], bool]


@dataclass(frozen=True, slots=True)
class Family:
    """A named way of filling arguments with values.

    Attributes:
      name: in ids and reports.
      group: one of `GROUPS`; structural families are judged bit for bit if the kernel's arithmetic allows it.
      make: takes a slot and a generator, returns values.
      applies: whether it can fill a slot.
      each: one case for each argument to which it applies, the others random, rather than one case for all.
      without_arrays: also planned for a kernel whose arrays no family fills, or that has none.
      others: fills the float data that it does not fill itself, instead of random numbers.
    """

    name: str
    group: str
    make: Fill
    applies: Condition
    each: bool
    without_arrays: bool
    others: Fill | None = None

    @property
    def structural(self) -> bool:
        """True if its values keep a kernel's arithmetic exact, so that every bit must be right."""
        return self.group == GroupName.STRUCTURAL

    @property
    def description(self) -> str:
        """The description of the family that reports show."""
        return (self.make.__doc__ or self.name).strip()

    def fill(self, slot: Slot, rng: Rng, targeted: bool) -> Array:
        """Returns values for a slot: random ones unless the family is `targeted` at it and applies to it.

        Raises:
          ValueError: the family returned values of another shape or dtype.
        """
        make: Fill | None = self.make
        if not (targeted and self.applies(slot)):
            make = self.others if slot.is_float_data else None
        if make is None:
            return slot.coerce(slot.sample(rng, exact=self.structural))
        values = slot.coerce(np.asarray(_call(make, slot, rng)))
        if (values.shape, values.dtype) != (slot.shape, slot.dtype):
            returned, expected = [f"{each.dtype}{list(each.shape)}" for each in (values, slot)]
            raise DeclarationError(f"it returned {returned} instead of {expected}")
        return values


@raises_for_user
def _call(make: Fill, slot: Slot, rng: Rng) -> object:
    return make(slot, rng)


FAMILIES: dict[str, Family] = {}


def marker_family(name: str, group: str) -> Family:
    """Returns a family that fills no argument. Cases of groups without families are recorded under its name."""
    return Family(name, group, lambda slot, rng: np.zeros(slot.shape, slot.dtype), lambda slot: False, False, True)


def is_filled(slot: Slot) -> bool:
    """Returns whether any family fills a slot, rather than its kind alone."""
    return any(family.applies(slot) for family in FAMILIES.values())


def is_data(slot: Slot) -> bool:
    """Returns whether a slot holds data, of any dtype."""
    return slot.kind.is_data


def family(
    *,
    group: str,
    applies: Condition = is_data,
    each: bool = False,
    without_arrays: bool = False,
    others: Fill | None = None,
    name: str = "",
) -> Callable[[Fill], Fill]:
    """Registers a function `(slot, rng) -> values` as a family; in a `conftest.py`, for every suite.

        @kt.family(group="numeric", applies=lambda slot: slot.is_float_data)
        def far_above_zero(slot, rng):
            \"\"\"Values around 200.\"\"\"
            return slot.cast(rng.standard_normal(slot.shape) + 200)

    The function gets a `Slot` and a `numpy.random.Generator` seeded by the case, and returns an array of the slot's
    shape and dtype. Reports show its docstring.

    Args:
      group: how cases are judged: `structural` (integers so small that a kernel's arithmetic is exact, judged bit for
        bit), `numeric` (by the error bound), `special` (by class and bound) or `masks`.
      applies: whether the family can fill a slot; by default, all data of any dtype.
      each: one case for each argument that it can fill, the others random, rather than one case for all. A numeric
        family that fills all arguments also fills single ones, in turn, if there are several.
      without_arrays: also planned for a kernel whose arrays no family fills (all are derived, or keys), or that has
        none.
      others: fills float data that the family does not fill itself; by default they are random numbers.
      name: of the family; by default the function's.

    Raises:
      ValueError: the group is unknown, or another module has registered the name.
    """
    if group not in GROUPS:
        raise ValueError(f"family: unknown group {group!r}; choose one of {', '.join(GROUPS)}")

    def register(make: Fill) -> Fill:
        chosen = name or make.__name__
        if chosen in FAMILIES and FAMILIES[chosen].make.__module__ != make.__module__:
            raise ValueError(f"family: the name {chosen!r} is taken by {FAMILIES[chosen].make.__module__}")
        FAMILIES[chosen] = Family(chosen, group, make, applies, each, without_arrays, others)
        return make

    return register


def register_edge_values(group: str) -> None:
    """Registers the edge cases that kinds of arguments bring with them, in a group, as families under their names."""
    by_name: dict[str, dict[str, EdgeValues]] = {}
    for role, kind in KINDS.items():
        for value in kind.edge_values():
            if value.group == group:
                by_name.setdefault(value.make.__name__, {})[role] = value
    for name, by_role in by_name.items():
        _register_by_role(group, name, by_role)


def _register_by_role(group: str, name: str, by_role: Mapping[str, EdgeValues]) -> None:
    def make(slot: Slot, rng: Rng) -> Array:
        return by_role[slot.role].make(slot, rng)

    make.__doc__ = next(iter(by_role.values())).make.__doc__
    family(group=group, applies=lambda slot: slot.role in by_role and by_role[slot.role].applies(slot), name=name)(make)


@family(group=GroupName.STRUCTURAL)
def small_integers(slot: Slot, rng: Rng) -> Array:
    """Random integers small enough for every product and sum to be exact."""
    return slot.sample(rng, exact=True)


@family(group=GroupName.NUMERIC, applies=lambda slot: slot.is_float_data, without_arrays=True)
def normal(slot: Slot, rng: Rng) -> Array:
    """Normally distributed values."""
    return slot.sample(rng)
