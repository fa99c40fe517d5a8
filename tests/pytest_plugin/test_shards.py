"""Shards: all of a run and nothing twice, cut alike everywhere, and joined only where they belong together."""

from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from kerneltest.core.ids import RunShard
from kerneltest.pytest_plugin.sharding import balance, seconds_by_item
from kerneltest.records.record_files import read_plan, read_records
from kerneltest.records.runs import read_runs
from tests import forked
from tests.pytest_plugin.test_plugin import _pytest

SUITE = """
import numpy as np
import kerneltest as kt
from kernels.vector_add import vector_add

def add(x, y):
    return x + y

def wrong(x, y):
    return x - y

FLOATS, FLOAT32 = kt.array("n", ("float32", "float16")), kt.array("n", "float32")
DECLARED = dict(x=FLOATS, y=FLOATS, dims=dict(n=kt.dim(values=(3,))), tolerance=kt.tolerance.exact())
right = kt.oracle_for(vector_add, **DECLARED)(add)
victim = kt.oracle_for(vector_add, **{**DECLARED, "x": FLOAT32, "y": FLOAT32})(wrong)

def test_no_pairing():
    pass
"""
QUICK = ("--kt-backends", "interpret,lower:sm_90", "--kt-depth", "quick", "--kt-minimize", "0")


def _shard(folder: Path, shard: str, *options: str, suite: str = SUITE) -> CompletedProcess[str]:
    return _pytest(folder, *QUICK, "--kt-shard", shard, "--kt-report", shard.replace("/", "of"), *options, suite=suite)


def _merge(folder: Path, *runs: str) -> CompletedProcess[str]:
    return forked.run(folder, "kerneltest", "merge", *runs, "-o", "merged")


def _told(folder: Path) -> list[Any]:
    return sorted((record.cell, record.case, record.verdict, record.message) for record in read_records(folder))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both shards of a run, and the same run as a whole."""
    folder = tmp_path_factory.mktemp("shards")
    _pytest(folder, *QUICK, "--kt-report", "whole", suite=SUITE)
    for shard in ("1/2", "2/2"):
        _shard(folder, shard)
    return folder


def test_shards_are_the_whole_run_and_nothing_twice(run: Path) -> None:
    parts = [_told(run / name) for name in ("1of2", "2of2")]
    assert all(parts)
    assert sorted([*parts[0], *parts[1]]) == _told(run / "whole")
    places = [{(item.pairing, item.dtype) for item in read_plan(run / name).items} for name in ("1of2", "2of2")]
    assert not places[0] & places[1]
    assert {len(each) for each in places} == {1, 2}


def test_merged_they_are_the_whole_run(run: Path) -> None:
    merged = _merge(run, "1of2", "2of2")
    assert (merged.returncode, merged.stderr) == (1, "")
    assert "wrong values" in merged.stdout
    assert _told(run / "merged") == _told(run / "whole")
    (whole,), (joined,) = read_runs(run / "whole"), read_runs(run / "merged")
    assert joined.reconciled == whole.reconciled
    in_order = [sorted(each.plan.items, key=lambda item: (item.item, item.group)) for each in (whole, joined)]
    assert in_order[0] == in_order[1]
    saved = [{path.name for path in (run / name / "cases").iterdir()} for name in ("whole", "merged")]
    assert saved[0] == saved[1]
    assert (run / "merged" / "report.html").exists()


# The suite and options of a second shard, which shards are merged, and what is said.
REFUSED = {
    "one is missing": (SUITE, (), ["1of2"], "shard 2/2 missing: run it, or name its folder"),
    "one is given twice": (SUITE, (), ["1of2", "copy"], "1of2 and copy are both shard 1/2"),
    "one is no shard": (SUITE, (), ["whole", "1of2"], "whole is a whole run, not a shard"),
    "of other code": (SUITE.replace("x + y", "y + x"), (), ["1of2", "2of2"], "test_suite.py::right is declared or"),
    "of another seed": (SUITE, ("--kt-seed", "1"), ["1of2", "2of2"], "1of2 and 2of2 belong to different runs: seed is"),
    "of other cases": (SUITE, ("-k", "victim"), ["1of2", "2of2"], "test_suite.py::right is declared or"),
    "of another number": (SUITE, (), ["1of2", "1of3"], "they have 2 and 3 shards"),
}  # fmt: skip


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("suite", "options", "merged", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_one_run_is_not_merged(
    run: Path, tmp_path: Path, suite: str, options: Sequence[str], merged: Sequence[str], said: str
) -> None:
    for name, source in {"1of2": "1of2", "copy": "1of2", "whole": "whole", "2of2": "2of2"}.items():
        (tmp_path / name).symlink_to(run / source)
    if suite != SUITE or options:
        (tmp_path / "2of2").unlink()
        _shard(tmp_path, "2/2", *options, suite=suite)
    if "1of3" in merged:
        _shard(tmp_path, "1/3")
    found = _merge(tmp_path, *merged)
    assert found.returncode == 2
    assert said in found.stderr
    assert not (tmp_path / "merged").exists()


def test_a_shard_that_was_cut_off_leaves_a_gap(run: Path, tmp_path: Path) -> None:
    for name in ("1of2", "2of2"):
        (tmp_path / name).mkdir()
        for path in (run / name).glob("*.json*"):
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    (records,) = (tmp_path / "2of2").glob("records-*.jsonl")
    records.write_text("".join(records.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    merged = _merge(tmp_path, "1of2", "2of2")
    assert merged.returncode == 1
    assert "INCOMPLETE" in merged.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kt-shard", "3/2"), "2/3 for the second of three, not '3/2'"),
        (("--kt-shard", "0/2"), "--kt-shard must be i/n with 1 <= i <= n"),
        (("--kt-durations", "old"), "--kt-durations needs --kt-shard"),
        (("--kt-shard", "1/2", "--kt-durations", "old"), "--kt-durations: "),
    ],
)
def test_what_cannot_be_cut_is_said(tmp_path: Path, options: Sequence[str], said: str) -> None:
    found = _pytest(tmp_path, *QUICK, *options, suite=SUITE)
    assert found.returncode == 4
    assert said in found.stderr
    assert "INCOMPLETE" not in found.stdout


@pytest.mark.slow
def test_shards_may_outnumber_the_parts(tmp_path: Path) -> None:
    suite = SUITE.replace('("float32", "float16")', '"float32"')
    for options in ((), ("-n", "2")):
        empty = _shard(tmp_path, "3/3", *options, suite=suite)
        assert empty.returncode == 0
        assert "shard 3/3 is empty: the run has fewer parts" in empty.stdout
    for shard in ("1/3", "2/3"):
        _shard(tmp_path, shard, suite=suite)
    merged = _merge(tmp_path, "1of3", "2of3", "3of3")
    assert (merged.returncode, merged.stderr) == (1, "")


def test_shards_are_of_like_cost_whatever_the_order() -> None:
    costs = {("p", str(i)): float(cost) for i, cost in enumerate([7, 5, 4, 3, 2, 2, 1])}
    chosen = balance(costs, 3)
    assert chosen == balance(dict(reversed(costs.items())), 3)
    loads = [sum(cost for part, cost in costs.items() if chosen[part] == shard) for shard in (1, 2, 3)]
    assert loads == [9, 8, 7]


def test_times_of_an_earlier_run_cut_it(run: Path, tmp_path: Path) -> None:
    spent = seconds_by_item(run / "whole")
    assert set(spent) == {item.item for item in read_plan(run / "whole").items}
    assert all(seconds > 0 for seconds in spent.values())
    _shard(tmp_path, "1/2", "--kt-durations", str(run / "whole"), "-k", "right and lower")
    assert read_plan(tmp_path / "1of2").shard == "1/2"


def test_a_shard_is_written_as_it_is_read() -> None:
    assert RunShard.parse("2/3") == RunShard(2, 3)
    assert str(RunShard.parse("2/3")) == "2/3"
