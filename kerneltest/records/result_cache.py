"""Cache of green items between runs: the key under which each item was green, and its records."""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kerneltest.core.verdicts import Verdict
from kerneltest.records.files import open_inside
from kerneltest.records.record_files import line_of
from kerneltest.records.schema import Record

_INDEX = "index.json"
_LEVEL = 3  # of gzip; the highest level takes three times as long
_MOST = 2**28  # bytes of records of all items
_MOST_INDEX = 2**26  # bytes of the index, and of the head of a file


@dataclass(frozen=True, slots=True)
class CachedResult:
    """The cached records of one item.

    Attributes:
      lines: the records as lines of a shard.
      families: their families, in order.
    """

    lines: bytes
    families: tuple[str, ...]


class ResultCache:
    """A folder with an index of keys and one file of records for each green item.

    Several runs may use it at once: files are replaced atomically, and unreadable files count as missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def green(self) -> dict[str, str]:
        """Returns the key of each item when it was last green, by node id."""
        try:
            with open_inside(self.folder, _INDEX) as file:
                found = json.loads(file.read(_MOST_INDEX))
        except (OSError, ValueError, RecursionError):
            return {}
        entries = found.items() if isinstance(found, dict) else ()
        return {name: made for name, made in entries if isinstance(made, str)}

    def records(self, item: str, made: str) -> CachedResult | None:
        """Returns the records of an item whose key is still `made`; None if there are none."""
        path = self._path(item)
        try:
            with open_inside(self.folder, path.name) as packed, gzip.open(packed, "rb") as file:
                head = json.loads(file.readline(_MOST_INDEX))
                if head["made"] != made:
                    return None
                lines, families = file.read(_MOST), tuple(map(str, head["families"]))
            os.utime(path)  # the least recently used files are dropped first
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError):
            return None
        return CachedResult(lines, families) if lines.endswith(b"\n") else None

    def update(self, items: Mapping[str, str | None]) -> None:
        """Stores the keys of green items; removes items that are not green (None) with their records."""
        green = {**self.green(), **items}
        for name in (name for name, made in items.items() if not made):
            with suppress(OSError):
                self._path(name).unlink(missing_ok=True)
        self._write(_INDEX, json.dumps({name: made for name, made in green.items() if made}, indent=0).encode())

    def keep(self, item: str, made: str, records: Sequence[Record], when: str) -> None:
        """Stores the records of a green item of a run that began at `when`.

        Items that compared nothing, or whose records refer to files of their run, are not stored.
        """
        if not any(record.verdict is not Verdict.UNAVAILABLE for record in records) or any(map(_has_files, records)):
            return
        families = dict.fromkeys(record.family for record in records)
        head = json.dumps({"made": made, "families": list(families)}).encode()
        lines = (line_of(replace(record, reused_from=record.reused_from or when)) for record in records)
        self._write(self._path(item).name, gzip.compress(b"\n".join([head, *lines, b""]), _LEVEL, mtime=0))

    def prune(self, most: int = _MOST) -> None:
        """Drops the least recently used records until at most `most` bytes are left."""
        found = []
        for path in self.folder.glob("*.jsonl.gz"):
            with suppress(OSError):  # another run may have dropped it
                found.append((path.stat().st_mtime, path.stat().st_size, path))
        for _, size, path in sorted(found, reverse=True):
            most -= size
            if most < 0:
                with suppress(OSError):
                    path.unlink()

    def _path(self, item: str) -> Path:
        return self.folder / f"{hashlib.sha256(item.encode()).hexdigest()[:16]}.jsonl.gz"

    def _write(self, name: str, content: bytes) -> None:
        written = self.folder / f"{name}.{os.getpid()}.tmp"
        try:
            self.folder.mkdir(exist_ok=True)
            written.unlink(missing_ok=True)
            with open_inside(self.folder, written.name, "xb") as file:
                file.write(content)
            written.replace(self.folder / name)
        except OSError:  # the next run then runs everything, as without a cache
            with suppress(OSError):
                written.unlink(missing_ok=True)


def _has_files(record: Record) -> bool:
    evidence = record.evidence
    return bool(record.files or (evidence is not None and (evidence.file or evidence.script)))


# The keys of a run's items, as the processes that ran them wrote them: digests of all that verdicts follow from.

BEFORE = "before"  # the shard of the run that this one resumes
_MOST_OF_A_LINE = 2**16  # characters of a line


class KeyWriter:
    """Appends keys to a file of one process in a run's folder."""

    def __init__(self, folder: Path, shard: str) -> None:
        self._folder, self._name = folder, f"keys-{shard}.jsonl"

    def write(self, item: str, key: str) -> None:
        """Notes with which key an item ran; "" if that is unknown."""
        with open_inside(self._folder, self._name, "ab") as file:
            file.write(json.dumps([item, key]).encode() + b"\n")


def read_keys(folder: Path) -> dict[str, str]:
    """Returns the key with which each item of a run ran; "" if processes disagree, or if it is unknown.

    Keys of a run that was resumed count only for items that have not run since.
    """
    keys: dict[str, str] = {}
    for path in sorted(folder.glob("keys-*.jsonl")):
        if path.name != f"keys-{BEFORE}.jsonl":
            for item, key in _lines(folder, path.name):
                keys[item] = key if keys.get(item, key) == key else ""
    return {**keys_before(folder), **keys}


def keys_before(folder: Path) -> dict[str, str]:
    """Returns the keys of the run that this one resumes."""
    return dict(_lines(folder, f"keys-{BEFORE}.jsonl"))


def replace_keys(folder: Path, keys: dict[str, str]) -> None:
    """Replaces all keys in a folder by those of a run that is to be resumed."""
    for path in folder.glob("keys-*.jsonl"):
        path.unlink()
    writer = KeyWriter(folder, BEFORE)
    for item, key in keys.items():
        writer.write(item, key)


def _lines(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yields the items and keys of a file; a line that is cut off or damaged says nothing."""
    try:
        with open_inside(folder, name) as file:
            while line := file.readline(_MOST_OF_A_LINE):
                try:
                    item, key = json.loads(line)
                except (ValueError, TypeError, RecursionError):
                    continue
                if isinstance(item, str) and isinstance(key, str):
                    yield item, key
    except OSError:
        return
