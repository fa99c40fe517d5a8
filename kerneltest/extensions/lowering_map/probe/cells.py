"""The cells of a map: their selection, their outcomes, and the results that merge equal ones."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .kernels import probes
from .kernels.base import AbsentError, LoweringProbe
from .lower_probe import EmptyError, lower
from .messages import first_cause
from .target import Target, TpuTarget


class Cell(NamedTuple):
    """A probe for one dtype and one target."""

    probe: LoweringProbe
    dtype: str
    target: Target


class CellOutcome(NamedTuple):
    """The outcome of a cell.

    Attributes:
      outcome: `compiles`, `lowers`, `error`, `unimplemented` or `absent`.
      message: JAX's or the compiler's; "" for a cell that lowers.
    """

    outcome: str
    message: str


def select_cells(targets: Sequence[Target], primitives: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Returns the cells to probe, without those of primitives that the target's kind does not have.

    Args:
      targets: to lower for.
      primitives: by name, with all variants or with one in brackets; all if there are none.

    Raises:
      ValueError: a primitive is unknown.
    """
    names = {probe: {probe.name, probe.name.split("[")[0]} for probe in probes()}
    if unknown := [name for name in primitives if name not in set().union(*names.values())]:
        raise ValueError(f"unknown primitive {', '.join(unknown)}")
    chosen = [probe for probe in names if not primitives or names[probe] & set(primitives)]
    return tuple(
        Cell(probe, dtype, target)
        for probe in chosen
        for dtype in probe.dtypes
        for target in targets
        if probe.only in ("", "tpu" if isinstance(target, TpuTarget) else "gpu")
    )


def probe_cell(cell: Cell, *, compiled: bool) -> CellOutcome | None:
    """Lowers a cell, and compiles it if `compiled`; None if lax itself refuses the dtype."""
    try:
        if not lower(*cell, compiled=compiled):
            return None
    except AbsentError as error:
        return CellOutcome("absent", str(error))
    except EmptyError as error:
        return CellOutcome("error", str(error))
    except Exception as error:
        message = first_cause(error)
        return CellOutcome("unimplemented" if "unimplemented primitive" in message.lower() else "error", message)
    return CellOutcome("compiles" if compiled else "lowers", "")


def merge_outcomes(cells: Sequence[Cell], outcomes: Sequence[CellOutcome | None]) -> list[dict[str, Any]]:
    """Returns the results of a map as JSON: dtypes and targets with the same primitive and outcome share a result."""
    accepted = {cell.probe.name for cell, outcome in zip(cells, outcomes, strict=True) if outcome}
    refused = CellOutcome("absent", "lax refuses it for every dtype")
    dtypes: dict[tuple[str, str, CellOutcome, str], list[str]] = {}
    for (probe, dtype, target), outcome in zip(cells, outcomes, strict=True):
        if outcome := outcome if probe.name in accepted else refused:
            dtypes.setdefault((probe.name, probe.group, outcome, target.id), []).append(dtype)
    targets: dict[tuple[str, str, CellOutcome, tuple[str, ...]], list[str]] = {}
    for (name, group, outcome, target_id), shared in dtypes.items():
        targets.setdefault((name, group, outcome, tuple(shared)), []).append(target_id)
    return [
        {"primitive": name, "group": group, **outcome._asdict(), "dtypes": shared, "targets": ids}
        for (name, group, outcome, shared), ids in targets.items()
    ]
