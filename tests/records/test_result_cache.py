"""Records of green items between runs: what comes back, and what doesn't."""

import gzip
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kerneltest.core.files import DiskStore
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import Evidence
from kerneltest.records.record_files import RECORD_LINE
from kerneltest.records.result_cache import ResultCache
from kerneltest.records.schema import Record
from tests.written import case

THEN, NOW = "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"


def _records(store: ResultCache, item: str, made: str) -> list[Record]:
    kept = store.records(item, made)
    return [RECORD_LINE.validate_json(line).record for line in kept[0].splitlines()] if kept else []


@pytest.fixture
def store(tmp_path: Path) -> ResultCache:
    return ResultCache(DiskStore(tmp_path))


def test_records_come_back_with_the_day_of_the_run_that_found_them(store: ResultCache) -> None:
    one, two = case(case="a", family="ones"), replace(case(case="b", family="zeros"), reused_from=THEN)
    store.keep("item", "1", [one, two], NOW)
    assert _records(store, "item", "1") == [replace(one, reused_from=NOW), two]
    kept = store.records("item", "1")
    assert kept is not None
    assert kept[1] == ("ones", "zeros")


def test_an_item_that_follows_from_something_else_has_none(store: ResultCache) -> None:
    store.keep("item", "1", [case(case="a")], NOW)
    assert not _records(store, "item", "2")
    assert not _records(store, "other", "1")
    store.keep("item", "2", [case(case="a")], NOW)
    assert not _records(store, "item", "1")


@pytest.mark.parametrize(
    "records",
    [
        [replace(case(case="a"), verdict=Verdict.UNAVAILABLE)],
        [case(case="a"), replace(case(case="b"), files=("artifacts/b.ptx",))],
        [case(case="a"), replace(case(case="b"), verdict=Verdict.XFAIL, evidence=Evidence(script="cases/b.py"))],
        [],
    ],
    ids=["nothing compared", "a file", "a script", "nothing"],
)
def test_what_does_not_stand_alone_is_not_kept(store: ResultCache, records: list[Record]) -> None:
    store.keep("item", "1", records, NOW)
    assert store.records("item", "1") is None


@pytest.mark.parametrize("damage", [b"", b"no gzip", None], ids=["empty", "other", "cut off"])
def test_a_damaged_file_counts_as_missing(store: ResultCache, damage: bytes | None) -> None:
    store.keep("item", "1", [case(case="a")], NOW)
    (path,) = (store.store.folder / "green").glob("*.gz")
    path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    assert store.records("item", "1") is None


def test_records_that_were_cut_out_of_a_file_are_missed(store: ResultCache) -> None:
    store.keep("item", "1", [case(case="a"), case(case="b")], NOW)
    (path,) = (store.store.folder / "green").glob("*.gz")
    head, first, _ = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(head + first))
    assert store.records("item", "1") is None


def test_what_was_used_longest_ago_is_dropped_first(store: ResultCache) -> None:
    for number, item in enumerate(("first", "second", "third")):
        store.keep(item, "1", [case(case="a")], NOW)
        (path,) = (each for each in (store.store.folder / "green").glob("*.gz") if each.stat().st_mtime > 1e9)
        os.utime(path, (number, number))
    size = path.stat().st_size
    assert _records(store, "first", "1")  # which is a use
    store.store.prune(2 * size + size // 2)
    assert [bool(_records(store, item, "1")) for item in ("first", "second", "third")] == [True, False, True]


def test_what_is_not_green_is_forgotten(store: ResultCache) -> None:
    for item in ("one", "two"):
        store.keep(item, "1", [case(case="a")], NOW)
    store.update({"one": "1", "two": "1"})
    store.update({"two": None, "three": "1"})
    assert store.green() == {"one": "1", "three": "1"}
    assert [bool(_records(store, item, "1")) for item in ("one", "two")] == [True, False]
    (store.store.folder / "green" / "index.json.gz").write_bytes(gzip.compress(b"["))
    assert store.green() == {}


@pytest.mark.parametrize(
    "index",
    [None, "[" * 200_000, '{"a": ' * 100_000, '{"one": [], "two": 3}', "[]", "nonsense"],
    ids=["a pipe", "deep lists", "deep objects", "no texts", "a list", "no JSON"],
)
def test_an_index_of_anything_neither_hangs_nor_raises(store: ResultCache, index: str | None) -> None:
    path = store.store.folder / "green" / "index.json.gz"
    path.parent.mkdir()
    if index is None:
        os.mkfifo(path)
    else:
        path.write_bytes(gzip.compress(index.encode()))
    assert store.green() == {}
    store.update({"one": "1"})
    assert store.green() == {"one": "1"}


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a symlink", "a deep head"])
def test_records_of_anything_neither_hang_nor_raise(store: ResultCache, kind: str) -> None:
    store.keep("item", "1", [case(case="a")], NOW)
    (path,) = (store.store.folder / "green").glob("*.gz")
    path.rename(other := path.with_suffix(".other"))
    match kind:
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "a symlink":
            path.symlink_to(other)
        case _:
            path.write_bytes(gzip.compress(b"[" * 200_000 + b"\n"))
    assert store.records("item", "1") is None
    store.store.prune(0)
    os.mkfifo(path.parent / f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    store.keep("item", "1", [case(case="a")], NOW)
    assert bool(store.records("item", "1")) is (kind != "a folder")
