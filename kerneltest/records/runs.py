"""Runs read from their folders, checked, and reconciled with their plans. Summaries and comparisons start here."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from kerneltest.core.details import NoPallasCall
from kerneltest.core.failures import RecordError
from kerneltest.core.grouping import group_pairs
from kerneltest.core.ids import ANY
from kerneltest.core.verdicts import Ending, Gap, GroupName, Verdict, worst
from kerneltest.records.evidence import Evidence
from kerneltest.records.journal import read_orphaned
from kerneltest.records.record_files import (
    intern_records,
    read_end,
    read_plan,
    read_records,
    read_reproducers,
    read_scores,
    read_some,
    write_end,
)
from kerneltest.records.run_plan import CellKey, End, PairingSummary, Plan, PlannedItem, digest_ids
from kerneltest.records.schema import MutationScore, Record, Reproducer
from kerneltest.records.sharpness import Informativeness


@dataclass(frozen=True, slots=True)
class CellStatus:
    """The outcome of one planned cell (pairing, backend, dtype, family)."""

    item: str  # the pytest item that the cell belongs to
    # the worst verdict of its records; `Gap.MISSING` if a planned case has no record, `Gap.NOTHING_COMPARED` if every
    # case passed without comparing an element, `Gap.NOTHING_ASKED` if that is as it should be
    verdict: Ending
    verdicts: Mapping[Verdict, int]  # number of cases by verdict
    planned: int  # number of planned cases
    compared: int  # number of elements compared
    bound_fraction: float | None  # the largest error as a fraction of its bound; None if no element had a bound

    @property
    def green(self) -> bool:
        return self.verdict.is_green


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A run's cells, and errors in its bookkeeping."""

    cells: Mapping[CellKey, CellStatus]  # the status of each planned cell
    problems: tuple[str, ...]  # unplanned records, duplicates, a run in which nothing was compared
    internal_errors: int = 0  # number of cases in which kerneltest itself failed

    @property
    def missing(self) -> list[CellKey]:
        return [cell for cell, status in self.cells.items() if status.verdict is Gap.MISSING]

    @property
    def complete(self) -> bool:
        return not self.problems and not self.missing and not self.internal_errors

    @property
    def green(self) -> bool:
        return self.complete and all(status.green for status in self.cells.values())


def reconcile(plan: Plan, records: Iterable[Record]) -> Reconciled:
    """Returns exactly one status for each planned cell."""
    by_cell: dict[CellKey, dict[str, Record]] = {}  # and by case
    problems: list[str] = [*plan.problems]
    informative = Informativeness()
    internal_errors = len(plan.internal_errors)
    for record in records:
        if record.verdict is Verdict.INTERNAL_ERROR:
            internal_errors += 1
            if not record.case:
                continue  # it is beside the verdicts of cells
        found = by_cell.setdefault(record.cell, {})
        if record.case in found:
            problems.append(f"recorded twice: {' / '.join(record.cell)} case {record.case or 'all'}")
            continue
        found[record.case] = record
        informative.add(record)
    cells: dict[CellKey, CellStatus] = {}
    for item in plan.items:
        for cell in item.cells:
            found = by_cell.pop(cell, {})
            cells[cell] = _status(item, cell, found.values())
            if (more := len(found) - ("" in found) - item.families[cell.family]) > 0:
                problems.append(f"{more} more case{'s' * (more > 1)} recorded than planned: {' / '.join(cell)}")
    problems += [f"recorded but never planned: {' / '.join(cell)}" for cell in by_cell]
    if cells or (plan.not_applicable and not plan.shard):
        problems += informative.problems(elsewhere={item.pairing for item in plan.elsewhere})
    return Reconciled(cells, tuple(problems), internal_errors)


# Verdicts of a cell as a whole, whose cases need no records.
_WHOLE = (Verdict.UNAVAILABLE, Verdict.CRASH, Verdict.HANG)


def _status(item: PlannedItem, cell: CellKey, records: Collection[Record]) -> CellStatus:
    verdict: Ending
    planned, wanted = item.families[cell.family], item.digests.get(cell.family, "")
    cases = [record.case for record in records if record.case]
    verdicts = Counter(record.verdict for record in records)
    unserved = any(not record.case and record.verdict in _WHOLE for record in records)
    compared = sum(record.compared for record in records)
    lacks = len(cases) < planned or (len(cases) == planned and wanted and digest_ids(cases) != wanted)
    if not records or (not unserved and lacks):
        verdict = Gap.MISSING
    else:
        reached = [record.verdict for record in records if not isinstance(record.detail, NoPallasCall)]
        verdict = worst(reached or verdicts)
        if verdict is Verdict.PASS and not compared:
            defined, undefined = (sum(getattr(r, name) for r in records) for name in ("defined", "undefined"))
            unbounded = defined and item.group == GroupName.SPECIAL  # one huge value can make a whole result overflow
            verdict = Gap.NOTHING_ASKED if unbounded or (undefined and not defined) else Gap.NOTHING_COMPARED
    used = max((record.bound_fraction for record in records if record.bound_fraction is not None), default=None)
    ordered = dict(sorted(verdicts.items(), key=lambda pair: pair[0].severity))
    return CellStatus(item.item, verdict, ordered, planned, compared, used)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """A finished run."""

    name: str  # path of its folder below the folder that was given; "" if the given folder is the run's own
    folder: Path  # where it lies
    plan: Plan  # as written
    # as written, but without the elements of evidence windows, which `evidence_windows` reads again
    records: tuple[Record, ...]
    reconciled: Reconciled  # the records reconciled with the plan
    reproducers: tuple[Reproducer, ...] = ()  # the smallest failing cases that were found
    mutants: tuple[MutationScore, ...] = ()  # the mutation scores of its pairings, if it judged mutants


def read_runs(folder: Path) -> tuple[RunRecords, ...]:
    """Reads the run in a folder, or those below it, ordered by name; a RecordError if none, or one is corrupt."""
    return _require_other_shards(_read_folder(folder))


def _read_folder(folder: Path) -> tuple[RunRecords, ...]:
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder")
    if (folder / "plan.json").exists():
        return (_read(folder, ""),)
    below = {path.parent for pattern in ("plan.json", "records-*.jsonl*") for path in folder.rglob(pattern)}
    if not below:
        raise RecordError(f"{folder} holds no run: there is no plan.json in it or below it")
    return tuple(_read(each, each.relative_to(folder).as_posix()) for each in sorted(below))


def read_all(folders: Sequence[Path]) -> tuple[RunRecords, ...]:
    """Reads the runs in several folders, whose names begin with the folder's. RecordError if two have one name."""
    if len(folders) == 1:
        return read_runs(folders[0])
    runs: dict[str, RunRecords] = {}
    for folder in folders:
        for run in _read_folder(folder):
            name = f"{folder.name}/{run.name}" if run.name else folder.name
            if name in runs:
                raise RecordError(f"{run.folder} and {runs[name].folder} are both named {name}")
            runs[name] = replace(run, name=name)
    return _require_other_shards(tuple(runs.values()))


def absent_cells(runs: Sequence[RunRecords]) -> frozenset[CellKey]:
    """Returns the cells of shards that are not among some runs, though other shards of the same run are."""
    there = {(run.plan.whole, cell) for run in runs for cell in run.reconciled.cells}
    planned = {(run.plan.whole, cell) for run in runs for item in run.plan.elsewhere for cell in item.cells}
    return frozenset(cell for _, cell in planned - there)


def _require_other_shards(runs: tuple[RunRecords, ...]) -> tuple[RunRecords, ...]:
    """Returns runs in which a shard has a problem if cells of other shards are absent, or nothing in all of them."""
    absent = absent_cells(runs)
    checked = []
    shared = {} if absent else _problems_of_all_shards(runs)
    for run in runs:
        if count := sum(cell in absent for item in run.plan.elsewhere for cell in item.cells):
            problem = f"shard {run.plan.shard} lacks {count} cells of other shards: name the folders of all shards"
            run = _with_problems(run, [problem])
        checked.append(_with_problems(run, shared.pop(run.plan.whole, ())))
    return tuple(checked)


def _with_problems(run: RunRecords, more: Collection[str]) -> RunRecords:
    return replace(run, reconciled=replace(run.reconciled, problems=(*run.reconciled.problems, *more)))


# What no shard can tell by itself: that all of them together compared nothing, in the run or in a pairing.
def _problems_of_all_shards(runs: Sequence[RunRecords]) -> dict[str, list[str]]:
    shards = group_pairs((run.plan.whole, run) for run in runs if run.plan.shard and run.plan.elsewhere)
    known = {problem for run in runs for problem in run.reconciled.problems}
    return {
        whole: [p for p in Informativeness(chain.from_iterable(run.records for run in of)).problems() if p not in known]
        for whole, of in shards.items()
    }


def read_running(folder: Path, name: str = "") -> RunRecords:
    """Reads a run that may still be going on; raises a RecordError."""
    plan, records = read_plan(folder), tuple(intern_records(read_records(folder)))
    mutants = {score.pairing: score for score in read_scores(folder)}
    reproducers = tuple(read_reproducers(folder))
    return RunRecords(name, folder, plan, records, reconcile(plan, records), reproducers, tuple(mutants.values()))


def end_run(run: RunRecords, failed_tests: tuple[str, ...] = ()) -> None:
    """Marks a run as complete, with the tests other than pairings that failed; raises an OSError."""
    write_end(run.folder, End(run.plan.run, len(run.records), failed_tests))


def _read(folder: Path, name: str) -> RunRecords:
    run = read_running(folder, name)
    if problem := "; ".join(_problems_of_end(run)):
        run = replace(run, reconciled=replace(run.reconciled, problems=(problem, *run.reconciled.problems)))
    return run


def _problems_of_end(run: RunRecords) -> Iterator[str]:
    end = read_end(run.folder)
    if end is None:
        yield "the run did not end"
        yield from (f"{doing.shard} was {doing}" for doing in read_orphaned(run.folder))
    elif end.run != run.plan.run:
        yield "plan.json and end.json belong to different runs"
    elif end.records != len(run.records):
        yield f"there are {len(run.records)} records, but the run wrote {end.records}"
    else:
        yield from _unrepeated_crashes(run)


# Crashes of processes that ran several cases at once, if no case crashed again when it ran alone.
def _unrepeated_crashes(run: RunRecords) -> Iterator[str]:
    died = {record.item for record in run.records if record.verdict in (Verdict.CRASH, Verdict.HANG)}
    found = {(record.item, record.case) for record in run.records if record.verdict.is_finding}
    unended = {run.reconciled.cells[cell].item for cell in run.reconciled.missing}
    for doing in read_orphaned(run.folder):
        if doing.item not in died | unended and (doing.item, doing.case) not in found:
            yield f"worker {doing.shard} crashed while {doing}; it did not crash again when that case ran alone"


def read_ended(folder: Path) -> RunRecords:
    """Reads a run all of whose processes have ended, before it is marked as complete; raises a RecordError."""
    run = read_running(folder)
    return _with_problems(run, list(_unrepeated_crashes(run)))


def load_windows(runs: Sequence[RunRecords], findings: Sequence[Record]) -> Mapping[int, Evidence]:
    """Reads evidence of findings with its windows, by the record's identity; RecordError if the run has changed."""
    found = {id(record): record.evidence for record in findings if record.evidence is not None}
    lacking = {name for name, evidence in found.items() if evidence.window is not None and not evidence.window.values}
    for run in runs if lacking else ():
        places = {number: record for number, record in enumerate(run.records) if id(record) in lacking}
        for number, again in read_some(run.folder, places):
            if again.case != places[number].case:
                raise RecordError(f"{run.folder}: its records changed while they were read")
            if again.evidence is not None:
                found[id(places[number])] = again.evidence
    return found


# Overlay of several runs: each cell is taken from the run in which it ended worst.
#
# Neither dates nor the order of runs decide, since a wrongly dated run could then hide the findings of others.


@dataclass(frozen=True, slots=True)
class OverlayRow:
    """One record as a report shows it."""

    run: int  # number of the run that it comes from
    record: Record  # as written; a placeholder for a planned cell that lacks records
    # the record's verdict; `missing` for a placeholder; the cell's gap if the cell passed and compared nothing
    ending: Ending

    @property
    def needs_attention(self) -> bool:
        return not self.ending.is_green


@dataclass(frozen=True, slots=True)
class Split:
    """Cells of a pairing on a backend that ended differently in different runs."""

    # pairing, backend: of the cells
    pairing: str
    backend: str
    endings: tuple[tuple[str, Ending], ...]  # by run; the one that is shown comes first
    cells: int  # number of cells


@dataclass(frozen=True, slots=True)
class Overlay:
    """Several runs as one, as a report shows them."""

    runs: tuple[RunRecords, ...]  # in the order given
    cells: Mapping[CellKey, CellStatus]  # the status of each planned cell, in the order of the last plan
    rows: tuple[OverlayRow, ...]  # the records behind the cells
    splits: tuple[Split, ...]  # cells on which runs disagree
    contributing: frozenset[int]  # numbers of the runs that served at least one cell, or were the only ones to plan it

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
    """Overlays runs: a cell comes from the run in which it ended worst. A run's default name is its folder's."""
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
                        recorded = sum(own[cell].verdicts.values())
                        message = f"{recorded} of {own[cell].planned} planned cases have a record"
                        stand_in = planned_record(item, cell.family, Verdict.UNAVAILABLE, message)
                        rows.append(OverlayRow(number, stand_in, Gap.MISSING))
        rows += [
            OverlayRow(number, record, _ending(record, own[record.cell]))
            for record in run.records
            if record.cell in own
        ]
        cells |= own
    contributing = frozenset(number for numbers in serving.values() for number in numbers)
    return Overlay(runs, cells, tuple(rows), _splits(runs, serving), contributing)


def superseded_backends(runs: Sequence[RunRecords]) -> frozenset[tuple[int, str, str]]:
    """Returns (run number, pairing, backend) for each backend that the run lacked and another run had."""
    planned = [(number, item) for number, run in enumerate(runs) for item in run.plan.items]
    served = {(item.pairing, item.backend) for _, item in planned if item.group != ANY}
    lacked = {(number, item.pairing, item.backend) for number, item in planned if item.group == ANY}
    return frozenset(place for place in lacked if place[1:] in served)


def _serving(runs: Sequence[RunRecords]) -> dict[CellKey, list[int]]:
    """Returns the runs that served each cell, or lacked the backend if none did; the worst and latest first."""
    dropped = superseded_backends(runs)
    serving = group_pairs(
        (cell, number)
        for number, run in enumerate(runs)
        for cell in run.reconciled.cells
        if (number, cell.pairing, cell.backend) not in dropped
    )
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


def planned_record(item: PlannedItem, family: str, verdict: Verdict, message: str, **others: Any) -> Record:
    """Returns a record of a family of a planned item, as a whole unless the other fields say which case it is."""
    of_case = {"signature": ANY, "target": "", "case": ""} | others
    of_item = {name: getattr(item, name) for name in ("item", "pairing", "backend", "tier", "dtype", "group")}
    return Record(**of_item, **of_case, family=family, verdict=verdict, message=message)
