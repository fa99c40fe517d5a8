"""Cache of green items between runs: the key under which each item was green, and its records."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kerneltest.core.files import DiskStore, open_inside
from kerneltest.core.fingerprint import Fingerprint
from kerneltest.core.verdicts import Verdict
from kerneltest.records.record_files import line_of
from kerneltest.records.schema import Record

_INDEX = "green/index.json.gz"


class ResultCache:
    """An index of keys and a file of records for each green item; files that cannot be read count as missing."""

    def __init__(self, store: DiskStore) -> None:
        self.store = store

    def green(self) -> dict[str, str]:
        """Returns the key of each item when it was last green, by node id."""
        try:
            found = json.loads(self.store.read(_INDEX) or b"{}")
        except (ValueError, RecursionError):
            return {}
        entries = found.items() if isinstance(found, dict) else ()
        return {name: key for name, key in entries if isinstance(key, str)}

    def records(self, item: str, key: str) -> tuple[bytes, tuple[str, ...]] | None:
        """Returns the records of an item whose key is still `key`, as lines of a shard, and their families; or None."""
        try:
            line, _, lines = (self.store.read(_name(item)) or b"").partition(b"\n")
            head = json.loads(line)
            families = tuple(map(str, head["families"]))
            is_complete = head["made"] == key and head["lines"] == Fingerprint.of(lines).text
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return (lines, families) if is_complete else None

    def update(self, items: Mapping[str, str | None]) -> None:
        """Stores the keys of green items; removes items that are not green (None) with their records."""
        for item in (item for item, key in items.items() if not key):
            self.store.remove(_name(item))
        green = {item: key for item, key in {**self.green(), **items}.items() if key}
        self.store.write(_INDEX, json.dumps(green, indent=0).encode())

    def keep(self, item: str, key: str, records: Sequence[Record], when: str) -> None:
        """Stores the records of a green item, unless it compared nothing or they refer to files of their run."""
        if all(record.verdict is Verdict.UNAVAILABLE for record in records):
            return
        if any(record.files or record.shown.file or record.shown.script for record in records):
            return
        families = dict.fromkeys(record.family for record in records)
        lines = b"".join(line_of(replace(r, reused_from=r.reused_from or when)) + b"\n" for r in records)
        head = json.dumps({"made": key, "families": list(families), "lines": Fingerprint.of(lines).text}).encode()
        self.store.write(_name(item), head + b"\n" + lines)


def _name(item: str) -> str:
    return f"green/{Fingerprint.of(item).text}.jsonl.gz"


# The keys of a run's items, as the processes that ran them wrote them: digests of all that verdicts follow from.

BEFORE = "before"  # the shard of the run that this one resumes
_MOST_OF_A_LINE = 2**16  # characters of a line


def write_key(folder: Path, shard: str, item: str, key: str) -> None:
    """Notes with which key a process ran an item; "" if that is unknown."""
    with open_inside(folder, f"keys-{shard}.jsonl", "ab") as file:
        file.write(json.dumps([item, key]).encode() + b"\n")


def read_keys(folder: Path) -> dict[str, str]:
    """Returns the key of each item, the latest of a resumed run; "" if processes disagree, or if it is unknown."""
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
    for item, key in keys.items():
        write_key(folder, BEFORE, item, key)


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
