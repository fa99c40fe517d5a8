"""The groups of families of a run, built-in, by extensions and by users."""

from kerneltest.core.extension_registry import AFTER_BUILT_IN, Registry
from kerneltest.execute.fuzz_group import FuzzGroup
from kerneltest.execute.invariant_group import InvariantGroup
from kerneltest.execute.item import Group
from kerneltest.execute.production_group import ProductionGroup
from kerneltest.execute.rejection_group import RejectionGroup
from kerneltest.execute.value_groups import SignatureGroup, ValueGroup
from kerneltest.plan.families import GROUPS

_REGISTRY: Registry[Group] = Registry("group", extended_by="groups")


def register_group(group: Group, *, order: int = AFTER_BUILT_IN) -> Group:
    """Registers a group of families, so that runs plan and judge its cases; in the root folder's `conftest.py`.

    Args:
      group: with a name that no other group has.
      order: its position in an item; those of kerneltest are 10 to 90.

    Returns:
      The group.

    Raises:
      ValueError: the name is taken.
    """
    _REGISTRY.add(group, type(group).__module__, order)
    return group


def registered_groups() -> tuple[Group, ...]:
    """All groups, in the order in which an item runs them."""
    return _REGISTRY.entries()


def find_group(name: str) -> Group | None:
    """The group that records name so, or None."""
    return _REGISTRY.get(name)


for _order, _group in (
    (10, SignatureGroup()),
    *((20, ValueGroup(name)) for name in GROUPS),
    (30, InvariantGroup()),
    (40, ProductionGroup()),
    (50, RejectionGroup()),
    (90, FuzzGroup()),
):
    register_group(_group, order=_order)
