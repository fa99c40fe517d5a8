"""Crash logs: the reasons why a process died as JSON lines, and the stacks that Python wrote.

Files in the run's folder, by the name of the process: `crash-NAME.jsonl` holds reasons, `died-NAME.txt` what Python's
faulthandler wrote, `said-NAME.txt` standard output and error. `running-NAME.txt` is the journal (`records.journal`).
"""

from __future__ import annotations

import faulthandler
import json
import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from kerneltest.core.details.base import format_place

if TYPE_CHECKING:
    from kerneltest.records.journal import Activity

_MAX_OUTPUT = 2**20  # bytes


class ReasonSource(StrEnum):
    """The origin of a reason, the most trustworthy first."""

    KILLER = "killer"  # ended the process for this reason; whatever else was written follows from that
    PROCESS = "process"  # the process itself
    OBSERVER = "observer"  # saw only how the process exited


@dataclass(frozen=True, slots=True)
class CrashReason:
    """The reason why a process died.

    Attributes:
      cause: in words: "killed by SIGKILL"; of a hang, what did not answer in time.
      source: its origin.
      is_hang: whether the process was ended because a case did not answer in time.
      location: FILE:LINE of the user's source at which it was then, or "".
    """

    cause: str
    source: ReasonSource = ReasonSource.PROCESS
    is_hang: bool = False
    location: str = ""


class CrashLog(Protocol):
    """Receives the reason why a process is about to die."""

    @property
    def stacks(self) -> TextIO:
        """A file with a descriptor, for the stacks of all threads."""
        ...

    def write(self, reason: CrashReason, activity: Activity | None) -> None:
        """Writes a reason, and what the process was doing."""
        ...

    def close(self) -> None:
        """Ends the log of a process that did not die."""
        ...


class FileCrashLog:
    """The log of a supervised process: another one reads it and continues with the item."""

    def __init__(self, folder: Path, shard: str) -> None:
        self._folder, self._shard = folder, shard
        self.stacks: TextIO = stacks_file(folder, shard).open("w", encoding="utf-8")
        faulthandler.enable(self.stacks)

    def write(self, reason: CrashReason, activity: Activity | None) -> None:
        write_crash_reason(self._folder, self._shard, reason)

    def close(self) -> None:
        faulthandler.disable()  # it would still write to the closed file
        self.stacks.close()
        for path in (stacks_file(self._folder, self._shard), _reasons_file(self._folder, self._shard)):
            path.unlink(missing_ok=True)


class ConsoleCrashLog:
    """The log of an unsupervised process: a person reads it."""

    def __init__(self, console: int) -> None:
        self.stacks: TextIO = os.fdopen(os.dup(console), "w", encoding="utf-8")

    def write(self, reason: CrashReason, activity: Activity | None) -> None:
        self.stacks.write(f"\nkerneltest: {reason.cause}{format_place(reason.location)}. It was {activity}.\n")
        self.stacks.flush()

    def close(self) -> None:
        self.stacks.close()


def stacks_file(folder: Path, shard: str) -> Path:
    """Returns the file for what Python's faulthandler writes."""
    return folder / f"died-{shard}.txt"


def output_file(folder: Path, shard: str) -> Path:
    """Returns the file for a process's standard output and error."""
    return folder / f"said-{shard}.txt"


def _reasons_file(folder: Path, shard: str) -> Path:
    return folder / f"crash-{shard}.jsonl"


def crash_files(folder: Path, shard: str) -> tuple[Path, ...]:
    """Returns all files that a process may leave."""
    return (
        folder / f"running-{shard}.txt",
        _reasons_file(folder, shard),
        stacks_file(folder, shard),
        output_file(folder, shard),
    )


def write_crash_reason(folder: Path, shard: str, reason: CrashReason) -> None:
    """Adds a reason to those of a process."""
    with _reasons_file(folder, shard).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(reason)) + "\n")


def read_crash_reasons(folder: Path, shard: str) -> list[CrashReason]:
    """Returns the reasons of a process, the most trustworthy first; lines that were cut off are left out."""
    reasons = []
    for line in read_text(_reasons_file(folder, shard)).splitlines():
        try:
            values = json.loads(line)
            reasons.append(CrashReason(**{**values, "source": ReasonSource(values["source"])}))
        except (ValueError, KeyError, TypeError):
            continue
    return sorted(reasons, key=lambda reason: list(ReasonSource).index(reason.source))


def captured_output(folder: Path, shard: str, start: int = 0) -> tuple[str, int]:
    """Returns what a process wrote since byte `start`, at most 1 MiB of it, and the size of all its output in bytes."""
    try:
        with output_file(folder, shard).open("rb") as file:
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
