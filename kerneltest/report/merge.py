"""Runs read from their folders and laid over each other: for each item the newest run that could serve it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.verdicts import Ending, Gap, Verdict
from kerneltest.records.runs import Run, Status
from kerneltest.records.schema import ANY, CellKey, PlannedItem, Record

_ItemKey = tuple[str, str, str, str]  # pairing, backend, dtype, group


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
    def is_finding(self) -> bool:
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
    history: Mapping[tuple[str, str], tuple[Past, ...]]
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
    owners = _owners(runs)
    cells: dict[CellKey, Status] = {}
    rows: list[Row] = []
    for number, run in reversed(list(enumerate(runs))):
        own: dict[CellKey, Status] = {}
        for item in run.plan.items:
            if owners.get(_key(item)) == number:
                for cell in item.cells:
                    own[cell] = run.reconciled.cells[cell]
                    if own[cell].verdict is Gap.MISSING:
                        rows.append(Row(number, _stand_in(item, cell, own[cell]), Gap.MISSING))
        rows += [Row(number, record, _ending(record, own[record.cell])) for record in run.records if record.cell in own]
        cells |= own
    return Merged(runs, cells, tuple(rows), _history(runs), frozenset(owners.values()))


def superseded(runs: Sequence[Run]) -> frozenset[tuple[int, str, str]]:
    """The number of a run, a pairing and a backend that this run's machine lacked and another's had."""
    served: set[tuple[str, str]] = set()
    lacked: set[tuple[int, str, str]] = set()
    for number, run in enumerate(runs):
        for item in run.plan.items:
            if item.backend in run.plan.unavailable:
                lacked.add((number, item.pairing, item.backend))
            else:
                served.add((item.pairing, item.backend))
    return frozenset(each for each in lacked if each[1:] in served)


def _owners(runs: Sequence[Run]) -> dict[_ItemKey, int]:
    """The run that each item is taken from: the newest that could serve it, else the newest that planned it."""
    dropped = superseded(runs)
    owners: dict[_ItemKey, int] = {}
    for number, run in enumerate(runs):
        owners |= {_key(i): number for i in run.plan.items if (number, i.pairing, i.backend) not in dropped}
    return owners


def _key(item: PlannedItem) -> _ItemKey:
    return item.pairing, item.backend, item.dtype, item.group


def _ending(record: Record, status: Status) -> Ending:
    compared_nothing = status.verdict is Gap.NOTHING_COMPARED and record.verdict is Verdict.PASS
    return status.verdict if compared_nothing else record.verdict


def _stand_in(item: PlannedItem, cell: CellKey, status: Status) -> Record:
    """Stands for a planned cell that has cases without a record; its row says so in place of its verdict."""
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


def _history(runs: Sequence[Run]) -> dict[tuple[str, str], tuple[Past, ...]]:
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
