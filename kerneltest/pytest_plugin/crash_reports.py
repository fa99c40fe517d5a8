"""Processes that died while they ran an item: what of, what is left of it, and the record of the case they died of."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kerneltest.core.failures import Failure
from kerneltest.core.group_names import SANITIZED
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.runner import Before
from kerneltest.records.io import RecordError, Writer, read_plan, read_records
from kerneltest.records.journal import Doing, left_running
from kerneltest.records.schema import Evidence, PlannedItem, Record

# How the text begins that a process leaves, or that is left for it: where it went on for too long, or took too much.
GAVE_UP = "kerneltest: gave up"
TOO_MUCH = "kerneltest: too much memory"
MOST = 8  # deaths of an item, before the rest of its cases is left
_MOST_TEXT = 8000
_MOST_SAID = 2**20  # bytes
_STICKY = re.compile("CUDA_ERROR_(?!OUT_OF_MEMORY)|hipError(?!OutOfMemory)")


class UncollectedError(Exception):
    """A process that was to run an item did not find it; says what to do."""


def last_words(folder: Path, shard: str) -> Path:
    """The file for what Python and the watchdog write when they end a process."""
    return folder / f"died-{shard}.txt"


def said_file(folder: Path, shard: str) -> Path:
    """The file for what a process writes to its standard output and error, where nobody else keeps that."""
    return folder / f"said-{shard}.txt"


def traces(shard: str) -> tuple[str, ...]:
    """The files that tell of a process that died, in the folder of the run."""
    return f"running-{shard}.txt", f"died-{shard}.txt", f"said-{shard}.txt"


def said(folder: Path, shard: str, start: int = 0) -> tuple[str, int]:
    """The end of what a process wrote since some byte, wherever it wrote that, and how many bytes there are."""
    try:
        with said_file(folder, shard).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _MOST_SAID))
            return file.read().decode("utf-8", "replace"), size
    except OSError:
        return "", start


def leave_word(folder: Path, shard: str, word: str) -> None:
    """Says for a process what it died of, where it has not said so itself; why it was ended comes before that."""
    before = _text(last_words(folder, shard))
    if not before.strip() or word.startswith((GAVE_UP, TOO_MUCH)):
        last_words(folder, shard).write_text(f"{word}\n{before}", encoding="utf-8", errors="replace")


def of(folder: Path, doing: Doing) -> Failure:
    """What a process died of, as the failure of the case that it was about."""
    text = _text(last_words(folder, doing.shard))[:_MOST_TEXT].strip()
    first = text.partition("\n")[0]
    if end := said(folder, doing.shard)[0][-_MOST_TEXT:].strip():
        text = f"{text}\n\nThe end of what it wrote:\n{end}".strip()
    if first.startswith(GAVE_UP):
        return Failure(Verdict.HANG, first.removeprefix(GAVE_UP).strip(": "), text)
    if first.startswith("Timeout ("):  # Python's own timer
        return Failure(Verdict.HANG, f"no answer within {first[9:].strip(')!')} while {doing.phase}", text)
    cause = (
        first.removeprefix("Fatal Python error: ").removeprefix(TOO_MUCH).strip(": ")
        or "it exited, or was killed, without a word"
    )
    return Failure(Verdict.CRASH, f"the process died while {doing.phase}: {cause}", text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def device_is_lost(record: Record) -> bool:
    """Whether a device gives nothing but errors to this process from now on."""
    return record.tier is Tier.DEVICE and record.group != SANITIZED and bool(_STICKY.search(record.message))


def ends_its_process(record: Record) -> bool:
    """Whether the process in which a case runs again is lost with it."""
    # Under a sanitizer, what dies is a process of its own.
    died = record.verdict in (Verdict.CRASH, Verdict.HANG) and record.group != SANITIZED
    return died or device_is_lost(record)


def before(
    folder: Path,
    item: str,
    shard: str,
    *,
    again: bool = False,
    known: Mapping[str, Sequence[Record]] | None = None,
) -> tuple[Before | None, list[Record]]:
    """What was done of an item before, by processes that died while they ran it or in a run that is resumed.

    Args:
      folder: of the run.
      item: its name.
      shard: of this process, which is alive.
      again: whether the item was begun before; else there is None where no process died of it.
      known: in a run that goes on, what was recorded before it did, by item.

    Returns:
      what of it need not be run, and its records.
    """
    dead = [doing for doing in left_running(folder) if doing.item == item and doing.shard != shard]
    if not dead and not again:
        records = list((known or {}).get(item, ()))
        return Before(records) if records else None, records
    records = [record for record in read_records(folder) if record.item == item]
    return Before(records, [(doing, of(folder, doing)) for doing in dead]), records


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
