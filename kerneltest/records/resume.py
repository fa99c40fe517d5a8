"""Resuming an interrupted run: its records stay, everything else that it left is removed."""

import hashlib
from collections.abc import Iterator
from dataclasses import fields
from itertools import groupby
from pathlib import Path

from kerneltest.core.verdicts import Verdict
from kerneltest.records.files import RecordError, open_inside
from kerneltest.records.item_keys import BEFORE, read_keys, replace_keys
from kerneltest.records.record_files import line_of, read_plan, read_records, read_shard, shard_files
from kerneltest.records.run_plan import CellKey, Plan
from kerneltest.records.schema import Record

_OWN = ("run", "started", "project")  # fields that may differ: verdicts do not depend on them
_REMOVED = (
    "end.json", "running-*.txt", "crash-*.jsonl", "died-*.txt", "said-*.txt", "costs-*.json", "mutants-*.jsonl",
    "report.html",
)  # fmt: skip


def load_previous_plan(folder: Path) -> Plan:
    """Reads the plan of the run to resume.

    Raises:
      RecordError: there is none, or it cannot be read.
    """
    if not (folder / "plan.json").exists():
        raise RecordError(
            f"{folder} holds no run to resume: drop --kt-resume, or name the folder of an interrupted run"
        )
    return read_plan(folder)


def resume_obstacles(before: Plan, now: Plan) -> Iterator[str]:
    """Yields the reasons why a run cannot resume another one, in words."""
    for field in fields(Plan):
        old, new = getattr(before, field.name), getattr(now, field.name)
        if field.name in _OWN or old == new:
            continue
        if field.name == "environment":
            names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
            yield ", ".join(f"{name} ({old.get(name, 'none')} then, {new.get(name, 'none')} now)" for name in names[:3])
        elif field.name == "pairings":
            changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
            yield f"the code or the declaration of {', '.join(changed[:3])}"
        elif field.name == "items":
            yield f"the items that are selected, or their cases ({len(old)} then, {len(new)} now)"
        else:
            yield f"{field.name} ({old!s:.60} then, {new!s:.60} now)"


def prepare_resume(folder: Path) -> None:
    """Prepares a folder for resuming: puts the records of each item into a shard of its own, and removes other files.

    Records of whole families whose process died are dropped, since their cases run now.

    Raises:
      RecordError: a record cannot be read.
    """
    old, keys = shard_files(folder), read_keys(folder)
    seen: set[tuple[CellKey, str]] = set()
    written: dict[str, Path] = {}
    for path in folder.glob(f"{BEFORE}-*.tmp"):  # left by one that was interrupted here
        path.unlink()
    for item, records in groupby(read_records(folder), key=lambda record: record.item):
        written[item] = folder / f"{_shard_of(item)}.tmp"
        with open_inside(folder, written[item].name, "ab") as file:
            for record in records:
                whole = not record.case and record.verdict in (Verdict.CRASH, Verdict.HANG)
                if not whole and (record.cell, record.case) not in seen:  # an interrupted resume leaves duplicates
                    seen.add((record.cell, record.case))
                    file.write(line_of(record) + b"\n")
    for path in old:
        path.unlink()
    for item, path in written.items():
        path.replace(folder / f"records-{_shard_of(item)}.jsonl")
    replace_keys(folder, keys)
    for pattern in _REMOVED:
        for path in folder.glob(pattern):
            path.unlink()


def read_item(folder: Path, item: str) -> list[Record]:
    """Returns the records of an item in the run that is resumed."""
    return list(read_shard(folder, _shard_of(item)))


def discard_item(folder: Path, item: str) -> None:
    """Deletes the records of an item in the run that is resumed, since the item has changed."""
    (folder / f"records-{_shard_of(item)}.jsonl").unlink(missing_ok=True)


def _shard_of(item: str) -> str:
    return f"{BEFORE}-{hashlib.sha256(item.encode()).hexdigest()[:16]}"
