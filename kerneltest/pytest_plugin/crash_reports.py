"""Processes that died while they ran an item: the failure, the record of the case, and what remains of the item."""

import re
from collections.abc import Sequence
from pathlib import Path

from kerneltest.core.details import Crashed, DeviceLost, Hung
from kerneltest.core.failures import Failure
from kerneltest.core.group_names import GroupName
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.runner import PriorAttempts
from kerneltest.pytest_plugin.crash_log import (
    CrashReason,
    ReasonSource,
    captured_output,
    read_crash_reasons,
    read_text,
    stacks_file,
)
from kerneltest.records.evidence import Evidence
from kerneltest.records.files import RecordError
from kerneltest.records.journal import Activity, read_orphaned
from kerneltest.records.record_files import RecordWriter, read_plan, read_records
from kerneltest.records.run_plan import PlannedItem
from kerneltest.records.schema import Record

MAX_CRASHES = 8  # of an item, after which its remaining cases are abandoned
_MAX_TEXT = 8000  # characters of a record
# How the report of Python's faulthandler begins.
_FATAL_ERROR = re.compile("Fatal Python error: (.+)")
_TIMEOUT = re.compile(r"Timeout \((.+)\)!")


class UncollectedError(Exception):
    """An item that the process which is to run it did not collect; says what to do."""


def failure_from_crash(folder: Path, activity: Activity) -> Failure:
    """Returns the failure of the case that a process was running when it died.

    Args:
      folder: of the run.
      activity: what the process was doing.
    """
    reasons = read_crash_reasons(folder, activity.shard)
    stacks = read_text(stacks_file(folder, activity.shard))[:_MAX_TEXT].strip()
    evidence = [*(reason.cause for reason in reasons), stacks]
    if output := captured_output(folder, activity.shard)[0][-_MAX_TEXT:].strip():
        evidence.append(f"\nThe end of its output:\n{output}")
    stderr = "\n".join(filter(None, evidence)).strip()
    reason = _reason_of_python(stacks, activity)
    if reasons and (reason is None or reasons[0].source is not ReasonSource.OBSERVER):
        reason = reasons[0]
    if reason is None:
        reason = CrashReason("it exited or was killed, and left no crash report")
    if reason.is_hang:
        return Failure(Verdict.HANG, Hung(reason.cause, reason.location), stderr)
    return Failure(Verdict.CRASH, Crashed(activity.phase, reason.cause), stderr)


def _reason_of_python(stacks: str, activity: Activity) -> CrashReason | None:
    """Returns the reason that Python's faulthandler wrote, if it did."""
    if fatal := _FATAL_ERROR.match(stacks):
        return CrashReason(fatal[1])
    if timeout := _TIMEOUT.match(stacks):
        return CrashReason(f"no answer within {timeout[1]} while {activity.phase}", is_hang=True)
    return None


def device_is_lost(record: Record) -> bool:
    """Returns whether the error of a case poisons the device context for the rest of the process."""
    return record.tier is Tier.DEVICE and record.group != GroupName.SANITIZED and isinstance(record.detail, DeviceLost)


def ends_its_process(record: Record) -> bool:
    """Returns whether rerunning a case would cost the process that runs it."""
    # A sanitizer runs each case in a process of its own.
    died = record.verdict in (Verdict.CRASH, Verdict.HANG) and record.group != GroupName.SANITIZED
    return died or device_is_lost(record)


def prior_attempts(
    folder: Path,
    item: str,
    shard: str,
    *,
    is_retry: bool = False,
) -> tuple[PriorAttempts | None, list[Record]]:
    """Returns what was done of an item by processes that died while running it.

    Args:
      folder: of the run.
      item: its name.
      shard: of this process, which is alive.
      is_retry: whether the item was begun before.

    Returns:
      The cases that need not run again, or None without any; and the records of the item.
    """
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
    """Records how a process died: for the case that it was running, or else for all cells without a record.

    A case that has a record keeps it.
    """
    before = [each for each in read_records(writer.folder) if each.item == activity.item]
    if activity.case and any(each.case == activity.case for each in before):
        return
    begun = {each.family for each in before}
    for item, family in [(each, family) for each in items for family in each.families]:
        if family != activity.family if activity.case else family in begun:
            continue
        writer.write(
            Record(
                item=item.item,
                pairing=item.pairing,
                backend=item.backend,
                tier=item.tier,
                dtype=item.dtype,
                group=item.group,
                family=family,
                signature=activity.signature or "*",
                target="",
                case=activity.case,
                verdict=failure.verdict,
                detail=failure.detail,
                message=str(failure),
                evidence=Evidence(stderr=failure.stderr) if activity.case else None,
            )
        )
