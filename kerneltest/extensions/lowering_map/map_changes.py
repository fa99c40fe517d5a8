"""The differences between two maps: cells that started or stopped lowering."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from kerneltest.extensions.lowering_map.map_model import LoweringMap, LoweringOutcome, MapCell, MapError

REFUSED = "refused when traced"  # JAX itself refuses the dtype
_LOWERED = frozenset(outcome.value for outcome in LoweringOutcome if outcome.is_lowered)


@dataclass(frozen=True, slots=True)
class LoweringChange:
    """Cells of one primitive that started or stopped lowering.

    Attributes:
      primitive: its name in JAX.
      before, after: outcomes, or `REFUSED`.
      dtypes, targets: of the cells.
      message: of the first cell, from the map in which it does not lower.
    """

    primitive: str
    before: str
    after: str
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]
    message: str

    @property
    def stopped(self) -> bool:
        """True if the cells lowered in the old map."""
        return self.before in _LOWERED


def compare_maps(old: LoweringMap, new: LoweringMap) -> tuple[LoweringChange, ...]:
    """Returns the changes, over the primitives and targets that both maps have.

    Raises:
      MapError: the maps have nothing in common, or only one was compiled.
    """
    if bool(old.compilers) != bool(new.compilers):
        raise MapError("only one of the maps was compiled: measure both with --compile, or both without")
    targets = set(old.targets) & set(new.targets)
    primitives = old.groups.keys() & new.groups.keys()
    if not targets or not primitives:
        raise MapError("the maps have no target or no primitive in common")
    cells = [c for c in {**new.cells, **old.cells} if c.primitive in primitives and c.target in targets]
    changes = [change for cell in cells if (change := _change(cell, old, new))]
    return tuple(_merge(_merge(changes, "dtypes"), "targets"))


def successive_changes(
    maps: Sequence[LoweringMap],
) -> list[tuple[LoweringMap, LoweringMap, tuple[LoweringChange, ...]]]:
    """Returns each map, the next one and the changes between them."""
    return [(old, new, compare_maps(old, new)) for old, new in pairwise(maps)]


def _change(cell: MapCell, old: LoweringMap, new: LoweringMap) -> LoweringChange | None:
    results = [lowering_map.cells.get(cell) for lowering_map in (old, new)]
    before, after = (str(result.outcome) if result else REFUSED for result in results)
    if (before in _LOWERED) == (after in _LOWERED):
        return None
    message = next((result.message for result in results if result and not result.outcome.is_lowered), "")
    return LoweringChange(cell.primitive, before, after, (cell.dtype,), (cell.target,), message)


def _merge(changes: Iterable[LoweringChange], field: Literal["dtypes", "targets"]) -> Iterable[LoweringChange]:
    """Merges changes that differ in one field only, and keeps the first of their messages."""
    merged: dict[LoweringChange, LoweringChange] = {}
    for change in changes:
        nothing: dict[str, Any] = {field: (), "message": ""}
        rest = replace(change, **nothing)
        if rest in merged:
            both: dict[str, Any] = {field: (*getattr(merged[rest], field), *getattr(change, field))}
            merged[rest] = replace(merged[rest], **both)
        else:
            merged[rest] = change
    return merged.values()
