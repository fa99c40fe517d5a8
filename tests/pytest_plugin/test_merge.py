"""Merging shards: of one code only, nothing lost between them, and no shard destroyed."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from subprocess import CompletedProcess
from typing import Any

import pytest

from kerneltest.pytest_plugin.sharding import balance
from tests import forked
from tests.plugins import PLUGINS

SUITE = """
from pathlib import Path
import kerneltest as kt
from kernels.vector_add import vector_add
import helper

def paired(name):
    def oracle(x, y):
        return x + helper.FACTOR * y
    oracle.__name__ = name
    floats = kt.array("n", "float32")
    return kt.oracle_for(vector_add, x=floats, y=floats, dims=dict(n=kt.dim(values=(3,))))(oracle)

first, second = paired("first"), paired("second")

def test_plain():
    assert not Path("fails").exists()
"""
RIGHT = "FACTOR = 1\n"
SHARDS = ("1of2", "2of2")


def _shard(folder: Path, number: str, helper: str = RIGHT) -> CompletedProcess[str]:
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    (folder / "helper.py").write_text(helper, encoding="utf-8")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0", "-p", "no:cacheprovider")
    report = number.replace("/", "of")
    return forked.run(folder, "pytest", *PLUGINS, *options, "--kt-shard", number, "--kt-report", report, "-q")


def _kerneltest(folder: Path, *words: str) -> CompletedProcess[str]:
    return forked.run(folder, "kerneltest", *words)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for number in ("1/2", "2/2"):
        assert _shard(folder, number).returncode == 0
    return folder


@pytest.fixture
def shards(both: Path, tmp_path: Path) -> Path:
    copytree(both, tmp_path, dirs_exist_ok=True)
    return tmp_path


def _change_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_shards_of_one_code_are_one_green_run(shards: Path) -> None:
    merged = _kerneltest(shards, "merge", *SHARDS, "-o", "whole")
    assert (merged.returncode, merged.stderr) == (0, "")
    assert {path.name for path in shards.iterdir() if path.is_dir() and path.name[0] != "_"} == {*SHARDS, "whole"}
    assert _kerneltest(shards, "merge", *SHARDS, "-o", "whole").returncode == 0  # over an earlier one


@pytest.mark.slow
def test_shards_of_two_commits_are_not_merged(shards: Path) -> None:
    _shard(shards, "2/2", "FACTOR = 1.001\n")
    merged = _kerneltest(shards, "merge", *SHARDS, "-o", "whole")
    assert merged.returncode == 2
    assert "test_suite.py::first is declared or written differently" in merged.stderr
    assert not (shards / "whole").exists()


def test_an_item_in_neither_shard_is_a_gap(shards: Path) -> None:
    def lose(content: dict[str, Any]) -> None:
        plan = content["plan"]
        plan["elsewhere"], plan["items"] = [*plan["elsewhere"], *plan["items"]], []

    _change_json(shards / "2of2" / "plan.json", lose)
    for path in (shards / "2of2").glob("records-*.jsonl"):
        path.unlink()
    _change_json(shards / "2of2" / "end.json", lambda content: content["end"].update(records=0))
    merged = _kerneltest(shards, "merge", *SHARDS, "-o", "whole")
    assert merged.returncode == 1
    assert "INCOMPLETE" in merged.stdout


def test_a_plan_that_does_not_list_its_run_is_refused(shards: Path) -> None:
    _change_json(shards / "2of2" / "plan.json", lambda content: content["plan"].update(elsewhere=[]))
    merged = _kerneltest(shards, "merge", *SHARDS, "-o", "whole")
    assert merged.returncode == 2
    assert "2of2 does not list all items of its run" in merged.stderr


def test_the_output_never_replaces_a_shard(shards: Path) -> None:
    before = {path.name: path.read_bytes() for path in (shards / "2of2").iterdir()}
    merged = _kerneltest(shards, "merge", *SHARDS, "-o", "2of2")
    assert merged.returncode == 2
    assert "-o names the shard 2of2: name another folder" in merged.stderr
    assert {path.name: path.read_bytes() for path in (shards / "2of2").iterdir()} == before


def test_a_merge_that_fails_leaves_an_earlier_one(shards: Path) -> None:
    assert _kerneltest(shards, "merge", *SHARDS, "-o", "whole").returncode == 0
    before = {path.name: path.read_bytes() for path in (shards / "whole").iterdir() if path.name[0] != "."}
    for name in SHARDS:
        (shards / name / "cases").mkdir()
        (shards / name / "cases" / "1.npz").write_text(name, encoding="utf-8")
    assert _kerneltest(shards, "merge", *SHARDS, "-o", "whole").returncode == 2
    assert {path.name: path.read_bytes() for path in (shards / "whole").iterdir() if path.name[0] != "."} == before
    assert not list(shards.glob(".whole*"))


def test_a_plain_test_that_failed_in_a_shard_fails_the_whole(shards: Path) -> None:
    (shards / "fails").touch()
    assert "1 failed, 1 passed" in _shard(shards, "1/2").stdout
    merged = _kerneltest(shards, "merge", *SHARDS, "-o", "whole")
    assert merged.returncode == 1
    assert "failed, and is not a pairing: test_suite.py::test_plain" in merged.stdout


def test_one_shard_is_not_the_whole_run(shards: Path) -> None:
    alone = _kerneltest(shards, "summary", "1of2")
    assert alone.returncode == 1
    assert "shard 1/2 lacks" in alone.stdout
    passed, planned = alone.stdout.splitlines()[-1].split(" cells pass")[0].split(" of ")
    assert int(planned) == 2 * int(passed)
    assert _kerneltest(shards, "report", "1of2").returncode == 1
    assert _kerneltest(shards, "summary", *SHARDS).returncode == 0


@pytest.mark.parametrize("shard", ["1/99999999999", "x/y", "1/" + 5000 * "9"])
def test_a_number_of_shards_takes_no_memory(shards: Path, shard: str) -> None:
    for name in SHARDS:
        _change_json(shards / name / "plan.json", lambda content: content["plan"].update(shard=shard))
    merged = _kerneltest(shards, "merge", "1of2", "-o", "whole")
    assert merged.returncode == 2
    assert "Traceback" not in merged.stderr
    assert "missing" in merged.stderr or "no number of a shard" in merged.stderr
    assert balance({("p", "float32"): 1.0, ("q", "float32"): 1.0}, 10**11) == {("p", "float32"): 1, ("q", "float32"): 2}
