"""Whether a machine would run what was planned on another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kerneltest.execute.item import Item
from kerneltest.execute.planning import planned_item
from kerneltest.records.schema import Plan
from kerneltest.records.sources import describe
from kerneltest.trace.tracing import environment, settings

_ALIKE = ("jax", "jaxlib", "numpy", "machine")


def differences(plan: Plan, parts: Sequence[Item], name: str) -> Iterator[str]:
    """In what an item as it was collected here differs from the plan of its run.

    Args:
      plan: of the run.
      parts: of the item.
      name: its node id.
    """
    here = {**{key: value for key, value in environment().items() if key in _ALIKE}, **settings()}
    backend = parts[0].backend
    if not backend.unavailable():
        here |= {f"{backend.id}: {key}": str(value) for key, value in backend.environment().items()}
    for key, value in here.items():
        if value != (planned := plan.environment.get(key, value)):
            yield f"{key} is {value}, and {planned} where the run was planned"
    mine, declared = describe(parts[0].pairing), plan.pairings[parts[0].pairing_id]
    unlike_sources = [mine.kernel.parts, mine.oracle.parts] != [declared.kernel.parts, declared.oracle.parts]
    if mine.declaration != declared.declaration or unlike_sources:
        yield f"{parts[0].pairing_id} is declared or written otherwise"
    elif [planned_item(part, name) for part in parts] != [each for each in plan.items if each.item == name]:
        yield f"{name} has other cases"
