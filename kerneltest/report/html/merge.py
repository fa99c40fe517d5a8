"""Runs read from their folders and laid over each other: for each item the newest run that could serve it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.verdicts import Ending, Gap, Verdict
from kerneltest.records.reconcile import Status
from kerneltest.records.runs import Run
from kerneltest.records.schema import ANY, CellKey, PlannedItem, Record

Key = tuple[str, str, str, str]  # pairing, backend, dtype, group: an item's parts
Square = tuple[str, str]  # pairing, backend


@dataclass(frozen=True, slots=True)
class Row:
    """One record as a report shows it.

    Attributes:
      run: number of the run it was taken from.
      record: as written; made up for a planned cell that has cases without one.
      ending: the record's verdict, `missing`, or `nothing compared` where a cell that passed compared nothing.
    """

    run: int
    record: Record
    ending: Ending

    @property
    def finding(self) -> bool:
        return self.ending.is_finding


@dataclass(frozen=True, slots=True)
class Past:
    """A pairing on a backend in one run: how many cases there were, and how many of them are findings."""

    run: str
    cases: int
    findings: int


@dataclass(frozen=True, slots=True)
class Merged:
    """What a report shows.

    Attributes:
      runs: oldest first.
      cells: the status of each planned cell, in the order of the newest plan.
      rows: the records behind them.
      history: by pairing and backend, over the runs that served them, oldest first.
      contributing: numbers of the runs from which at least one cell is taken.
    """

    runs: tuple[Run, ...]
    cells: Mapping[CellKey, Status]
    rows: tuple[Row, ...]
    history: Mapping[Square, tuple[Past, ...]]
    contributing: frozenset[int]

    @property
    def complete(self) -> bool:
        """Whether every planned cell shown has a verdict and no run behind them has gaps or stray records."""
        return all(self.runs[number].reconciled.complete for number in self.contributing)

    @property
    def green(self) -> bool:
        return self.complete and bool(self.cells) and all(status.green for status in self.cells.values())


def merge(given: Sequence[Run]) -> Merged:
    """Lays runs over each other. What an older run could serve and a newer could not is taken from the older.

    A run without a name goes by its folder's.
    """
    named = [replace(run, name=run.name or run.folder.resolve().name) for run in given]
    runs = tuple(sorted(named, key=lambda run: run.plan.started))  # stable: runs without a time keep their order
    owners: dict[Key, int] = {}
    for served in (False, True):  # what was served goes over what was not, the newest last
        for number, run in enumerate(runs):
            for item in run.plan.items:
                if (item.backend not in run.plan.unavailable) == served:
                    if served:
                        owners.pop((item.pairing, item.backend, ANY, ANY), None)
                    owners[item.pairing, item.backend, item.dtype, item.group] = number
    cells: dict[CellKey, Status] = {}
    rows: list[Row] = []
    for number, run in reversed(list(enumerate(runs))):
        mine = {key for key, owner in owners.items() if owner == number}
        own: dict[CellKey, Status] = {}
        for item in run.plan.items:
            if (item.pairing, item.backend, item.dtype, item.group) in mine:
                own |= {cell: run.reconciled.cells[cell] for cell in item.cells}
                rows += [
                    Row(number, _absent(item, cell, own[cell]), Gap.MISSING)
                    for cell in item.cells
                    if own[cell].verdict is Gap.MISSING
                ]
        cells |= own
        rows += [Row(number, record, _shown(record, own[record.cell])) for record in run.records if record.cell in own]
    return Merged(runs, cells, tuple(rows), _history(runs), frozenset(owners.values()))


def _shown(record: Record, status: Status) -> Ending:
    idle = status.verdict is Gap.NOTHING_COMPARED and record.verdict is Verdict.PASS
    return status.verdict if idle else record.verdict


def _absent(item: PlannedItem, cell: CellKey, status: Status) -> Record:
    """Stands for a planned cell that has cases without a record; its row says so in place of its verdict."""
    pairing, backend, dtype, family = cell
    have = sum(status.verdicts.values())
    message = f"{have} of {status.planned} planned cases have a record"
    return Record(
        status.item, pairing, backend, item.tier, dtype, item.group, family, "*", "", "", Verdict.UNAVAILABLE, message
    )


def _history(runs: Sequence[Run]) -> dict[Square, tuple[Past, ...]]:
    found: dict[Square, list[Past]] = {}
    for run in runs:
        cases: Counter[Square] = Counter()
        findings: Counter[Square] = Counter()
        for record in run.records:
            square = record.pairing, record.backend
            cases[square] += bool(record.case)
            findings[square] += record.verdict.is_finding
        for square in dict.fromkeys((item.pairing, item.backend) for item in run.plan.items):
            if square[1] not in run.plan.unavailable:
                found.setdefault(square, []).append(Past(run.name, cases[square], findings[square]))
    return {square: tuple(past) for square, past in found.items() if len(past) > 1}
