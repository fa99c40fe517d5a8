"""The folders of finished runs, read, checked and reconciled: what summaries and comparisons are made from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
    found: dict[str, Run] = {}
    for folder in folders:
        for run in read_runs(folder):
            name = f"{folder.name}/{run.name}" if run.name else folder.name
            if name in found:
                raise RecordError(
                    f"{run.folder}: a second run by the name of {name}; {found[name].folder} is the first"
                )
            found[name] = replace(run, name=name)
    return tuple(found.values())


def _read(folder: Path, name: str) -> Run:
    try:
        plan = read_plan(folder)
        _check_plan(plan)
        records = tuple(read_records(folder))
        for record in records:
            _check_record(record)
        return Run(name, folder, plan, records, reconcile(plan, records))
    except RecordError:
        raise
    except (AttributeError, OSError, RecursionError, TypeError, ValueError) as error:
        raise RecordError(f"{folder}: not records of a run: {error or type(error).__name__}") from error


_TEXTS = ("item", "pairing", "backend", "dtype", "group", "family", "signature", "target", "case", "verdict", "message")


def _check_record(record: Record) -> None:
    """Raises ValueError unless a record from elsewhere has the types it should have, where they are relied on."""
    _check_texts(f"record of case {record.case!r}", {name: getattr(record, name) for name in _TEXTS})
    facts = record.facts
    kernels = facts.values() if isinstance(facts, Mapping) else [None]
    if not all(isinstance(kernel, Mapping) and _all_numbers(kernel.values()) for kernel in kernels):
        raise ValueError(f"record of case {record.case!r}: facts are numbers by kernel")
    if not _all_numbers([record.compared, record.wrong, 0 if record.used is None else record.used]):
        raise ValueError(f"record of case {record.case!r}: compared, wrong and used are numbers")


def _check_plan(plan: Plan) -> None:
    for item in plan.items:
        _check_texts("plan", {name: getattr(item, name) for name in ("item", "pairing", "backend", "dtype", "group")})
        if not isinstance(item.families, Mapping) or not _all_numbers(item.families.values()):
            raise ValueError(f"plan: families of {item.item} are numbers of cases")
    _check_texts("plan", {"depth": plan.depth, **plan.unavailable})
    if not isinstance(plan.environment, Mapping) or not _all_numbers([plan.seed, plan.fuzz]):
        raise ValueError("plan: environment is a mapping, seed and fuzz are numbers")


def _check_texts(of: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if not isinstance(value, str):
            raise ValueError(f"{of}: {name} is text, not {value!r:.40}")


def _all_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
