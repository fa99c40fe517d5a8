"""Overlay of several runs: each cell is taken from the run in which it ended worst.

Neither dates nor the order of runs decide, since a wrongly dated run could then hide the findings of others.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.verdicts import Ending, Gap, Verdict
from kerneltest.records.mutation_scores import MutationScore
from kerneltest.records.run_plan import ANY, CellKey, PairingSummary, PlannedItem
from kerneltest.records.runs import CellStatus, RunRecords
from kerneltest.records.schema import Record


@dataclass(frozen=True, slots=True)
class OverlayRow:
    """One record as a report shows it.

    Attributes:
      run: number of the run that it comes from.
      record: as written; a placeholder for a planned cell that lacks records.
      ending: the record's verdict; `missing` for a placeholder; the cell's gap if the cell passed and compared nothing.
    """

    run: int
    record: Record
    ending: Ending

    @property
    def needs_attention(self) -> bool:
        """True unless it is green."""
        return not self.ending.is_green


@dataclass(frozen=True, slots=True)
class Past:
    """Counts of cases and findings of a pairing on a backend in one run."""

    run: str
    cases: int
    findings: int


@dataclass(frozen=True, slots=True)
class Split:
    """Cells of a pairing on a backend that ended differently in different runs.

    Attributes:
      pairing, backend: of the cells.
      endings: by run; the one that is shown comes first.
      cells: number of cells.
    """

    pairing: str
    backend: str
    endings: tuple[tuple[str, Ending], ...]
    cells: int


@dataclass(frozen=True, slots=True)
class Overlay:
    """Several runs as one, as a report shows them.

    Attributes:
      runs: in the order given.
      cells: the status of each planned cell, in the order of the last plan.
      rows: the records behind the cells.
      splits: cells on which runs disagree.
      history: counts by pairing and backend, over the runs that served them.
      contributing: numbers of the runs that served at least one cell, or were the only ones to plan it.
    """

    runs: tuple[RunRecords, ...]
    cells: Mapping[CellKey, CellStatus]
    rows: tuple[OverlayRow, ...]
    splits: tuple[Split, ...]
    history: Mapping[tuple[str, str], tuple[Past, ...]]
    contributing: frozenset[int]

    @property
    def pairings(self) -> Mapping[str, PairingSummary]:
        """The pairings as the last run declares them."""
        return {name: declared for run in self.runs for name, declared in run.plan.pairings.items()}

    @property
    def mutants(self) -> tuple[MutationScore, ...]:
        """The mutation score of each pairing in the last run that judged its mutants."""
        return tuple({score.pairing: score for run in self.runs for score in run.mutants}.values())

    @property
    def complete(self) -> bool:
        """True if every planned cell has a verdict and no contributing run has gaps or stray records."""
        return all(self.runs[number].reconciled.complete for number in self.contributing)

    @property
    def green(self) -> bool:
        return self.complete and bool(self.cells) and all(status.green for status in self.cells.values())


def overlay_runs(given: Sequence[RunRecords]) -> Overlay:
    """Overlays runs. A cell that several runs served is taken from the run in which it ended worst.

    A run without a name gets that of its folder.
    """
    runs = tuple(replace(run, name=run.name or run.folder.resolve().name) for run in given)
    serving = _serving(runs)
    cells: dict[CellKey, CellStatus] = {}
    rows: list[OverlayRow] = []
    for number, run in reversed(list(enumerate(runs))):
        own: dict[CellKey, CellStatus] = {}
        for item in run.plan.items:
            for cell in item.cells:
                if serving.get(cell, [None])[0] == number:
                    own[cell] = run.reconciled.cells[cell]
                    if own[cell].verdict is Gap.MISSING:
                        rows.append(OverlayRow(number, _stand_in(item, cell, own[cell]), Gap.MISSING))
        rows += [
            OverlayRow(number, record, _ending(record, own[record.cell]))
            for record in run.records
            if record.cell in own
        ]
        cells |= own
    contributing = frozenset(number for numbers in serving.values() for number in numbers)
    return Overlay(runs, cells, tuple(rows), _splits(runs, serving), _history(runs), contributing)


def superseded_backends(runs: Sequence[RunRecords]) -> frozenset[tuple[int, str, str]]:
    """Returns (run number, pairing, backend) for each backend that the run lacked and another run had."""
    served: set[tuple[str, str]] = set()
    lacked: set[tuple[int, str, str]] = set()
    for number, run in enumerate(runs):
        for item in run.plan.items:
            if item.group == ANY:
                lacked.add((number, item.pairing, item.backend))
            else:
                served.add((item.pairing, item.backend))
    return frozenset(each for each in lacked if each[1:] in served)


def _serving(runs: Sequence[RunRecords]) -> dict[CellKey, list[int]]:
    """Returns the runs that served each cell: the one in which it ended worst first, later runs before earlier ones.

    A run that lacked the backend counts only if no run served the cell.
    """
    dropped = superseded_backends(runs)
    serving: dict[CellKey, list[int]] = {}
    for number, run in enumerate(runs):
        for cell in run.reconciled.cells:
            if (number, cell.pairing, cell.backend) not in dropped:
                serving.setdefault(cell, []).append(number)
    for cell, numbers in serving.items():
        ended = {number: runs[number].reconciled.cells[cell].verdict for number in numbers}
        there = [number for number in numbers if ended[number] is not Verdict.UNAVAILABLE] or numbers
        serving[cell] = sorted(there, key=lambda number: (ended[number].severity, number), reverse=True)
    return serving


def _splits(runs: Sequence[RunRecords], serving: Mapping[CellKey, Sequence[int]]) -> tuple[Split, ...]:
    counts: Counter[tuple[str, str, tuple[tuple[str, Ending], ...]]] = Counter()
    for cell, numbers in serving.items():
        endings = tuple((runs[number].name, runs[number].reconciled.cells[cell].verdict) for number in numbers)
        counts[cell.pairing, cell.backend, endings] += len({ending for _, ending in endings}) > 1
    return tuple(Split(*where, cells) for where, cells in counts.items() if cells)


def _ending(record: Record, status: CellStatus) -> Ending:
    compared_nothing = status.verdict in (Gap.NOTHING_COMPARED, Gap.NOTHING_ASKED)
    return status.verdict if compared_nothing and record.verdict is Verdict.PASS else record.verdict


def _stand_in(item: PlannedItem, cell: CellKey, status: CellStatus) -> Record:
    """Returns a placeholder for a planned cell that lacks records."""
    pairing, backend, dtype, family = cell
    return Record(
        item=status.item,
        pairing=pairing,
        backend=backend,
        tier=item.tier,
        dtype=dtype,
        group=item.group,
        family=family,
        signature=ANY,
        target="",
        case="",
        verdict=Verdict.UNAVAILABLE,
        message=f"{sum(status.verdicts.values())} of {status.planned} planned cases have a record",
    )


def _history(runs: Sequence[RunRecords]) -> dict[tuple[str, str], tuple[Past, ...]]:
    history: dict[tuple[str, str], list[Past]] = {}
    for run in runs:
        cases: Counter[tuple[str, str]] = Counter()
        findings: Counter[tuple[str, str]] = Counter()
        for record in run.records:
            cases[record.pairing, record.backend] += bool(record.case)
            findings[record.pairing, record.backend] += record.verdict.is_finding
        for pairing, backend in dict.fromkeys((item.pairing, item.backend) for item in run.plan.items):
            if backend not in run.plan.unavailable:
                past = Past(run.name, cases[pairing, backend], findings[pairing, backend])
                history.setdefault((pairing, backend), []).append(past)
    return {place: tuple(past) for place, past in history.items() if len(past) > 1}
