"""What the page says in words: gaps, what was unavailable, kinds of findings, families, runs."""

from collections import Counter
from dataclasses import dataclass

from kerneltest.core.verdicts import Ending, Verdict
from kerneltest.records.attribution import lowering_bugs
from kerneltest.records.schema import Record
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
    sums: list[tuple[Ending, int]]
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
    served = {
        row.record.backend: merged.runs[row.run].name for row in merged.rows if row.ending is not Verdict.UNAVAILABLE
    }
    found = []
    for run in merged.runs:
        for backend, reason in run.plan.unavailable.items():
            words = f"in {run.name}: {reason}" if len(merged.runs) > 1 else reason
            found.append((backend, words, served.get(backend, "")))
    return found


def not_applicable(merged: Merged) -> list[tuple[str, str, int]]:
    """Why backends are not for kernels: the reason, for which backends and how many pairings, how many cases."""
    grouped: dict[str, dict[tuple[str, str], int]] = {}
    for run in merged.runs:
        for each in run.plan.not_applicable:
            grouped.setdefault(each.reason, {})[each.pairing, each.backend] = each.cases
    told = []
    for reason, squares in grouped.items():
        backends = ", ".join(dict.fromkeys(backend for _, backend in squares))
        count = len({pairing for pairing, _ in squares})
        told.append((reason, f"{backends}: {count} pairing{'s' * (count > 1)}", sum(squares.values())))
    return told


def splits(merged: Merged) -> list[tuple[str, int]]:
    """Suspected lowering bugs, with how many cases show each."""
    return lowering_bugs(row.record for row in merged.rows).most_common()


@dataclass(frozen=True, slots=True)
class FindingKind:
    """Findings with one ending of a pairing on a backend, with the first one's message."""

    pairing: str
    backend: str
    ending: Ending
    count: int
    message: str


def kinds_of_findings(merged: Merged) -> list[FindingKind]:
    """The most severe first; what a page shows of findings where scripts are off."""
    grouped: dict[tuple[Ending, str, str], list[Record]] = {}
    for row in merged.rows:
        if row.finding:
            grouped.setdefault((row.ending, row.record.pairing, row.record.backend), []).append(row.record)
    return [
        FindingKind(pairing, backend, ending, len(records), records[0].message)
        for (ending, pairing, backend), records in sorted(
            grouped.items(), key=lambda pair: (-pair[0][0].severity, pair[0][1:])
        )
    ]


def families(merged: Merged) -> list[tuple[str, str, int, str, int, str]]:
    """Group, family, cases, verdicts, elements compared, the largest fraction of a bound used."""
    table: dict[tuple[str, str], list[tuple[Ending, Record]]] = {}
    for row in merged.rows:
        if row.record.case:
            table.setdefault((row.record.group, row.record.family), []).append((row.ending, row.record))
    found = []
    for (group, family), rows in table.items():
        used = max((record.used for _, record in rows if record.used is not None), default=None)
        compared = sum(record.compared for _, record in rows)
        verdicts = counted(Counter(verdict for verdict, _ in rows))
        found.append((group, family, len(rows), verdicts, compared, f"{used:.3g}" if used is not None else "–"))
    return found
