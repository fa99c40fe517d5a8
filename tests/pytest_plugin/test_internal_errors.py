"""Exceptions of kerneltest outside of a case: the run says so, ends with 3, and loses no verdict."""

from pathlib import Path

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.records.runs import read_runs
from tests.pytest_plugin.test_plugin import _pytest

SUITE = """
import jax
import kerneltest as kt
from jax.experimental import pallas as pl

def kernel_of(factor):
    def scale(x):
        def body(x_ref, o_ref):
            o_ref[...] = x_ref[...] * factor
        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
    return scale

def pair(factor):
    return kt.oracle_for(kernel_of(factor), x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(16,))))

@pair(2)
def right(x): return 2 * x

@pair(3)
def wrong(x): return 2 * x
"""

# Raises, as kerneltest itself, in place of a function of it.
CONFTEST = """
from importlib import import_module
namespace = {{"__name__": "kerneltest.injected"}}
exec('''
def raises(*args, **options):
    raise LookupError("injected")
''', namespace)
setattr(import_module({module!r}), {name!r}, namespace["raises"])
"""

# The function that raises, by phase. A pairing that cannot be planned has no verdicts; all others keep theirs.
PLANNING, SEARCHING = "planning", "searching for the smallest case"
PHASES = {
    PLANNING: "kerneltest.execute.planning.absence",
    "saving the inputs": "kerneltest.pytest_plugin.worker.save_reproduction",
    SEARCHING: "kerneltest.pytest_plugin.worker.find_suspects",
    "writing the page": "kerneltest.report.html.page.write_html",
    "writing the summary": "kerneltest.report.text.terminal_summary.summary_lines",
}


@pytest.mark.parametrize("phase", PHASES)
def test_an_exception_outside_of_a_case_is_told_and_loses_no_verdict(phase: str, tmp_path: Path) -> None:
    module, _, name = PHASES[phase].rpartition(".")
    (tmp_path / "conftest.py").write_text(CONFTEST.format(module=module, name=name), encoding="utf-8")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out")
    options += () if phase == SEARCHING else ("--kt-minimize", "0")
    run = _pytest(tmp_path, *options, suite=SUITE)
    told = run.stdout + run.stderr
    assert run.returncode == pytest.ExitCode.INTERNAL_ERROR, told
    assert "kerneltest raised LookupError" in told
    assert "INTERNALERROR" not in told
    assert not any("kerneltest itself failed in" in line for line in told.splitlines())  # no case ended so
    if phase != PLANNING:
        (read,) = read_runs(tmp_path / "out")
        verdicts = {(r.pairing.rpartition("::")[2], r.verdict) for r in read.records if r.case}
        assert {("right", Verdict.PASS), ("wrong", Verdict.MISMATCH)} <= verdicts
        assert {verdict for name, verdict in verdicts if name == "right"} == {Verdict.PASS}


# A backend and a pairing that work in pytest's process, but not in the isolated one.
LACKS = """
import multiprocessing
import kerneltest as kt
from kerneltest.backends.interpret import Interpret

isolated = multiprocessing.parent_process() is not None

@kt.backend("mine")
class Mine(Interpret):
    tier = kt.Tier.INTERPRET

    def __init__(self):
        super().__init__("mine")

    def unavailable(self):
        return "its licence is used up" if isolated else ""
"""
UNPLANNED = "if isolated: right = kt.oracle_for(lambda x: x, x=kt.array('n', 'float32'))(lambda x: x)"


@pytest.mark.parametrize(
    ("ending", "words"),
    [("", "cannot run in the isolated process: its licence is used up"), (UNPLANNED, "so there is no kernel to test")],
)
def test_what_the_isolated_process_lacks_is_said_without_a_traceback(ending: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(LACKS, encoding="utf-8")
    suite = f"{SUITE}\nimport multiprocessing\nisolated = multiprocessing.parent_process() is not None\n{ending}\n"
    backend = "interpret" if ending else "mine"
    options = ("--kt-backends", backend, "--kt-depth", "quick", "--kt-isolate", "always", "-k", "right")
    run = _pytest(tmp_path, *options, suite=suite)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert words in run.stdout
    assert "Traceback" not in run.stdout


def test_the_line_of_a_failed_test_begins_with_the_reason(tmp_path: Path) -> None:
    conftest = CONFTEST.format(module="kerneltest.execute.claims", name="compare_outputs")
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "-k", "right")
    run = _pytest(tmp_path, *options, suite=SUITE)
    assert run.returncode == pytest.ExitCode.INTERNAL_ERROR, run.stdout
    assert "[interpret-float32] - kerneltest raised" in run.stdout
