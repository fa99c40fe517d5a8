"""A million cases fit into memory: what each further record takes, as a run holds it and as reports are made of it."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kerneltest.records import record_files
from kerneltest.records.evidence import Evidence, SpecialInput, SpecialValue, Window
from kerneltest.records.record_files import line_of
from kerneltest.records.runs import RunRecords, load_windows, overlay_runs, read_runs, reconcile
from kerneltest.records.schema import Record
from kerneltest.report.html.page import render
from kerneltest.report.text.terminal_summary import summary_lines
from kerneltest.triage.suspects import suspects_in_run
from tests.made_runs import WRONG
from tests.records.test_records import FINDING
from tests.written import PASS, write_run

SIZES = (500, 2000)
PICTURE = Window("", "float32", (16, 16), (0, 0), (16, 16), (8, 8), (0.5,) * 256, (1.5,) * 256, (0.1,) * 256, "1" * 256)


def _passes(count: int) -> Iterator[Record]:
    """Passing cases of which each has its own numbers, of signatures that many have in common."""
    for number in range(count):
        dims, holds = {"n": number % 50, "m": 3}, (SpecialInput(f"x{number % 50}", SpecialValue.NAN),)
        numbers = {"bound_fraction": number / count, "seconds": 0.1 + number, "ulps": (1000, 300 + number % 100, 7)}
        yield replace(PASS, case=f"{number:016x}", dims=dims, special_inputs=holds, statics={"mode": "up"}, **numbers)


def _bytes(work: Callable[[], object]) -> tuple[int, int]:
    """How many bytes Python has more after some work, what it made included, and at most while it goes on."""
    work()  # what is made once and kept
    gc.collect()
    tracemalloc.start()
    try:
        made = work()  # noqa: F841 - counted
        gc.collect()
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def _each(small: int, large: int) -> float:
    return (large - small) / (SIZES[1] - SIZES[0])


def _picture(evidence: Evidence | None) -> Window | None:
    return evidence.window if evidence is not None else None


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [write_run(tmp_path_factory.mktemp("runs") / "run", *_passes(count)) for count in SIZES]


def test_a_record_that_is_held(folders: list[Path]) -> None:
    small, large = (_bytes(partial(read_runs, folder))[0] for folder in folders)
    assert _each(small, large) < 450


@pytest.mark.parametrize(
    ("work", "most"),
    [
        (lambda run: reconcile(run.plan, run.records), 100),
        (lambda run: list(summary_lines(run, suspects_in_run(run))), 120),
        (lambda run: render(overlay_runs([run])), 300),
    ],
    ids=["reconciled", "summary", "page"],
)
def test_what_a_report_takes_for_each_record(
    folders: list[Path], work: Callable[[RunRecords], object], most: int
) -> None:
    small, large = (_bytes(partial(work, read_runs(folder)[0]))[1] for folder in folders)
    assert _each(small, large) < most


def test_pictures_stay_on_disk_until_they_are_drawn(tmp_path: Path) -> None:
    assert WRONG.evidence is not None
    wrong = [replace(WRONG, case=f"c{n}", evidence=replace(WRONG.evidence, window=PICTURE)) for n in range(20)]
    folder = write_run(tmp_path / "run", PASS, *wrong)
    (folder / "records-gw0.jsonl").write_bytes(line_of(PASS) + b'\n{"cut": "o')
    (run,) = read_runs(folder)
    chosen = [run.records[2], run.records[8]]
    assert [_picture(each.evidence) for each in chosen] == [
        replace(PICTURE, values=(), expected=(), bound=(), wrong="")
    ] * 2
    found = load_windows([run], chosen)
    assert [(_picture(found[id(each)]), len(found[id(each)].inputs)) for each in chosen] == [(PICTURE, 1)] * 2


def test_a_shard_may_hold_a_million_records() -> None:
    assert 10**6 * len(line_of(FINDING)) < record_files._MOST_RECORDS
