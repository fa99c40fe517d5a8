"""What planned cases never exercise in a kernel."""

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.__main__ import main
from kerneltest.execute import watchdog
from kerneltest.extensions.mutation.coverage import PairingCoverage, measure_coverage
from kerneltest.extensions.mutation.results import read_results
from tests.extensions.mutation import weak_suite
from tests.sample import elementwise


def _words(coverage: PairingCoverage) -> list[str]:
    return [f"{site.what} is never {' or '.join(site.missing)}" for site in coverage.sites if site.missing]


def test_a_pairing_that_is_asked_little_leaves_states_out() -> None:
    weak = measure_coverage(weak_suite.weak, "weak", "quick")
    assert _words(weak) == [
        "the mask of the load is never off",
        "the condition of `where` is never true",
        "the mask of the store is never off",
        "the number of programs along axis 0 of the grid is never more than one",
    ]
    lines = list(weak.lines())
    assert lines[0] == f"weak: 4 of 8 states exercised by {weak.cases} cases"
    assert lines[1].endswith("x = plgpu.load(x_ref.at[at], mask=inside, other=0.0)")
    assert "  x: NaN is never among its values" in lines


def test_a_pairing_that_is_asked_much_leaves_none_out() -> None:
    strong = measure_coverage(weak_suite.strong, "strong", "quick")
    assert _words(strong) == []
    said = list(strong.lines())
    assert any(line.startswith("  x: NaN is among its values in ") for line in said)  # the kernel replaces it
    assert not any("infinity" in line for line in said)


def test_functions_of_jax_have_no_states() -> None:
    pairing = kt.oracle_for(
        lambda x: elementwise(lambda v: v // 7, x),  # in which JAX selects
        x=kt.array("n", "int32", domain=(0, 99)),
        dims=dict(n=kt.dim(values=(4,))),
    )(lambda x: x // 7)
    assert measure_coverage(pairing, "quotients", "quick").sites == ()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = tmp_path / "test_little_exercised.py"
    suite.write_text(Path(weak_suite.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["coverage", f"{suite}::weak", "--depth", "quick"]) == 0
    assert "the mask of the store is never off" in capsys.readouterr().out
    assert main(["coverage", f"{suite}::nothing"]) == 2
    assert "has no pairing nothing; it has weak, strong, scalar" in capsys.readouterr().err


def _long(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.lax.fori_loop(0, 2**31 - 1, lambda i, total: total * 0.5 + i, x_ref[...])

    return pl.pallas_call(body, out_shape=x)(x)


def test_a_kernel_that_takes_too_long_is_left_out() -> None:
    pairing = kt.oracle_for(_long, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(4,))))(lambda x: x)
    coverage = measure_coverage(pairing, "long", "quick", seconds=0.5)
    assert coverage.cases == 0
    assert all(reason.startswith("no answer within 0.5 s while ") for reason in coverage.left_out)
    assert coverage.left_out


@pytest.mark.parametrize("is_early", [False, True])
def test_a_hang_that_is_dropped_while_numpy_evaluates_is_raised_again(
    is_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops what is raised inside a callback of its garbage collector, and JAX has one."""
    happened: list[str] = []
    raise_into = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def raise_second(thread: Any, error: Any) -> None:
        happened.append("raised")
        if len(happened) > 1:
            raise_into(thread, error)

    def leave(status: int) -> None:
        happened.append("the process would end")
        raise_into(ctypes.c_ulong(threading.main_thread().ident), ctypes.py_object(SystemExit))  # which ends no session

    monkeypatch.setattr(watchdog.exit_guard, "leave", leave)
    monkeypatch.setattr(ctypes.pythonapi, "PyThreadState_SetAsyncExc", raise_second)

    def until_hang(values):
        while is_early and not happened:  # so that the first is raised before the kernel begins
            pass
        return np.asarray(values)

    def kernel(x):
        return _long(jax.pure_callback(until_hang, x, x))

    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(4,))))(lambda x: x)
    coverage = measure_coverage(pairing, "long", "quick", seconds=0.5)
    assert set(happened) == {"raised"}
    assert len(happened) > len(coverage.left_out) > 0  # Python may drop some of the others, too


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "missing"])
def test_results_are_read_from_regular_files_only(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    why = {"missing": "No such file", "folder": "directory"}.get(kind, "not a regular file")
    with pytest.raises(ValueError, match=why):
        read_results(path, PairingCoverage)
