"""What started and what stopped lowering between two maps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from kerneltest.extensions.lowering_map.map import Cell, LoweringMap, LoweringOutcome, MapError

REFUSED = "refused when traced"  # JAX refuses the dtype before Pallas sees it
_LOWERED = frozenset(outcome.value for outcome in LoweringOutcome if outcome.is_lowered)


@dataclass(frozen=True, slots=True)
class Change:
    """Cells of one primitive that lowered before and do not now, or the reverse.

    Attributes:
      primitive: as JAX calls it.
      before, after: outcomes, or `REFUSED`.
      dtypes, targets: of the cells.
      message: of the first of them, where it does not lower.
    """

    primitive: str
    before: str
    after: str
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]
    message: str

    @property
    def stopped(self) -> bool:
        """Whether the cells lowered before."""
        return self.before in _LOWERED


def compare(old: LoweringMap, new: LoweringMap) -> tuple[Change, ...]:
    """What changed, over the primitives and targets that both maps hold.

    Raises:
      MapError: they have nothing in common, or only one was compiled.
    """
    if bool(old.compilers) != bool(new.compilers):
        raise MapError("one map was compiled and the other only lowered: measure both with --compile, or both without")
    targets = set(old.targets) & set(new.targets)
    primitives = old.groups.keys() & new.groups.keys()
    if not targets or not primitives:
        raise MapError("the two maps have no target or no primitive in common")
    cells = [c for c in {**new.cells, **old.cells} if c.primitive in primitives and c.target in targets]
    changes = [change for cell in cells if (change := _change(cell, old, new))]
    return tuple(_merged(_merged(changes, "dtypes"), "targets"))


def successive_changes(maps: Sequence[LoweringMap]) -> list[tuple[LoweringMap, LoweringMap, tuple[Change, ...]]]:
    """What changed from each map to the next."""
    return [(old, new, compare(old, new)) for old, new in pairwise(maps)]


def _change(cell: Cell, old: LoweringMap, new: LoweringMap) -> Change | None:
    results = [lowering_map.cells.get(cell) for lowering_map in (old, new)]
    before, after = (str(result.outcome) if result else REFUSED for result in results)
    if (before in _LOWERED) == (after in _LOWERED):
        return None
    message = next((result.message for result in results if result and not result.outcome.is_lowered), "")
    return Change(cell.primitive, before, after, (cell.dtype,), (cell.target,), message)


def _merged(changes: Iterable[Change], field: Literal["dtypes", "targets"]) -> Iterable[Change]:
    """The changes, those as one that differ in one field only; of their messages, the first."""
    merged: dict[Change, Change] = {}
    for change in changes:
        nothing: dict[str, Any] = {field: (), "message": ""}
        rest = replace(change, **nothing)
        if rest in merged:
            both: dict[str, Any] = {field: (*getattr(merged[rest], field), *getattr(change, field))}
            merged[rest] = replace(merged[rest], **both)
        else:
            merged[rest] = change
    return merged.values()
