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
PLANNING = "planning"
PHASES = {
    PLANNING: "kerneltest.execute.planning.absence",
    "saving the inputs": "kerneltest.pytest_plugin.worker.save_reproduction",
    "searching for the smallest case": "kerneltest.pytest_plugin.suspect_tracker.find_suspects",
    "writing the page": "kerneltest.report.html.render_page.write_html",
    "writing the summary": "kerneltest.report.text.terminal_summary.summary_lines",
}


@pytest.mark.parametrize("phase", PHASES)
def test_an_exception_outside_of_a_case_is_told_and_loses_no_verdict(phase: str, tmp_path: Path) -> None:
    module, _, name = PHASES[phase].rpartition(".")
    (tmp_path / "conftest.py").write_text(CONFTEST.format(module=module, name=name), encoding="utf-8")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out")
    run = _pytest(tmp_path, *options, suite=SUITE)
    told = run.stdout + run.stderr
    assert run.returncode == pytest.ExitCode.INTERNAL_ERROR, told
    assert "kerneltest raised LookupError" in told
    assert "INTERNALERROR" not in told
    if phase != PLANNING:
        (read,) = read_runs(tmp_path / "out")
        verdicts = {(r.pairing.rpartition("::")[2], r.verdict) for r in read.records if r.case}
        assert {("right", Verdict.PASS), ("wrong", Verdict.MISMATCH)} <= verdicts
        assert {verdict for name, verdict in verdicts if name == "right"} == {Verdict.PASS}
