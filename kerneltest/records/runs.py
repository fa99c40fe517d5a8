"""The folders of finished runs, read, checked and reconciled: what summaries and comparisons are made from."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kerneltest.core.verdicts import Ending, Gap, Verdict, worst
from kerneltest.records.interning import held
from kerneltest.records.io import RecordError, read_end, read_plan, read_records, read_smallest, write_end
from kerneltest.records.journal import left_running
from kerneltest.records.schema import CellKey, End, Plan, PlannedItem, Record, Smallest, digest


@dataclass(frozen=True, slots=True)
class Status:
    """How one planned cell (pairing, backend, dtype, family) ended.

    Attributes:
      item: the pytest item it belongs to.
      verdict: the worst of its records; `Gap.MISSING` where some planned case has no record, `Gap.NOTHING_COMPARED`
        where every case passed but no element was ever compared, and `Gap.NOTHING_ASKED` where none was to be.
      verdicts: cases by verdict.
      planned, compared: cases planned, elements compared.
      used: the largest fraction of a bound that was used up, or None.
    """

    item: str
    verdict: Ending
    verdicts: Mapping[Verdict, int]
    planned: int
    compared: int
    used: float | None

    @property
    def green(self) -> bool:
        return not self.verdict.is_finding


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A run's cells and what is wrong with its bookkeeping.

    Attributes:
      cells: a status for each planned cell.
      problems: records that nothing planned, duplicates, a run in which nothing was compared.
    """

    cells: Mapping[CellKey, Status]
    problems: tuple[str, ...]

    @property
    def missing(self) -> list[CellKey]:
        """Cells of which some planned case has no record."""
        return [cell for cell, status in self.cells.items() if status.verdict is Gap.MISSING]

    @property
    def complete(self) -> bool:
        return not self.problems and not self.missing

    @property
    def green(self) -> bool:
        return self.complete and all(status.green for status in self.cells.values())


def reconcile(plan: Plan, records: Iterable[Record]) -> Reconciled:
    """Every planned cell with its one status."""
    by_cell: dict[CellKey, dict[str, Record]] = {}  # and by case
    problems: list[str] = [*plan.problems]
    for record in records:
        found = by_cell.setdefault(record.cell, {})
        if record.case in found:
            problems.append(f"recorded twice: {' / '.join(record.cell)} case {record.case or 'all'}")
            continue
        found[record.case] = record
    cells: dict[CellKey, Status] = {}
    for item in plan.items:
        for cell in item.cells:
            found = by_cell.pop(cell, {})
            cells[cell] = _status(item, cell, found.values())
            if (more := len(found) - ("" in found) - item.families[cell.family]) > 0:
                problems.append(f"{more} more case{'s' * (more > 1)} recorded than planned: {' / '.join(cell)}")
    problems += [f"recorded but never planned: {' / '.join(cell)}" for cell in by_cell]
    if (cells or plan.not_applicable) and not plan.shard and not any(status.compared for status in cells.values()):
        problems.append("nothing was compared in the whole run")
    return Reconciled(cells, tuple(problems))


def _status(item: PlannedItem, cell: CellKey, records: Collection[Record]) -> Status:
    verdict: Ending
    planned, wanted = item.families[cell.family], item.digests.get(cell.family, "")
    cases = [record.case for record in records if record.case]
    verdicts = Counter(record.verdict for record in records)
    unserved = any(not record.case and record.verdict in (Verdict.UNAVAILABLE, Verdict.CRASH) for record in records)
    compared = sum(record.compared for record in records)
    lacks = len(cases) < planned or (len(cases) == planned and wanted and digest(cases) != wanted)
    if not records or (not unserved and lacks):
        verdict = Gap.MISSING
    else:
        verdict = worst(verdicts)
        if verdict is Verdict.PASS and not compared:
            asked, unasked = (sum(counts) for counts in zip(*((r.asked, r.unasked) for r in records), strict=True))
            verdict = Gap.NOTHING_ASKED if unasked and not asked else Gap.NOTHING_COMPARED
    used = max((record.used for record in records if record.used is not None), default=None)
    ordered = dict(sorted(verdicts.items(), key=lambda pair: pair[0].severity))
    return Status(item.item, verdict, ordered, planned, compared, used)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Attributes:
      name: its folder's path below the folder that was given; "" where that is the run's own.
      folder, plan: as written.
      records: as written, without the elements in their pictures where they were read: `pictures.pictures` has these.
      reconciled: the records held against the plan.
      smallest: the smallest failing cases that were found.
    """

    name: str
    folder: Path
    plan: Plan
    records: tuple[Record, ...]
    reconciled: Reconciled
    smallest: tuple[Smallest, ...] = ()


def read_runs(folder: Path) -> tuple[Run, ...]:
    """The run in a folder; or those in the folders below it, by name, as a CI job finds the artifacts of others.

    Raises:
      RecordError: there is none, one lacks its plan, or one cannot be read; names the folder or the file.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder")
    if (folder / "plan.json").exists():
        return (_read(folder, ""),)
    below = {path.parent for pattern in ("plan.json", "records-*.jsonl*") for path in folder.rglob(pattern)}
    if not below:
        raise RecordError(f"{folder}: holds no run: no plan.json, here or below")
    return tuple(_read(each, each.relative_to(folder).as_posix()) for each in sorted(below))


def read_all(folders: Sequence[Path]) -> tuple[Run, ...]:
    """The runs in some folders, as `read_runs`; where there are several folders, under these too.

    Raises:
      RecordError: as `read_runs`, and for a run that is named twice.
    """
    if len(folders) == 1:
        return read_runs(folders[0])
    runs: dict[str, Run] = {}
    for folder in folders:
        for run in read_runs(folder):
            name = f"{folder.name}/{run.name}" if run.name else folder.name
            if name in runs:
                raise RecordError(f"{run.folder}: a second run by the name of {name}; {runs[name].folder} is the first")
            runs[name] = replace(run, name=name)
    return tuple(runs.values())


def read_running(folder: Path, name: str = "") -> Run:
    """The run in a folder, as far as it is.

    Raises:
      RecordError: it cannot be read.
    """
    plan, records = read_plan(folder), tuple(held(read_records(folder)))
    return Run(name, folder, plan, records, reconcile(plan, records), tuple(read_smallest(folder)))


def end_run(run: Run) -> None:
    """Ends a run: from now on its records are all there are.

    Raises:
      OSError: that cannot be written, and the run stays unfinished.
    """
    write_end(run.folder, End(run.plan.run, len(run.records)))


def _read(folder: Path, name: str) -> Run:
    run = read_running(folder, name)
    problem = "; ".join(_problems_of_end(run))
    if not problem:
        return run
    reconciled = replace(run.reconciled, problems=(problem, *run.reconciled.problems))
    return replace(run, reconciled=reconciled)


def _problems_of_end(run: Run) -> Iterator[str]:
    end = read_end(run.folder)
    if end is None:
        yield "the run did not end"
        yield from (f"{doing.shard} was {doing}" for doing in left_running(run.folder))
    elif end.run != run.plan.run:
        yield "plan.json and end.json are of two runs"
    elif end.records != len(run.records):
        yield f"{len(run.records)} records are there, and the run wrote {end.records}"
    else:
        died = {record.item for record in run.records if record.verdict in (Verdict.CRASH, Verdict.HANG)}
        found = {(record.item, record.case) for record in run.records if record.verdict.is_finding}
        for doing in left_running(run.folder):
            if doing.item not in died and (doing.item, doing.case) not in found:
                yield f"process {doing.shard} died, which no case did again when it was run alone: it was {doing}"
