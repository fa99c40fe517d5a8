"""Processes that died while they ran an item: what of, what is left of it, and the record of the case they died of."""

import re
from collections.abc import Sequence
from pathlib import Path

from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.io import RecordError, Writer, read_plan, read_records
from kerneltest.records.journal import Doing, left_running
from kerneltest.records.schema import Evidence, PlannedItem, Record
from kerneltest.run.runner import Before

GAVE_UP = "kerneltest: gave up"  # how the text that a process leaves begins where the watchdog ended it
_MOST_TEXT = 8000
_STICKY = re.compile("CUDA_ERROR_(?!OUT_OF_MEMORY)|hipError(?!OutOfMemory)")


def last_words(folder: Path, shard: str) -> Path:
    """The file for what Python and the watchdog write when they end a process."""
    return folder / f"died-{shard}.txt"


def of(folder: Path, doing: Doing) -> Failure:
    """What a process died of, as the failure of the case that it was about."""
    try:
        text = last_words(folder, doing.shard).read_text(encoding="utf-8", errors="replace")[:_MOST_TEXT]
    except OSError:
        text = ""
    first = text.partition("\n")[0]
    if first.startswith(GAVE_UP):
        return Failure(Verdict.HANG, first.removeprefix(GAVE_UP).strip(": "), text)
    if first.startswith("Timeout ("):  # Python's own timer
        return Failure(Verdict.HANG, f"no answer within {first[9:].strip(')!')} while {doing.phase}", text)
    cause = first.removeprefix("Fatal Python error: ") or "it exited, or was killed, without a word"
    return Failure(Verdict.CRASH, f"the process died while {doing.phase}: {cause}", text)


def device_is_lost(record: Record) -> bool:
    """Whether a device gives nothing but errors to this process from now on."""
    return record.tier is Tier.DEVICE and bool(_STICKY.search(record.message))


def before(folder: Path, item: str, shard: str, *, again: bool = False) -> tuple[Before | None, list[Record]]:
    """What was done of an item by processes that died while they ran it, and the findings they recorded.

    Args:
      folder: of the run.
      item: its name.
      shard: of this process, which is alive.
      again: whether this process has begun the item before; else there is None where no process died.
    """
    dead = [doing for doing in left_running(folder) if doing.item == item and doing.shard != shard]
    if not dead and not again:
        return None, []
    records = [record for record in read_records(folder) if record.item == item]
    recorded = {record.case for record in records}
    findings = [record for record in records if record.verdict.is_finding]
    return Before(recorded, [(doing, of(folder, doing)) for doing in dead]), findings


def planned(folder: Path, name: str) -> list[PlannedItem]:
    """What the item of that name runs; nothing for a test that is not kerneltest's."""
    try:
        return [item for item in read_plan(folder).items if item.item == name]
    except RecordError:  # a run without pairings has no plan
        return []


def record(writer: Writer, items: Sequence[PlannedItem], doing: Doing, failure: Failure) -> None:
    """Records how a process died: for the case that it was about, or for all cells of an item that had begun none.

    A case that has a record keeps it.
    """
    before = [each for each in read_records(writer.folder) if each.item == doing.item]
    if doing.case and any(each.case == doing.case for each in before):
        return
    begun = {each.family for each in before}
    for item, family in [(each, family) for each in items for family in each.families]:
        if family != doing.family if doing.case else family in begun:
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
                signature=doing.signature or "*",
                target="",
                case=doing.case,
                verdict=failure.verdict,
                message=str(failure),
                evidence=Evidence(stderr=failure.stderr) if doing.case else None,
            )
        )
