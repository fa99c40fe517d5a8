"""What the page says in words: gaps, what was unavailable, kinds of findings, families, runs."""

from collections import Counter
from dataclasses import dataclass

from kerneltest.records.attribution import lowering_bugs
from kerneltest.records.schema import Record
from kerneltest.report.html.look import LETTERS, kind, rank
from kerneltest.report.html.matrix import counted, totals
from kerneltest.report.html.merge import Merged


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in the table of runs.

    Attributes:
      state: `INCOMPLETE`, `findings` or `no finding`.
      shown: whether the matrix takes at least one cell from it.
      cells: how many were planned.
      sums: these by status.
    """

    name: str
    started: str
    depth: str
    seed: int
    state: str
    shown: bool
    cells: int
    sums: list[tuple[str, int, str]]
    environment: dict[str, str]


def run_lines(merged: Merged) -> list[RunLine]:
    """A line for each run, oldest first."""
    found = []
    for number, run in enumerate(merged.runs):
        done = run.reconciled
        state = "INCOMPLETE" if not done.complete else "no finding" if done.green else "findings"
        sums = totals(status.verdict for status in done.cells.values())
        environment = {key: str(value) for key, value in run.plan.environment.items()}
        shown = number in merged.contributing
        plan = run.plan
        found.append(
            RunLine(run.name, plan.started, plan.depth, plan.seed, state, shown, len(done.cells), sums, environment)
        )
    return found


def problems(merged: Merged) -> list[str]:
    """What is wrong with the bookkeeping of the runs shown."""
    found = []
    for number in sorted(merged.contributing):
        run = merged.runs[number]
        prefix = f"{run.name}: " if len(merged.runs) > 1 else ""
        found += [f"{prefix}{problem}" for problem in run.reconciled.problems]
        found += [f"{prefix}no verdict: {' / '.join(cell)}" for cell in run.reconciled.missing]
    return found


def unavailable(merged: Merged) -> list[tuple[str, str, str]]:
    """Backend, reason and, where the matrix shows another run's results for it, that run's name; for each run."""
    served = {row.record.backend: merged.runs[row.run].name for row in merged.rows if row.verdict != "unavailable"}
    found = []
    for run in merged.runs:
        for backend, reason in run.plan.unavailable.items():
            words = f"in {run.name}: {reason}" if len(merged.runs) > 1 else reason
            found.append((backend, words, served.get(backend, "")))
    return found


def refusals(merged: Merged) -> list[tuple[str, str, str]]:
    """Pairing, backend and reason, where a backend that is there cannot serve a kernel."""
    return sorted(
        {
            (row.record.pairing, row.record.backend, row.record.message)
            for row in merged.rows
            if row.verdict == "unavailable" and row.record.backend not in merged.runs[row.run].plan.unavailable
        }
    )


def splits(merged: Merged) -> list[tuple[str, int]]:
    """Suspected lowering bugs, with how many cases show each."""
    return lowering_bugs(row.record for row in merged.rows).most_common()


@dataclass(frozen=True, slots=True)
class Kind:
    """Findings of one verdict of a pairing on a backend, with the first one's message."""

    pairing: str
    backend: str
    verdict: str
    letter: str
    colour: str
    count: int
    message: str


def kinds_of_findings(merged: Merged) -> list[Kind]:
    """The most severe first; what a page shows of findings where scripts are off."""
    grouped: dict[tuple[str, str, str], list[Record]] = {}
    for row in merged.rows:
        if row.finding:
            grouped.setdefault((row.verdict, row.record.pairing, row.record.backend), []).append(row.record)
    return [
        Kind(pairing, backend, verdict, LETTERS.get(verdict, "✗"), kind(verdict), len(records), records[0].message)
        for (verdict, pairing, backend), records in sorted(grouped.items(), key=lambda p: (-rank(p[0][0]), p[0][1:]))
    ]


def families(merged: Merged) -> list[tuple[str, str, int, str, int, str]]:
    """Group, family, cases, verdicts, elements compared, the largest fraction of a bound used."""
    table: dict[tuple[str, str], list[tuple[str, Record]]] = {}
    for row in merged.rows:
        if row.record.case:
            table.setdefault((row.record.group, row.record.family), []).append((row.verdict, row.record))
    found = []
    for (group, family), rows in table.items():
        used = max((record.used for _, record in rows if record.used is not None), default=None)
        compared = sum(record.compared for _, record in rows)
        verdicts = counted(Counter(verdict for verdict, _ in rows))
        found.append((group, family, len(rows), verdicts, compared, f"{used:.3g}" if used is not None else "–"))
    return found
