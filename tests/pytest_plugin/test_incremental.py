"""What was green and is as it was: its records are taken, and `--kt-changed` leaves it out; whatever else runs."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import copytree, rmtree
from subprocess import CompletedProcess

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.records.runs import read_runs
from tests import forked
from tests.plugins import PLUGINS

FILES = {
    "helper.py": "FACTOR = 2\n",
    "test_first.py": """
import kerneltest as kt
from kernels.vector_add import vector_add
import helper

@kt.oracle_for(vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
def first(x, y):
    return x + (helper.FACTOR - 1) * y
""",
    "test_second.py": """
import kerneltest as kt
from kernels.vector_add import vector_add

@kt.oracle_for(vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
def second(x, y):
    return x + y
""",
}
BOTH = "--kt-changed left out 2 items, green before and unchanged since: test_first.py::first, test_second.py::second"
SECOND = "--kt-changed left out 1 item, green before and unchanged since: test_second.py::second"


TAKEN = re.compile(r"(\d+) of (\d+) cases were judged by earlier runs, the first on \d{4}-\d\d-\d\d")


def _taken(run: CompletedProcess[str]) -> float:
    found = TAKEN.search(run.stdout)
    return int(found[1]) / int(found[2]) if found else 0.0


def _run(folder: Path, *options: str) -> CompletedProcess[str]:
    return forked.run(folder, "pytest", *PLUGINS, "--kt-backends", "interpret", "--kt-depth", "quick", *options)


@pytest.fixture(scope="module")
def green(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both pairings were green."""
    folder = tmp_path_factory.mktemp("suite")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    assert _run(folder).returncode == pytest.ExitCode.OK
    return folder


@pytest.fixture
def remembered(green: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of `green`, which remembers nothing of the runs of a test."""
    copytree(green / ".pytest_cache", tmp_path / "cache")
    yield green
    rmtree(green / ".pytest_cache")
    copytree(tmp_path / "cache", green / ".pytest_cache")


@pytest.mark.sweep(1)
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_of_nothing_new_is_green(green: Path, workers: Sequence[str]) -> None:
    run = _run(green, "--kt-changed", *workers)
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert BOTH in run.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_of_nothing_new_takes_its_records(green: Path, tmp_path: Path, workers: Sequence[str]) -> None:
    run = _run(green, f"--kt-report={tmp_path}", *workers)
    assert "2 passed" in run.stdout
    assert "left out" not in run.stdout
    assert _taken(run) == 1.0
    (ran,) = read_runs(tmp_path)
    assert ran.reconciled.green
    assert ran.records
    assert all(record.reused_from and record.verdict is Verdict.PASS for record in ran.records)
    page, count = (tmp_path / "report.html").read_text(encoding="utf-8"), len(ran.records)
    assert f"{count} cases, {count} judged by earlier runs" in page
    assert f"{count} of {count} cases were judged by earlier runs, the first on" in page


@pytest.mark.slow
def test_what_records_of_an_earlier_run_lack_is_run(green: Path, tmp_path: Path) -> None:
    kept = (f"--kt-report={tmp_path}",)
    for options in (("--kt-artifacts", *kept), ("--kt-budget", "100"), ("-p", "no:cacheprovider"), ("--cache-clear",)):
        run = _run(green, *options)
        assert "2 passed" in run.stdout
        assert not _taken(run), options
    assert _taken(_run(green, "-q")) == 1.0  # of the run that cleared the cache, and said even where little is


def test_other_settings_are_a_change(remembered: Path) -> None:
    run = _run(remembered, "--kt-changed", "--kt-seed", "1", "--kt-minimize", "0")
    assert "left out" not in run.stdout
    assert not _taken(run)


@pytest.mark.slow
def test_what_a_pairing_imports_counts_and_a_failure_is_run_until_it_is_mended(green: Path) -> None:
    try:
        (green / "helper.py").write_text("FACTOR = 3\n", encoding="utf-8")
        for _ in range(2):
            run = _run(green, "--kt-changed", "--kt-minimize", "0")
            assert run.returncode == pytest.ExitCode.TESTS_FAILED
            assert "1 failed" in run.stdout
            assert SECOND in run.stdout
        run = _run(green, "--kt-minimize", "0", "-n", "2")
        assert "1 failed, 1 passed" in run.stdout
        assert 0 < _taken(run) < 1
    finally:
        (green / "helper.py").write_text("FACTOR = 2  # as before\n", encoding="utf-8")
    run = _run(green, "--kt-changed")
    assert "1 passed" in run.stdout
    assert SECOND in run.stdout
    assert not _taken(run)


FAMILY = """
import kerneltest as kt

@kt.family(group="numeric", applies=lambda slot: slot.is_float_data)
def around_forty(slot, rng):
    return slot.cast(rng.standard_normal(slot.shape) + 40)
"""


def test_families_of_a_conftest_are_a_change(remembered: Path) -> None:
    (remembered / "conftest.py").write_text(FAMILY, encoding="utf-8")
    try:
        assert "2 passed" in _run(remembered, "--kt-changed").stdout
    finally:
        (remembered / "conftest.py").unlink()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-p", "no:cacheprovider"), "--kt-changed needs pytest's cache, which -p no:cacheprovider disables"),
        (("--kt-shard", "1/2"), "--kt-changed and --kt-shard cannot be combined: each machine has its own"),
    ],
)
def test_what_it_does_not_go_with_is_said(green: Path, options: Sequence[str], words: str) -> None:
    run = _run(green, "--kt-changed", *options)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in run.stderr
