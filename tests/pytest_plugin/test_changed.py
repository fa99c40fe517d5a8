"""`--kt-changed`: what was green and is as it was is left out and named; whatever else runs."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.plugins import PLUGINS
from tests.pytest_plugin.test_plugin import ROOT

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


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *PLUGINS, "--kt-backends", "interpret", "--kt-depth", "quick", *options]
    known = {**os.environ, "PYTHONPATH": str(ROOT)}
    known.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def green(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both pairings were green."""
    folder = tmp_path_factory.mktemp("suite")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    assert _run(folder).returncode == pytest.ExitCode.OK
    return folder


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_run_of_nothing_new_is_green(green: Path, workers: Sequence[str]) -> None:
    run = _run(green, "--kt-changed", *workers)
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert BOTH in run.stdout


def test_a_run_without_the_option_leaves_nothing_out(green: Path) -> None:
    run = _run(green)
    assert "2 passed" in run.stdout
    assert "left out" not in run.stdout


def test_other_settings_are_a_change(green: Path) -> None:
    run = _run(green, "--kt-changed", "--kt-seed", "1", "--kt-minimize", "0")
    assert "left out" not in run.stdout
    assert _run(green).returncode == pytest.ExitCode.OK  # which is what the others start from


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_what_a_pairing_imports_counts_and_a_failure_is_run_until_it_is_mended(
    green: Path, workers: Sequence[str]
) -> None:
    try:
        (green / "helper.py").write_text("FACTOR = 3\n", encoding="utf-8")
        for _ in range(2):
            run = _run(green, "--kt-changed", "--kt-minimize", "0", *workers)
            assert run.returncode == pytest.ExitCode.TESTS_FAILED
            assert "1 failed" in run.stdout
            assert SECOND in run.stdout
    finally:
        (green / "helper.py").write_text("FACTOR = 2  # as before\n", encoding="utf-8")
    run = _run(green, "--kt-changed", *workers)
    assert "1 passed" in run.stdout
    assert SECOND in run.stdout


def test_families_of_a_conftest_are_a_change(green: Path) -> None:
    (green / "conftest.py").write_text("import kerneltest\n", encoding="utf-8")
    try:
        assert "2 passed" in _run(green, "--kt-changed").stdout
    finally:
        (green / "conftest.py").unlink()
        _run(green)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-p", "no:cacheprovider"), "--kt-changed needs pytest's cache, which -p no:cacheprovider switches off"),
        (("--kt-shard", "1/2"), "--kt-changed and --kt-shard: machines remember different runs"),
    ],
)
def test_what_it_does_not_go_with_is_said(green: Path, options: Sequence[str], words: str) -> None:
    run = _run(green, "--kt-changed", *options)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in run.stderr
