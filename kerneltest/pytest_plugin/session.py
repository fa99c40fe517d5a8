"""The two ends of a run: its plan before, its reconciliation, summary and report after."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kerneltest.run.item import Item
from kerneltest.run.xfails import idle
from kerneltest.records.schema import Plan, PlannedItem, Record
from kerneltest.records.io import RecordError, Writer, read_plan
from kerneltest.records.runs import read_runs
from kerneltest.records.sources import describe
from kerneltest.report.text.summary import lines
from kerneltest.jaxprs.trace import environment, version_problem


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended, for the terminal.

    Attributes:
      complete: every planned cell has one status and something was compared.
      lines: to print, each with its colour or "".
    """

    complete: bool
    lines: tuple[tuple[str, str], ...]


def plan_of(items: Sequence[Item], node_ids: Sequence[str], depth: str, seed: int) -> Plan:
    """The plan of a run's items, under the names that select them."""
    backends = {item.backend.id: item.backend for item in items}
    reasons = {name: backend.unavailable() for name, backend in backends.items()}
    facts = {name: backend.environment() for name, backend in backends.items() if not reasons[name]}
    pairings = {item.pairing_id: item.pairing for item in items}
    limited = {item.pairing_id: item.pairing.limitations for item in items if item.pairing.limitations}
    problem = version_problem()
    warnings = [problem] if problem else []
    for pairing, declared in limited.items():
        cells = [(i.backend.id, i.dtype, family) for i in items if i.pairing_id == pairing for family in i.families()]
        warnings += [
            f"a limitation of {pairing} ({x.verdict} on {x.backend}, {x.dtype}, {x.family}) matches nothing planned"
            for x in idle(declared, cells)
        ]
    return Plan(
        items=tuple(
            PlannedItem(name, item.pairing_id, item.backend.id, item.dtype, item.group, item.families())
            for item, name in zip(items, node_ids, strict=True)
        ),
        seed=seed,
        depth=depth,
        environment={
            **environment(),
            **({"warning": "; ".join(warnings)} if warnings else {}),
            **{f"{name}: {key}": value for name, found in facts.items() for key, value in found.items()},
        },
        unavailable={name: reason for name, reason in reasons.items() if reason},
        limitations={
            name: tuple(f"{x.verdict} on {x.backend}, {x.dtype}, {x.family}: {x.reason} ({x.url})" for x in declared)
            for name, declared in limited.items()
        },
        fuzz=max((item.fuzz for item in items), default=0),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        pairings={name: describe(pairing) for name, pairing in pairings.items()},
    )


def record_crash(folder: Path, writer: Writer, node_id: str) -> list[PlannedItem]:
    """Records a crash for each cell of an item whose worker died; cases already recorded stand. Returns the item."""
    died = [item for item in read_plan(folder).items if item.item == node_id]
    for item in died:
        for family in item.families:
            writer.write(
                Record(
                    item=item.item,
                    pairing=item.pairing,
                    backend=item.backend,
                    dtype=item.dtype,
                    group=item.group,
                    family=family,
                    signature="*",
                    target="",
                    case="",
                    verdict="crash",
                    message="the worker process died while it ran this item",
                )
            )
    return died


def finish(folder: Path, *, write_report: bool, width: int | None = None) -> Summary:
    """Reconciles a run with its plan and writes its report.

    Args:
      folder: of the run.
      write_report: whether to write its page.
      width: of the terminal, in columns; None for lines of any length.

    A folder that cannot be read is an incomplete run, not an exception: what was printed before stays.
    """
    try:
        (run,) = read_runs(folder)
    except RecordError as error:
        return Summary(False, ((f"INCOMPLETE: {error}", "red"),))
    told = list(lines(run, width))
    if write_report:
        from kerneltest.report.html.build import write_html

        told.append((f"report: {write_html(folder / 'report.html', [run])}", ""))
    return Summary(run.reconciled.complete, tuple(told))
