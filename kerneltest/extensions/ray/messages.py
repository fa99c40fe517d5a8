"""Messages between the session and the nodes of a cluster: requests, and what comes back while they run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kerneltest.core.files import open_inside
from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.ray.code import ProjectCode
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult, PytestArguments, WorkerSetup
from kerneltest.records.files import first_problem
from kerneltest.records.journal import Activity, write_orphaned
from kerneltest.records.record_files import RECORD_LINE, REPRODUCER_LINE, line_of, read_records
from kerneltest.records.schema import Record


@dataclass(frozen=True, slots=True)
class JobSetup:
    """The part of their setup that all jobs of a run share."""

    plan: bytes  # content of the run's `plan.json`
    worker: WorkerSetup  # setup of the session's own worker
    arguments: PytestArguments  # with which the session collected
    memory: float  # limit of a worker process in GiB; 0 for 90 % of the free memory
    code: ProjectCode  # of the session; nodes must have the same
    environment: Mapping[str, str]  # variables that affect what kernels compute
    paths: tuple[str, ...]  # entries of the session's `sys.path` below its root
    archive: bytes | None  # of the project's files; None if nodes have them


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a job needs from its node."""

    gpus: float = 0.0  # number of GPUs, or the fraction of one; 0 for none
    tpus: int = 0  # number of TPUs
    accelerator: str = ""  # type of GPU in Ray's naming; "" for any

    @property
    def scarcest(self) -> tuple[str, float]:
        """The resource that limits how many jobs run at a time, in Ray's naming, and the amount that a job takes."""
        return ("TPU", self.tpus) if self.tpus else ("GPU", self.gpus) if self.gpus else ("CPU", 1)

    @property
    def options(self) -> Mapping[str, Any]:
        if not (self.gpus or self.tpus):
            return {"num_cpus": 1}
        # A device must not wait for a processor that other jobs use.
        accelerator = {"accelerator_type": self.accelerator} if self.accelerator else {}
        return {
            "num_cpus": 0,
            "num_gpus": self.gpus,
            **({"resources": {"TPU": self.tpus}} if self.tpus else {}),
            **accelerator,
        }


@dataclass(frozen=True, slots=True)
class QueuedItem:
    """An item to run, and the lines of its records so far; these cases do not run again."""

    request: ItemRequest
    records: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemStarted:
    """An item has started."""

    item: str
    node: str  # on which it runs
    host: str


@dataclass(frozen=True, slots=True)
class ItemProgress:
    """The output of a running item since the last message."""

    item: str
    # content by name within the run's folder. A file comes no later than the line that names it.
    files: Mapping[str, bytes]
    records: tuple[bytes, ...]  # lines
    smallest: tuple[bytes, ...]
    activity: Activity | None = None  # what its process is doing, if that has changed


@dataclass(frozen=True, slots=True)
class ItemDone:
    """An item has ended."""

    item: str
    result: ItemResult | None  # of the item; None if it could not run
    output: str = ""
    seconds: float = 0.0
    error: str = ""  # why it could not run
    crashes: tuple[Activity, ...] = ()  # what its processes were doing that died


@dataclass(frozen=True, slots=True)
class JobLost:
    """A job whose node or worker died before the job ended."""

    node: bool  # whether the whole node died
    reason: str  # by Ray, in a line


@dataclass(frozen=True, slots=True)
class JobOver:
    """A job that has sent all of its messages."""


NodeEvent = ItemStarted | ItemProgress | ItemDone


# The records that nodes send: each is checked, and written once, as it arrives.

_FILE_FOLDERS = ("cases/", "artifacts/")  # of files that records name
_Key = tuple[str, str, str]  # item, family, case


class RecordLogError(ValueError):
    """A node sent an invalid record, or a file that no record can name."""


class RecordLog:
    """A shard of a run's records, whose lines come from other machines.

    A case arrives twice if its node was considered lost and was not. An equal verdict is written once. Another verdict
    replaces an `unavailable`, which says nothing about the kernel; otherwise the verdict changed for the same inputs,
    and the case is `nondeterministic`.
    """

    def __init__(self, folder: Path, shard: str) -> None:
        self.folder = folder
        self._name, self._smallest = f"records-{shard}.jsonl", f"smallest-{shard}.jsonl"
        self._verdicts: dict[_Key, Verdict] = {}
        self._lines: dict[str, dict[_Key, bytes]] = defaultdict(dict)  # of items that have not ended
        self._contradictions: dict[str, list[str]] = defaultdict(list)  # by item
        for record in read_records(folder):
            self._verdicts[key := _key(record)] = record.verdict
            self._lines[record.item][key] = line_of(record)

    def lines_of(self, item: str) -> tuple[bytes, ...]:
        return tuple(self._lines[item].values())

    def judged_cases(self) -> int:
        return sum(bool(case) for lines in self._lines.values() for _, _, case in lines)

    def end(self, item: str, crashes: Iterable[Activity] = ()) -> list[str]:
        """Drops the lines of an item that has ended, keeps activities that died, and returns new messages."""
        for activity in crashes:
            write_orphaned(self.folder, activity)
        self._lines.pop(item, None)
        return self._contradictions.pop(item, [])

    def add(self, line: bytes) -> None:
        """Adds a record; raises a RecordLogError if the record is invalid."""
        try:
            record = RECORD_LINE.validate_json(line).record
        except ValidationError as error:
            raise RecordLogError(f"a node sent an invalid record: {first_problem(error)}") from error
        key = _key(record)
        known = self._verdicts.get(key)
        if known is None:
            with open_inside(self.folder, self._name, "ab") as file:
                file.write(line.rstrip(b"\n") + b"\n")
        elif known is record.verdict or record.verdict is Verdict.UNAVAILABLE or known is Verdict.NONDETERMINISTIC:
            return
        else:
            if known is not Verdict.UNAVAILABLE:
                first = f"{known} on the first run and {record.verdict} on the second, with the same inputs"
                message = f"{first}: {record.message}" if record.message else first
                record = replace(record, verdict=Verdict.NONDETERMINISTIC, message=message)
                self._contradictions[record.item].append(f"case {record.case}: {record.message}")
            line = line_of(record)
            self._replace(key, line)
        self._verdicts[key] = record.verdict
        self._lines[record.item][key] = line

    def _replace(self, key: _Key, line: bytes) -> None:
        lines = (self.folder / self._name).read_bytes().splitlines(keepends=True)
        for number, each in enumerate(lines):
            record = RECORD_LINE.validate_json(each).record
            if _key(record) == key:
                lines[number] = line + b"\n"
        temporary = self.folder / f"{self._name}.tmp"
        temporary.write_bytes(b"".join(lines))
        temporary.replace(self.folder / self._name)

    def add_smallest(self, lines: Iterable[bytes]) -> None:
        """Adds smallest cases; raises a RecordLogError if one is invalid."""
        for line in lines:
            try:
                REPRODUCER_LINE.validate_json(line)
            except ValidationError as error:
                raise RecordLogError("a node sent an invalid smallest case") from error
            with open_inside(self.folder, self._smallest, "ab") as file:
                file.write(line.rstrip(b"\n") + b"\n")

    def save(self, files: Mapping[str, bytes]) -> None:
        """Writes files that records name; raises a RecordLogError if no record can name one of them."""
        for name, content in files.items():
            if not name.startswith(_FILE_FOLDERS):
                raise RecordLogError(f"a node sent {name!a}, which belongs to no record")
            with open_inside(self.folder, name, "wb") as file:
                file.write(content)


def _key(record: Record) -> _Key:
    return record.item, record.family, record.case
