"""A run that was killed goes on where it was: nothing is lost, nothing is run twice, and only the same run goes on."""

import os
import signal
import time
from pathlib import Path
from shutil import copytree

import psutil
import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.records.resume import prepare_resume
from kerneltest.records.runs import read_running, read_runs
from tests import forked
from tests.plugins import PLUGINS
from tests.written import case, write_run

ROOT = Path(__file__).parents[2]
SUITE = """
import os
import time
import kerneltest as kt
import numpy as np
from kernels.vector_add import vector_add

def paired(name, wrong=False):
    def oracle(x, y):
        time.sleep(float(os.environ.get("SLOW", "0")))
        return x - y if wrong else x + y
    oracle.__name__ = oracle.__qualname__ = name
    dims = dict(n=kt.dim(values=(5,)))
    return kt.oracle_for(vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims=dims)(oracle)

first, second, third = paired("first"), paired("second", wrong=True), paired("third")
"""


def _start(folder: Path, *options: str, **environment: str) -> forked.Started:
    command = ["pytest", *PLUGINS, "-p", "no:cacheprovider", "--kt-report", "out", "-q"]
    command += ["--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0", *options]
    return forked.start(folder, *command, environment={**os.environ, "PYTHONPATH": str(ROOT), **environment})


def _processes_in(folder: Path) -> list[str]:
    processes = psutil.process_iter(["pid", "status", "cmdline", "cwd"])
    return [f"{each.info}" for each in processes if each.info["cwd"] == str(folder)]


def _killed(folder: Path, records: int, *options: str) -> int:
    """Kills a run once it has written some records; how many there are then."""
    run = _start(folder, *options, SLOW="0.02")
    while run.returncode is None:
        written = sum(path.read_bytes().count(b"\n") for path in folder.glob("out/records-*.jsonl"))
        if written >= records:
            run.send_signal(signal.SIGKILL)
            run.said(300)
            deadline = time.monotonic() + 120
            while left := _processes_in(folder):  # what it started ends with it
                assert time.monotonic() < deadline, f"what the run started has not ended: {left}"
                time.sleep(0.05)
            return written
        time.sleep(0.05)
    pytest.fail(f"the run ended: {run.said()}")


def _verdicts(folder: Path) -> dict[tuple[str, str, str], Verdict]:
    (run,) = read_runs(folder)
    assert run.reconciled.complete, run.reconciled.problems
    assert len({(r.cell, r.case) for r in run.records}) == len(run.records)
    return {(record.item, record.family, record.case): record.verdict for record in run.records}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody kills."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    assert "1 failed, 2 passed" in _start(folder).said(120)
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    _killed(folder, 45)
    return folder


@pytest.mark.parametrize("options", [(), ("--kt-isolate", "always"), ("-n", "2")])
def test_a_killed_run_goes_on_to_the_verdicts_of_a_whole_one(
    tmp_path: Path, whole: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    wanted = _verdicts(whole / "out")
    _killed(tmp_path, 45, *options)
    judged = read_running(tmp_path / "out").records
    with (tmp_path / "out" / "records-torn.jsonl").open("wb") as file:
        file.write(b'{"schema":12,"record":{"it')  # as a process leaves that is killed while it writes
    run = _start(tmp_path, "--kt-resume", *options)
    said = run.said(120)
    assert "1 failed, 2 passed" in said, said
    assert _verdicts(tmp_path / "out") == wanted
    kept = read_runs(tmp_path / "out")[0].records  # with the seconds that each took
    assert len(judged) >= 45
    assert [record for record in judged if record not in kept] == []  # what had been judged is not judged again


SHUFFLED = "def pytest_collection_modifyitems(items):\n    items.reverse()\n"


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_whose_items_are_shuffled_goes_on(
    tmp_path: Path, whole: Path, killed: Path, workers: tuple[str, ...]
) -> None:
    copytree(killed, tmp_path, dirs_exist_ok=True)
    (tmp_path / "conftest.py").write_text(SHUFFLED, encoding="utf-8")
    said = _start(tmp_path, "--kt-resume", *workers).said(120)
    assert "1 failed, 2 passed" in said, said
    assert _verdicts(tmp_path / "out") == _verdicts(whole / "out")


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ("", ("--kt-seed", "1"), "seed (0 then, 1 now)"),
        ("", ("-k", "first"), "the items that are selected, or their cases"),
        ("x + y + 0", (), "the code or the declaration of test_suite.py::first"),
    ],
)
@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_only_the_same_run_goes_on(
    tmp_path: Path, killed: Path, change: str, options: tuple[str, ...], words: str, workers: tuple[str, ...]
) -> None:
    copytree(killed, tmp_path, dirs_exist_ok=True)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.json*")}
    if change:
        (tmp_path / "test_suite.py").write_text(SUITE.replace("x + y", change), encoding="utf-8")
    run = _start(tmp_path, "--kt-resume", *options, *workers)
    said = run.said(120)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR, said
    assert words in said.replace("\n", " ")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.json*")} == before


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--kt-report", "none"), "holds no run to resume"), (("--kt-report", ""), "--kt-resume needs --kt-report")],
)
def test_without_a_run_there_is_nothing_to_go_on_with(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    run = _start(tmp_path, "--kt-resume", *options)
    assert words in run.said(300).replace("\n", " ")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR


def test_what_was_recorded_of_a_family_because_its_process_died_is_run_after_all(tmp_path: Path) -> None:
    given_up = case(case="", signature="*", verdict="crash", message="the process died")
    folder = write_run(tmp_path / "out", case(case="c1"), given_up, planned=2)
    (folder / "running-gw0.txt").write_text("x", encoding="utf-8")
    prepare_resume(folder)
    assert [record.case for record in read_running(folder).records] == ["c1"]
    (shard,) = folder.glob("*.jsonl")
    assert shard.name.startswith("records-before-")
    assert not list(folder.glob("running-*"))
    prepare_resume(folder)  # again, as after a second kill
    assert [record.case for record in read_running(folder).records] == ["c1"]


CHANGING = """
import kerneltest as kt
from kernels.vector_add import vector_add
import importlib

def paired(name, factor):
    def oracle(x, y):
        return x + factor * y
    oracle.__name__ = name
    floats = kt.array("n", "float32")
    return kt.oracle_for(vector_add, x=floats, y=floats, dims=dict(n=kt.dim(values=(3,))))(oracle)

first, second = paired("first", importlib.import_module("helper").FACTOR), paired("second", 1)
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_records_of_other_code_are_dropped_and_their_items_run_again(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_suite.py").write_text(CHANGING, encoding="utf-8")
    (tmp_path / "helper.py").write_text("FACTOR = 1", encoding="utf-8")
    assert "2 passed" in _start(tmp_path, *workers).said(120)
    before = read_running(tmp_path / "out").records
    (tmp_path / "out" / "end.json").unlink()  # as of a run that was killed at its end
    (tmp_path / "helper.py").write_text("FACTOR = 2.5", encoding="utf-8")
    for _ in range(2):
        said = _start(tmp_path, "--kt-resume", *workers).said(120)
        assert "1 failed, 1 passed" in said, said
        (run,) = read_runs(tmp_path / "out")
        assert run.reconciled.complete, run.reconciled.problems
        kept = [record for record in before if record in run.records]
        assert {record.pairing for record in kept} == {"test_suite.py::second"}
        assert len(kept) == len(before) // 2
        (tmp_path / "out" / "end.json").unlink()
