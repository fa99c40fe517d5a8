"""No run ends with 0 while a pairing was lost, left untested or wrong: what is in its way is refused by name."""

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from kerneltest.__main__ import main
from tests import forked
from tests.pytest_plugin.test_plugin import _pytest

KERNELS = """
import os
import warnings
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

def double(x, by=2):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * by
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

def warns(x):
    warnings.warn("of JAX's kind", DeprecationWarning, stacklevel=1)
    return double(x)

def exits(x):
    os._exit(0)

def nan(x):
    return double(x * jnp.nan)

def by_shape(x):
    return double(x, 3) if x.shape[0] % 2 == 0 else x * 2

def by_dtype(x):
    return double(x, 3) if x.dtype == jnp.float32 else x * 2

def by_static(x, mode):
    return double(x, 3) if mode == "kernel" else x * 2

def plain(x):
    return x * 2

def interpreted(x):
    return pl.pallas_call(
        lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        interpret=True,
    )(x)

def interpreted_by_default(x, interpret=True):
    return pl.pallas_call(
        lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2), x, interpret=interpret)(x)

def interpreted_here(x):
    return pl.pallas_call(
        lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] * 2), x, interpret=jax.default_backend() == "cpu")(x)

def too_large(x):
    return pl.pallas_call(lambda x_ref, o_ref: None, out_shape=jax.ShapeDtypeStruct((3,), x.dtype), grid=(2,))(y)

def unused(x):
    double(x, 3)
    return x * 2
"""
HEAD = """
import atexit, os, sys
import numpy as np
import pytest
import kerneltest as kt
from kernels_here import *

X = kt.array("n", "float32")
DIMS = dict(n=kt.dim(values=(3,)))
TWO_LENGTHS = dict(n=kt.dim(values=(3, 4)))
"""
WRONG = "@kt.oracle_for(double, x=X, dims=DIMS)\ndef wrong(x): return 3 * x\n"
RIGHT = "@kt.oracle_for(double, x=X, dims=DIMS)\ndef right(x): return 2 * x\n"
PASSES = "def test_passes(): pass\n"

# Test files, each with words that the output of the failing run has.
DOORS = {
    "parametrize": (
        "@pytest.mark.parametrize('a', [1])\n" + RIGHT,
        r"pairing 'right' \(test_a.py:\d+\): @pytest.mark.parametrize has no effect on a pairing",
    ),
    "usefixtures below": (
        RIGHT.replace("def right", "@pytest.mark.usefixtures('tmp_path')\ndef right"),
        "@pytest.mark.usefixtures has no effect on a pairing",
    ),
    "an unknown backend": (
        RIGHT.replace("dims=DIMS", "backends=('interpet',)"),
        r"pairing 'right', backends: 'interpet' matches no backend; did you mean 'interpret'\?",
    ),
    "an unknown backend in on=": (
        RIGHT.replace("dims=DIMS", "dims=dict(n=kt.dim(on={'gpus': kt.dim(values=(2,))}))"),
        r"pairing 'right', dim 'n': on=: 'gpus' matches no backend; did you mean 'gpu'\?",
    ),
    "no parentheses": ("@kt.oracle_for\ndef lost(x): return x\n", "oracle_for: 'lost' needs 'x'.* name its kernel"),
    "no decorator": (
        "kt.oracle_for(double, x=X)\ndef lost(x): return 2 * x\n",
        r"oracle_for\(double, \.\.\.\) \(test_a.py:\d+\) decorates no oracle",
    ),
    "xfail of a module": ("pytestmark = pytest.mark.xfail\n" + WRONG, "pytest.mark.xfail does not apply to a pairing"),
    "strict xfail without a run": ("pytestmark = pytest.mark.xfail(run=False)\n" + WRONG, "FAILED test_a.py::wrong"),
    "no kernel": (
        RIGHT + RIGHT.replace("double", "plain").replace("right", "idle"),
        "FAILED test_a.py::idle.*\n|pairing 'idle' .*it never reaches a Pallas call",
    ),
    "another way by shape": (
        RIGHT.replace("double", "by_shape").replace("DIMS", "TWO_LENGTHS"),
        r"test_a.py::right: 1 of 2 signatures never reach a pallas_call \(n=3,float32\)",
    ),
    "another way by dtype": (
        RIGHT.replace("double, x=X, dims=DIMS", "by_dtype, x=kt.array('n', ('bfloat16', 'float32')), dims=TWO_LENGTHS"),
        r"test_a.py::right: 2 of 4 signatures never reach a pallas_call \(n=3,bfloat16; n=4,bfloat16\)",
    ),
    "another way by a static argument": (
        RIGHT.replace("double, x=X", "by_static, x=X, mode=kt.static('plain', 'kernel')"),
        "test_a.py::right: 1 of 2 signatures never reach a pallas_call",
    ),
    "an oracle of NaN": (
        RIGHT.replace("double", "nan").replace("2 * x", "x * np.nan"),
        "test_a.py::right: nothing informative was compared: every value that the oracle expects is NaN or infinite",
    ),
    "an oracle that defines nothing, beside one that is right": (
        RIGHT + RIGHT.replace("right", "silent").replace("2 * x", "kt.defined(2 * x, where=np.zeros(x.shape, bool))"),
        "test_a.py::silent: nothing was compared: the oracle leaves all elements undefined",
    ),
    "a domain of one number": (
        RIGHT.replace("dims=DIMS", "dims=DIMS, tolerance=kt.tolerance.exact()").replace(
            "x=X", "x=kt.array('n', 'float32', domain=(0, 0))"
        ),
        "test_a.py::right: nothing informative was compared: every value that the oracle expects is 0",
    ),
    "a kernel that exits": (RIGHT.replace("double", "exits"), r"os._exit\(0\) was called.*test_a.py::right"),
    "a module that exits": ("os._exit(0)\n", r"os._exit\(0\) was called before the session ended .*test_a.py:\d+"),
    "an oracle that becomes another program": (
        RIGHT.replace("return", "os.execvp('true', ['true']); return"),
        r"os\.execv was called. .* for case .* of test_a.py::right",
    ),
    "a module that becomes another program": (
        "import posix\nposix.execv('/bin/true', ['true'])\n",
        r"os.execv was called before the session ended .*test_a.py:\d+",
    ),
    "a kernel whose result is not used": (
        RIGHT + RIGHT.replace("double", "unused").replace("right", "idle").replace("DIMS", "TWO_LENGTHS"),
        "pairing 'idle' .*none of its 2 signatures reaches a Pallas call whose result is used",
    ),
    "lengths of zero": (
        RIGHT + RIGHT.replace("DIMS", "dict(n=kt.dim(values=(0,)))").replace("right", "idle"),
        "pairing 'idle' .*every output is empty",
    ),
    "a condition that exits": (
        "ready = []\n" + RIGHT.replace("DIMS", "DIMS, where=lambda n: not ready or sys.exit(0)") + "ready.append(1)\n",
        "its declaration raised SystemExit while planning right: 0",
    ),
    "a kernel that never gets to a value": (
        RIGHT.replace("double", "too_large"),
        r"INCOMPLETE:\n  nothing was compared in the whole run: its cases ended as \d+ runtime_error",
    ),
}
OPTIONS = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out", "--kt-minimize", "0")


def _run(
    folder: Path,
    tests: str,
    *options: str,
    conftest: str = "",
    start: Callable[..., CompletedProcess[str]] = forked.run,
) -> tuple[int, str]:
    files = {"kernels_here.py": KERNELS, "conftest.py": conftest, "test_a.py": HEAD + tests}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    run = _pytest(folder, *OPTIONS, *options, suite=None, start=start)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.sweep(8)
@pytest.mark.parametrize("door", DOORS)
def test_a_run_that_tested_less_than_it_seems_fails_and_says_why(tmp_path: Path, door: str) -> None:
    tests, words = DOORS[door]
    status, output = _run(tmp_path, PASSES + tests)
    assert status in (1, 2), output
    assert re.search(words, output), output


IN_A_TEST = "def test_made():\n    @kt.oracle_for(double, x=X, dims=DIMS)\n    def made(x): return 3 * x\n"
CHECKED = IN_A_TEST + "    assert not kt.check(made, depth='quick').ok\n"
SKIPS_CALLS = """
@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    pytest.skip("only benchmarks")
    yield
"""

# Test files and conftests of runs that end with 0 and a remark; "" for none.
REMARKED = {
    "a pairing in a test": (IN_A_TEST, "", r"pairing 'made' \(test_a.py:\d+\) was made in test_made and never tested"),
    "a checked pairing in a test": (CHECKED, "", ""),
    "interpret=True": (
        RIGHT.replace("double", "interpreted"), "",
        r"interpret=True is written in the kernel \(kernels_here.py:39\).* remove it",
    ),
    "interpret=True by default": (
        RIGHT.replace("double", "interpreted_by_default"), "",
        r"interpret=True is written in the kernel \(kernels_here.py:42\)",
    ),
    "interpret on this machine": (RIGHT.replace("double", "interpreted_here"), "", ""),
    "a lone skip": (
        "@pytest.mark.skip(reason='later')\n" + RIGHT, "",
        r"nothing was compared, since pytest skipped everything \(skipped: later\)",
    ),
    "a plugin that skips calls": (
        RIGHT, "import pytest\n" + SKIPS_CALLS, r"since pytest skipped everything \(skipped: only benchmarks\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("door", REMARKED)
def test_a_run_that_tested_less_than_it_may_seem_says_so(tmp_path: Path, door: str) -> None:
    tests, conftest, words = REMARKED[door]
    status, output = _run(tmp_path, tests, conftest=conftest)
    assert status == 0, output
    if words:
        assert re.search(words, output), output
        assert main(["summary", str(tmp_path / "out")]) == 0 or "in a test" in door
    else:
        assert not re.search("never tested|interpret=True is written", output), output


def test_a_worker_sends_the_warning_of_an_untested_pairing(tmp_path: Path) -> None:
    status, output = _run(tmp_path, IN_A_TEST, "-n", "1")
    assert status == 0, output
    assert "was made in test_made and never tested" in output


def test_where_warnings_are_errors_an_untested_pairing_fails_its_test(tmp_path: Path) -> None:
    status, output = _run(tmp_path, IN_A_TEST, "-W", "error")
    assert status == 1, output
    assert "was made in test_made and never tested" in output
    assert "1 failed" in output
    assert "kerneltest/issues" not in output


# Conftests that would have pytest pass what fails.
SOFTENED = {
    "a mark": "def pytest_collection_modifyitems(items):\n    [i.add_marker(pytest.mark.xfail) for i in items]\n",
    "the status": "@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(session): session.exitstatus = 0\n",
    "the report": "@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport():\n    report = yield\n"
    "    report.outcome = 'passed'\n    return report\n",
}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("way", SOFTENED)
def test_pytest_and_the_summary_agree_about_findings(tmp_path: Path, way: str) -> None:
    status, output = _run(tmp_path, WRONG, conftest="import pytest\n" + SOFTENED[way])
    assert status == 1, output
    assert main(["summary", str(tmp_path / "out")]) == 1


def test_marks_reach_the_items(tmp_path: Path) -> None:
    marked = "@pytest.mark.slow\n" + RIGHT + RIGHT.replace("def right", "@pytest.mark.slow\ndef below")
    others = WRONG + "@pytest.mark.skip(reason='later')\n" + WRONG.replace("wrong", "skipped")
    status, output = _run(tmp_path, marked + others, "-m", "slow", "-q")
    assert (status, "2 passed" in output) == (0, True), output
    status, output = _run(tmp_path, marked + others, "-k", "skipped", "-rs")
    assert "later" in output
    assert "1 skipped" in output


def test_a_warning_fails_no_kernel_and_is_shown_once(tmp_path: Path) -> None:
    tests = RIGHT.replace("double", "warns") + RIGHT.replace("double", "warns").replace("right", "again")
    status, output = _run(tmp_path, tests, "-W", "error")
    assert status == 0, output
    assert output.count("DeprecationWarning: of JAX's kind") == 1, output


def test_an_exit_handler_makes_no_success(tmp_path: Path) -> None:
    status, output = _run(tmp_path, "atexit.register(lambda: os._exit(0))\n" + WRONG, start=forked.fresh)
    assert status == 1, output
    assert "os._exit(0) was called after the session failed" in output


def test_a_forked_process_may_exit(tmp_path: Path) -> None:
    fork = "def test_fork():\n    pid = os.fork()\n    if not pid:\n        os._exit(0)\n    os.waitpid(pid, 0)\n"
    status, output = _run(tmp_path, fork)
    assert status == 0, output
    assert "os._exit" not in output
