"""The records that nodes send: each is checked, and written once, as it comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from kerneltest.core.verdicts import Verdict
from kerneltest.records.files import opened
from kerneltest.records.io import RECORD_LINE, SMALLEST_LINE, line_of, read_records
from kerneltest.records.schema import Record

_SENT = ("cases/", "artifacts/")  # where the files of a record lie
_Key = tuple[str, str, str]  # item, family, case


class LedgerError(ValueError):
    """What a node sent is no record, or no file of one."""


class Ledger:
    """A shard of a run's records, whose lines come from other machines.

    A case may come twice, where a node was taken for lost and was not. The same verdict is written once. Another one
    takes the place of an `unavailable`, which says nothing of the kernel; else the verdict changed with the same bits
    in, and the case is `nondeterministic`.
    """

    def __init__(self, folder: Path, shard: str) -> None:
        """Args:
        folder: of the run; what it holds already is not run again.
        shard: the name of these records among those of the run.
        """
        self.folder = folder
        self._name, self._smallest = f"records-{shard}.jsonl", f"smallest-{shard}.jsonl"
        self._verdicts: dict[_Key, Verdict] = {}
        self._lines: dict[str, dict[_Key, bytes]] = defaultdict(dict)  # of the items that have not ended
        self._contradictions: dict[str, list[str]] = defaultdict(list)  # by item
        for record in read_records(folder):
            self._verdicts[key := _key(record)] = record.verdict
            self._lines[record.item][key] = line_of(record)

    def of(self, item: str) -> tuple[bytes, ...]:
        """The lines of an item that has not ended."""
        return tuple(self._lines[item].values())

    def judged(self) -> int:
        """Cases of the items that have not ended."""
        return sum(bool(case) for lines in self._lines.values() for _, _, case in lines)

    def end(self, item: str) -> list[str]:
        """Forgets the lines of an item; returns what is said of its cases that became nondeterministic."""
        self._lines.pop(item, None)
        return self._contradictions.pop(item, [])

    def add(self, line: bytes) -> None:
        """Takes in one record.

        Raises:
          LedgerError: it is none.
        """
        try:
            record = RECORD_LINE.validate_json(line).record
        except ValidationError as error:
            raise LedgerError(f"a node sent what is no record: {error.errors(include_url=False)[0]['msg']}") from error
        key = _key(record)
        known = self._verdicts.get(key)
        if known is None:
            with opened(self.folder, self._name, "ab") as file:
                file.write(line.rstrip(b"\n") + b"\n")
        elif known is record.verdict or record.verdict is Verdict.UNAVAILABLE or known is Verdict.NONDETERMINISTIC:
            return
        else:
            if known is not Verdict.UNAVAILABLE:
                record = _contradicted(record, known)
                self._contradictions[record.item].append(f"case {record.case}: {record.message}")
            line = line_of(record)
            self._replace(key, line)
        self._verdicts[key] = record.verdict
        self._lines[record.item][key] = line

    def _replace(self, key: _Key, line: bytes) -> None:
        """Writes another record in the place of the one that a case has, in one step."""
        lines = (self.folder / self._name).read_bytes().splitlines(keepends=True)
        for number, each in enumerate(lines):
            record = RECORD_LINE.validate_json(each).record
            if _key(record) == key:
                lines[number] = line + b"\n"
        temporary = self.folder / f"{self._name}.tmp"
        temporary.write_bytes(b"".join(lines))
        temporary.replace(self.folder / self._name)

    def add_smallest(self, lines: Iterable[bytes]) -> None:
        """Takes in smallest cases.

        Raises:
          LedgerError: one is none.
        """
        for line in lines:
            try:
                SMALLEST_LINE.validate_json(line)
            except ValidationError as error:
                raise LedgerError("a node sent what is no smallest case") from error
            with opened(self.folder, self._smallest, "ab") as file:
                file.write(line.rstrip(b"\n") + b"\n")

    def save(self, files: Mapping[str, bytes]) -> None:
        """Writes the files that records name.

        Raises:
          LedgerError: the name of one is none that a record's file has.
        """
        for name, content in files.items():
            if not name.startswith(_SENT):
                raise LedgerError(f"a node sent {name!a}, which belongs to no record")
            with opened(self.folder, name, "wb") as file:
                file.write(content)


def _key(record: Record) -> _Key:
    return record.item, record.family, record.case


def _contradicted(record: Record, known: Verdict) -> Record:
    words = f"{known} when it was run first, and {record.verdict} when it was run again, with the same bits in"
    message = f"{words}: {record.message}" if record.message else words
    return replace(record, verdict=Verdict.NONDETERMINISTIC, message=message)
