"""Processes that died while they ran an item: the failure, the record of the case, and what remains of the item."""

import faulthandler
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from kerneltest.core.details import Crashed, DeviceLost, Hung
from kerneltest.core.failures import Failure, RecordError
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.runner import PriorAttempts
from kerneltest.execute.watchdog import CrashReason, ReasonSource
from kerneltest.pytest_plugin.executor import ItemResult
from kerneltest.records.evidence import Evidence
from kerneltest.records.journal import Activity, read_orphaned
from kerneltest.records.record_files import RecordWriter, read_plan, read_records
from kerneltest.records.run_plan import PlannedItem
from kerneltest.records.runs import planned_record
from kerneltest.records.schema import Record

# Files in the run's folder, by the name of the process: the journal (`records.journal`), the reasons why the process
# died as JSON lines, the stacks that Python's faulthandler wrote, and standard output and error.

_MAX_OUTPUT = 2**20  # bytes


class FileCrashLog:
    """The log of a supervised process: another one reads it and continues with the item."""

    def __init__(self, folder: Path, shard: str) -> None:
        self._folder, self._shard = folder, shard
        self.stacks: TextIO = crash_file(folder, shard, "stacks").open("w", encoding="utf-8")
        faulthandler.enable(self.stacks)

    def write(self, reason: CrashReason, activity: Activity | None) -> None:
        write_crash_reason(self._folder, self._shard, reason)

    def close(self) -> None:
        faulthandler.disable()  # it would still write to the closed file
        self.stacks.close()
        delete_crash_files(self._folder, self._shard, "stacks", "reasons")


_FILES = {"journal": "running-{}.txt", "reasons": "crash-{}.jsonl", "stacks": "died-{}.txt", "output": "said-{}.txt"}


def crash_file(folder: Path, shard: str, kind: str) -> Path:
    """Returns the file of a kind that a process may leave."""
    return folder / _FILES[kind].format(shard)


def delete_crash_files(folder: Path, shard: str, *kinds: str) -> None:
    """Deletes the files of a process, of some kinds or of all."""
    for kind in kinds or _FILES:
        crash_file(folder, shard, kind).unlink(missing_ok=True)


def write_crash_reason(folder: Path, shard: str, reason: CrashReason) -> None:
    """Adds a reason to those of a process."""
    with crash_file(folder, shard, "reasons").open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(reason)) + "\n")


def read_crash_reasons(folder: Path, shard: str) -> list[CrashReason]:
    """Returns the reasons of a process, the most trustworthy first; lines that were cut off are left out."""
    reasons = []
    for line in read_text(crash_file(folder, shard, "reasons")).splitlines():
        try:
            values = json.loads(line)
            reasons.append(CrashReason(**{**values, "source": ReasonSource(values["source"])}))
        except (ValueError, KeyError, TypeError):
            continue
    return sorted(reasons, key=lambda reason: list(ReasonSource).index(reason.source))


def captured_output(folder: Path, shard: str, start: int = 0) -> tuple[str, int]:
    """Returns what a process wrote since byte `start`, at most 1 MiB of it, and the size of all its output in bytes."""
    try:
        with crash_file(folder, shard, "output").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _MAX_OUTPUT))
            return file.read().decode("utf-8", "replace"), size
    except OSError:
        return "", start


def read_text(path: Path) -> str:
    """Returns the text of a file, or "" if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


MAX_CRASHES = 8  # of an item, after which its remaining cases are abandoned
_MAX_TEXT = 8000  # characters of a record
# How the report of Python's faulthandler begins.
_FATAL_ERROR = re.compile("Fatal Python error: (.+)")
_TIMEOUT = re.compile(r"Timeout \((.+)\)!")


class UncollectedError(Exception):
    """An item that the process which is to run it did not collect; says what to do."""


def failure_from_crash(folder: Path, activity: Activity) -> Failure:
    """Returns the failure of the case that a process was running when it died."""
    reasons = read_crash_reasons(folder, activity.shard)
    stacks = read_text(crash_file(folder, activity.shard, "stacks"))[:_MAX_TEXT].strip()
    evidence = [*(reason.cause for reason in reasons), stacks]
    if output := captured_output(folder, activity.shard)[0][-_MAX_TEXT:].strip():
        evidence.append(f"\nThe end of its output:\n{output}")
    stderr = "\n".join(filter(None, evidence)).strip()
    by_python = None
    if fatal := _FATAL_ERROR.match(stacks):
        by_python = CrashReason(fatal[1])
    elif timeout := _TIMEOUT.match(stacks):
        by_python = CrashReason(f"no answer within {timeout[1]} while {activity.phase}", is_hang=True)
    if reasons and (by_python is None or reasons[0].source is not ReasonSource.OBSERVER):
        reason = reasons[0]
    else:
        reason = by_python or CrashReason("it exited or was killed, and left no crash report")
    if reason.is_hang:
        return Failure(Verdict.HANG, Hung(reason.cause, reason.location), stderr)
    return Failure(Verdict.CRASH, Crashed(activity.phase, reason.cause), stderr)


def device_is_lost(record: Record) -> bool:
    """Returns whether the error of a case poisons the device context for the rest of the process."""
    return record.tier is Tier.DEVICE and record.group != GroupName.SANITIZED and isinstance(record.detail, DeviceLost)


def ends_its_process(record: Record) -> bool:
    """Returns whether rerunning a case would cost the process that runs it."""
    # A sanitizer runs each case in a process of its own.
    died = record.verdict in (Verdict.CRASH, Verdict.HANG) and record.group != GroupName.SANITIZED
    return died or device_is_lost(record)


def prior_attempts(
    folder: Path, item: str, shard: str, *, is_retry: bool = False
) -> tuple[PriorAttempts | None, list[Record]]:
    """Returns what was done of an item by processes that died in it, None if nothing was, and the item's records."""
    dead = [activity for activity in read_orphaned(folder) if activity.item == item and activity.shard != shard]
    if not dead and not is_retry:
        return None, []
    records = [record for record in read_records(folder) if record.item == item]
    return PriorAttempts(records, [(activity, failure_from_crash(folder, activity)) for activity in dead]), records


def planned_items(folder: Path, name: str) -> list[PlannedItem]:
    """Returns the planned groups of the item of that name; [] for a test that is not kerneltest's."""
    try:
        return [item for item in read_plan(folder).items if item.item == name]
    except RecordError:  # a run without pairings has no plan
        return []


def record_crash(writer: RecordWriter, items: Sequence[PlannedItem], activity: Activity, failure: Failure) -> None:
    """Records how a process died: for its case, unless that has a record, or else for all cells without a record."""
    before = [record for record in read_records(writer.folder) if record.item == activity.item]
    if activity.case and any(each.case == activity.case for each in before):
        return
    begun = {each.family for each in before}
    for item, family in [(each, family) for each in items for family in each.families]:
        if family != activity.family if activity.case else family in begun:
            continue
        signature, case = activity.signature or "*", activity.case
        evidence = Evidence(stderr=failure.stderr) if case else None
        outcome = {"signature": signature, "case": case, "detail": failure.detail, "evidence": evidence}
        writer.write(planned_record(item, family, failure.verdict, str(failure), **outcome))


def abandon_item(writer: RecordWriter, item: str, activity: Activity, failure: Failure) -> ItemResult:
    """Records why the rest of an item is not run, and returns the item's result."""
    planned = planned_items(writer.folder, item)
    record_crash(writer, planned, activity, failure)
    message = f"{failure}\nIt was {activity}; the rest of the item is not run."
    families = tuple(family for part in planned for family in part.families)
    return ItemResult(str(failure.verdict), families, str(failure).partition("\n")[0], message)
