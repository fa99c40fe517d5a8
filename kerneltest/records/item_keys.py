"""The keys of a run's items, as the processes that ran them wrote them: digests of all that verdicts follow from."""

import json
from collections.abc import Iterator
from pathlib import Path

from kerneltest.records.files import open_inside

BEFORE = "before"  # the shard of the run that this one resumes
_MOST = 2**16  # characters of a line


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
            while line := file.readline(_MOST):
                try:
                    item, key = json.loads(line)
                except (ValueError, TypeError, RecursionError):
                    continue
                if isinstance(item, str) and isinstance(key, str):
                    yield item, key
    except OSError:
        return
