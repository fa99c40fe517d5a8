"""A run that was cut off, made ready to go on: what it had recorded stays, and what it was doing is forgotten."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from kerneltest.core.verdicts import Verdict
from kerneltest.records.files import opened
from kerneltest.records.io import RecordError, line_of, read_plan, read_records, shards
from kerneltest.records.schema import CellKey, Plan

SHARD = "before"  # holds what was recorded
_OWN = ("run", "started")  # what no two runs share
_FORGOTTEN = (
    "end.json", "running-*.txt", "crash-*.jsonl", "died-*.txt", "said-*.txt", "costs-*.json", "report.html"
)  # fmt: skip


def planned_before(folder: Path) -> Plan:
    """The plan of the run that is to go on.

    Raises:
      RecordError: there is none, or it cannot be read.
    """
    if not (folder / "plan.json").exists():
        raise RecordError(f"{folder} holds no run to go on with: leave --kt-resume out, or name the folder of one")
    return read_plan(folder)


def differences(before: Plan, now: Plan) -> Iterator[str]:
    """What keeps a run from going on where another one was cut off, in words."""
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


def make_ready(folder: Path) -> None:
    """Leaves the records of cases alone, in one shard, and forgets what the processes were doing when it was cut off.

    What was recorded of a whole family because its process died goes, since its cases are run now.

    Raises:
      RecordError: a record cannot be read.
    """
    before, old = folder / f"records-{SHARD}.jsonl", shards(folder)
    seen: set[tuple[CellKey, str]] = set()
    with opened(folder, "resumed.tmp", "wb") as file:
        for record in read_records(folder):
            whole = not record.case and record.verdict in (Verdict.CRASH, Verdict.HANG)
            if not whole and (record.cell, record.case) not in seen:  # twice where this was cut off itself
                seen.add((record.cell, record.case))
                file.write(line_of(record) + b"\n")
    (folder / "resumed.tmp").replace(before)
    for path in old:
        if path != before:
            path.unlink()
    for pattern in _FORGOTTEN:
        for path in folder.glob(pattern):
            path.unlink()
