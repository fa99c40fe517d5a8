"""The two ends of a run: its plan before, its reconciliation, summary and report after."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kerneltest.attribution import suspects
from kerneltest.item import Item
from kerneltest.limitations import idle
from kerneltest.options import in_order
from kerneltest.reconcile import Reconciled, reconcile
from kerneltest.record import Plan, PlannedItem, Record, RecordError, Writer, read_plan, read_records
from kerneltest.sources import describe
from kerneltest.trace import environment, version_problem
from kerneltest.verdicts import PASS, SEVERITY, UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended, for the terminal.

    Attributes:
      complete: every planned cell has one status and something was compared.
      lines: to print.
    """

    complete: bool
    lines: tuple[str, ...]


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


def record_crash(folder: Path, writer: Writer, node_id: str) -> None:
    """Records a crash for each cell of an item whose worker died; cases already recorded stand."""
    for item in read_plan(folder).items:
        if item.item != node_id:
            continue
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


def finish(folder: Path, *, write_report: bool) -> Summary:
    """Reconciles a run with its plan and writes its report.

    A folder that cannot be read is an incomplete run, not an exception: what was printed before stays.
    """
    try:
        plan = read_plan(folder)
        records = list(read_records(folder))
    except RecordError as error:
        return Summary(False, (f"INCOMPLETE: {error}",))
    reconciled = reconcile(plan, records)
    lines = [*_matrix(plan, reconciled), *_remarks(plan, reconciled), *_splits(records)]
    if write_report:
        from kerneltest.report.build import write_html

        lines.append(f"report: {write_html(folder / 'report.html', [folder])}")
    return Summary(reconciled.complete, tuple(lines))


def _splits(records: Sequence[Record]) -> Iterable[str]:
    counts = Counter(text for text in suspects(records).values() if text.startswith("the lowering for"))
    yield from (f"suspected lowering bug, {count} cases: {text}" for text, count in counts.items())


def _matrix(plan: Plan, reconciled: Reconciled) -> Iterable[str]:
    """One line a pairing, one column a backend (a tier, where it has several targets): cases by verdict."""
    tiers = list(dict.fromkeys(each.partition(":")[0] for each in in_order(item.backend for item in plan.items)))
    pairings = list(dict.fromkeys(item.pairing for item in plan.items))
    rows = [["", *tiers]]
    for pairing in pairings:
        row = [pairing]
        for tier in tiers:
            counts: dict[str, int] = {}
            where: dict[str, set[str]] = {}
            for cell, status in reconciled.cells.items():
                backend, _, target = cell[1].partition(":")
                if cell[0] != pairing or backend != tier:
                    continue
                verdicts = status.verdicts if status.verdict in status.verdicts else {status.verdict: 1}
                for verdict, count in verdicts.items():
                    counts[verdict] = counts.get(verdict, 0) + count
                    where.setdefault(verdict, set()).add(target)
            row.append(", ".join(_count(v, n, where[v]) for v, n in sorted(counts.items(), key=_rank)) or "-")
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _rank(counted: tuple[str, int]) -> int:
    return SEVERITY.get(counted[0], len(SEVERITY))


def _count(verdict: str, count: int, targets: set[str]) -> str:
    on = f" ({' '.join(sorted(targets))})" if targets != {""} and verdict != PASS else ""
    return f"{UNAVAILABLE if verdict == UNAVAILABLE else f'{count} {verdict}'}{on}"


def _remarks(plan: Plan, reconciled: Reconciled) -> Iterable[str]:
    yield from (f"{backend} unavailable: {reason}" for backend, reason in plan.unavailable.items())
    if "warning" in plan.environment:
        yield f"warning: {plan.environment['warning']}"
    missing = [cell for cell, status in reconciled.cells.items() if status.verdict == "missing"]
    if missing or reconciled.problems:
        yield f"INCOMPLETE: {len(missing)} of {len(reconciled.cells)} planned cells have cases without a record"
        yield from (f"  no verdict: {' / '.join(cell)}" for cell in missing[:10])
        yield from (f"  {problem}" for problem in reconciled.problems[:10])
    idle = [cell for cell, status in reconciled.cells.items() if status.verdict == "nothing compared"]
    yield from (f"nothing compared: {' / '.join(cell)}" for cell in idle[:10])
