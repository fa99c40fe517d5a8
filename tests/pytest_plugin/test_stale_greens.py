"""A green item is not reused once its kernel or its oracle has become wrong, however that came about."""

import os
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from kerneltest.records.runs import read_runs
from kerneltest.records.schema import Record
from tests import forked
from tests.plugins import PLUGINS
from tests.pytest_plugin.stale_greens import WAYS, write

QUICK = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0", "-q")


def _run(folder: Path, *options: str, **variables: str) -> CompletedProcess[str]:
    known = {**os.environ, "PYTHONPATH": str(forked.ROOT), **variables}
    return forked.run(folder, "pytest", *PLUGINS, *QUICK, *options, environment=known)


# The suites of a run are in folders of their own, and each imports its own helper.
IMPORTS_AGAIN = """
import sys

def pytest_pycollect_makemodule():
    for name in ("test_suite", "helper", "library", "library.deep"):
        sys.modules.pop(name, None)
"""
TOGETHER = {name: way for name, way in WAYS.items() if way.changes_one_suite}


@pytest.fixture(scope="module")
def second_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Record]]:
    """The records of a run in which the code of all suites of `TOGETHER` is wrong, after a green one, by suite.

    The suite "unchanged" is as it was.
    """
    folder, out = tmp_path_factory.mktemp("suites"), tmp_path_factory.mktemp("out")
    write(folder, "conftest.py", IMPORTS_AGAIN)
    suites = {name: folder / f"suite_{place}" for place, name in enumerate([*TOGETHER, "unchanged"])}
    for name, suite in suites.items():
        TOGETHER.get(name, WAYS["a helper"]).write(suite)
    assert f"{len(suites)} passed" in _run(folder).stdout
    for name, way in TOGETHER.items():
        way.change(suites[name])
    _run(folder, f"--kt-report={out}")
    (run,) = read_runs(out)
    return {
        name: [record for record in run.records if record.pairing.startswith(f"{suite.name}/")]
        for name, suite in suites.items()
    }


@pytest.mark.parametrize("name", TOGETHER)
def test_a_second_run_finds_what_has_become_wrong(second_run: dict[str, list[Record]], name: str) -> None:
    assert any(record.verdict.is_finding for record in second_run[name])


def test_a_second_run_reuses_what_has_not_changed(second_run: dict[str, list[Record]]) -> None:
    assert second_run["unchanged"]
    assert all(record.reused_from and not record.verdict.is_finding for record in second_run["unchanged"])


@pytest.mark.parametrize("name", [name for name in WAYS if name not in TOGETHER])
def test_a_second_run_is_red_once_the_code_is_wrong(tmp_path: Path, name: str) -> None:
    way = WAYS[name]
    way.write(tmp_path)
    runs = (_run(tmp_path, *way.first) for _ in range(6))  # of two workers, either may get the item
    first = next((run for run in runs if "1 passed" in run.stdout), None)
    assert first is not None
    way.change(tmp_path)
    second = _run(tmp_path, *way.options, **way.variables)
    assert "1 failed" in second.stdout, second.stdout


@pytest.mark.parametrize(
    ("name", "workers"), [("a helper", ("-n", "1")), ("an installed package of the same version", ())]
)
def test_changed_items_are_not_left_out(tmp_path: Path, name: str, workers: tuple[str, ...]) -> None:
    way = WAYS[name]
    way.write(tmp_path)
    assert "1 passed" in _run(tmp_path).stdout
    unchanged = _run(tmp_path, "--kt-changed", *workers)
    assert "--kt-changed left out 1 item" in unchanged.stdout
    way.change(tmp_path)
    assert "1 failed" in _run(tmp_path, "--kt-changed", *workers, *way.options, **way.variables).stdout


@pytest.mark.parametrize("name", ["a helper", "a data file", "the oracle's helper", "a callback"])
def test_an_unchanged_item_is_reused_unless_it_calls_back(tmp_path: Path, name: str) -> None:
    WAYS[name].write(tmp_path)
    assert "1 passed" in _run(tmp_path).stdout
    second = _run(tmp_path)
    assert "1 passed" in second.stdout
    assert ("judged by earlier runs" in second.stdout) is (name != "a callback")


def test_other_comments_and_names_of_variables_are_no_change(tmp_path: Path) -> None:
    way = WAYS["a helper"]
    way.write(tmp_path)
    assert "1 passed" in _run(tmp_path).stdout
    suite = tmp_path / "test_suite.py"
    text = suite.read_text(encoding="utf-8").replace("o_ref", "out").replace("def scale", "# doubles\n\ndef scale")
    suite.write_text(text, encoding="utf-8")
    assert "judged by earlier runs" in _run(tmp_path).stdout


IN_TRITON = """
import kerneltest as kt
import triton
import triton.language as tl
from helper import scaled

@triton.jit
def kernel(x, out, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, scaled(tl.load(x + at)))

scale = kt.triton_kernel(kernel, grid=(1,), outputs=dict(out="x"), constants=dict(block=4))
doubled = kt.oracle_for(scale, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(4,))))(lambda x: 2 * x)
"""
SCALED = "import triton\n@triton.jit\ndef scaled(x):\n    return {} * x\n"


def test_a_kernel_in_triton_is_reused_until_what_it_calls_changes(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    write(tmp_path, "test_suite.py", IN_TRITON)
    write(tmp_path, "helper.py", SCALED.format(2))
    options = ("--kt-backends", "simulate:sm_90")
    assert "1 passed" in _run(tmp_path, *options).stdout
    assert "judged by earlier runs" in _run(tmp_path, *options).stdout
    write(tmp_path, "helper.py", SCALED.format(3))
    assert "1 failed" in _run(tmp_path, *options).stdout


REFUSES = """#!/bin/sh
[ "$1" = --version ] && exec {real} --version
echo "ptxas fatal: refused" >&2
exit 1
"""


def test_a_compiler_that_a_variable_names_counts_with_its_content(tmp_path: Path) -> None:
    """Neither the records nor the compiled code of the compiler before it are reused."""
    triton = pytest.importorskip("triton")
    real = Path(triton.__file__).with_name("backends") / "nvidia" / "bin" / "ptxas"
    replace(WAYS["a helper"], length=4).write(tmp_path)
    options, ptxas = ("--kt-backends", "compile:sm_80"), tmp_path / "ptxas"
    ptxas.write_text(f'#!/bin/sh\nexec {real} "$@"\n', encoding="utf-8")
    ptxas.chmod(0o755)
    variables = dict.fromkeys(("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"), str(ptxas))
    assert "1 passed" in _run(tmp_path, *options, **variables).stdout
    assert "judged by earlier runs" in _run(tmp_path, *options, **variables).stdout
    ptxas.write_text(REFUSES.format(real=real), encoding="utf-8")
    second = _run(tmp_path, *options, **variables)
    assert "1 failed" in second.stdout, second.stdout
