"""Sessions with pairings that never end while they are planned: each costs itself, and the others run."""

import os
from collections import Counter
from pathlib import Path

from kerneltest.core.verdicts import Verdict
from kerneltest.records.runs import read_runs
from tests import forked
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[2]
SUITE = """
import time
import jax.numpy as jnp
import kerneltest as kt
from kernels.vector_add import vector_add
from tests.late import be_late

def double(x):
    return vector_add(x, x)

def sleeping(x):
    be_late()
    time.sleep(9999)

def sometimes(x):
    if x.shape[0] == 5:
        be_late()
        while True: jnp.sin(1.0)
    return double(x)

def paired(kernel):
    def oracle(x):
        return 2 * x
    oracle.__name__ = oracle.__qualname__ = kernel.__name__
    return kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3, 5))))(oracle)

pairings = [paired(sleeping), paired(sometimes), paired(double)]
"""
CONFTEST = "import pytest\nfrom tests.late import watch_closely\nwatch_closely(pytest.MonkeyPatch())\n"
HUNG = "no answer within 100 s while tracing the kernel (test_suite.py:{})"


def test_a_session_ends_with_a_hang_and_the_verdicts_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    command = ["pytest", *PLUGINS, "-p", "no:cacheprovider", "--kt-report", "out", "--kt-backends", "interpret"]
    command += ["--kt-depth", "quick", "--kt-minimize", "0", "--kt-timeout", "100", "--kt-shard", "1/1", "-n", "2"]
    run = forked.start(tmp_path, *command, environment={**os.environ, "PYTHONPATH": str(ROOT)})
    said = run.said(300)
    assert run.returncode == 1, said
    (read,) = read_runs(tmp_path / "out")
    assert read.reconciled.complete
    ended = Counter((r.pairing[-2], r.verdict, r.dims.get("n"), r.message) for r in read.records)
    assert {key for key in ended if key[1] is not Verdict.PASS} == {
        ("0", Verdict.HANG, None, HUNG.format(13)),
        ("1", Verdict.HANG, 5, HUNG.format(18)),
    }
    assert {key[::2] for key in ended if key[1] is Verdict.PASS} == {("1", 3), ("2", 3), ("2", 5)}
    assert f"test_suite.py::pairings[0] hang on interpret: {HUNG.format(13)}" in said
