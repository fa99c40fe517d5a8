"""The folders of finished runs, read, checked and reconciled: what summaries and comparisons are made from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kerneltest.records.io import RecordError, read_plan, read_records
from kerneltest.records.reconcile import Reconciled, reconcile
from kerneltest.records.schema import Plan, Record


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Attributes:
      name: its folder's path below the folder that was given; "" where that is the run's own.
      folder, plan, records: as written.
      reconciled: the records held against the plan.
    """

    name: str
    folder: Path
    plan: Plan
    records: tuple[Record, ...]
    reconciled: Reconciled


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


def _read(folder: Path, name: str) -> Run:
    plan, records = read_plan(folder), tuple(read_records(folder))
    return Run(name, folder, plan, records, reconcile(plan, records))
