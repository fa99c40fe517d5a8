"""Suspects while a run goes on: what is told once, what each process looks for, what follows from one failure."""

import subprocess
from pathlib import Path

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.records.record_files import read_records, read_reproducers
from kerneltest.records.runs import read_runs
from kerneltest.triage.suspects import suspects_in_run
from tests.pytest_plugin.test_plugin import _pytest

SUITE = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
import kerneltest as kt
import numpy as np

def ordered(x):
    def body(x_ref, o_ref):
        o_ref[...] = jnp.sort(x_ref[...])

    return pl.pallas_call(body, out_shape=x)(x)

def copied(x):
    (n,) = x.shape

    def body(x_ref, o_ref):
        at = pl.program_id(0) * 16 + jnp.arange(16)
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at], mask=at < n, other=0), mask=at < n)

    return pl.pallas_call(body, out_shape=x, grid=(max(n // 16, 1),))(x)

@kt.oracle_for(ordered, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(16,))))
def sums(x):
    return np.sort(x)

@kt.oracle_for(copied, x=kt.array("n", "float32"), dims=dict(n=kt.dim(block=16)),
               tolerance=kt.tolerance.exact())
def copies(x):
    return x
"""
QUICK = ("--kt-depth", "quick", "--kt-report", "out")


def _run(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return _pytest(folder, *QUICK, *options, suite=SUITE)


def test_what_does_not_lower_is_told_by_the_lowering_alone(tmp_path: Path) -> None:
    run = _run(tmp_path, "--kt-backends", "lower:sm_90,simulate:sm_90", "-k", "sums")
    verdicts = {(r.backend, r.verdict) for r in read_records(tmp_path / "out")}
    assert verdicts == {("lower:sm_90", Verdict.UNIMPLEMENTED), ("simulate:sm_90", Verdict.UNAVAILABLE)}
    told = next(r for r in read_records(tmp_path / "out") if r.backend == "simulate:sm_90")
    assert told.message == "does not lower; see lower:sm_90"
    assert "1 suspect in ordered" in run.stdout
    assert "1 failed" in run.stdout
    (smallest,) = read_reproducers(tmp_path / "out")
    assert "sort" in (tmp_path / "out" / smallest.reduced_script).read_text(encoding="utf-8")


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "options", [("-k", "sums and simulate"), ("--deselect", "test_suite.py::sums[lower:sm_90-float32]")]
)
def test_what_does_not_lower_is_told_by_the_simulator_where_the_lowering_is_not_run(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    _run(tmp_path, "--kt-backends", "lower:sm_90,simulate:sm_90", *options)
    simulated = [r for r in read_records(tmp_path / "out") if r.backend == "simulate:sm_90" and "sums" in r.pairing]
    assert {record.verdict for record in simulated} == {Verdict.UNIMPLEMENTED}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("workers", ["2", "0"])
def test_a_bug_is_one_suspect_with_one_smallest_case_in_any_number_of_processes(tmp_path: Path, workers: str) -> None:
    run = _run(tmp_path, "--kt-backends", "interpret,simulate:sm_90", "-k", "copies", "-n", workers)
    assert "1 suspect in copied (test_suite.py:15)" in run.stdout
    assert "only past the last full block of n" in run.stdout
    line = "root cause: test_suite.py:22   return pl.pallas_call(body, out_shape=x, grid=(max(n // 16, 1),))(x)"
    assert line in run.stdout
    assert "2 failed" in run.stdout
    (read,) = read_runs(tmp_path / "out")
    (suspect,) = suspects_in_run(read)
    assert suspect.backends.keys() == {"interpret", "simulate:sm_90"}
    assert (
        1 <= len(read.reproducers) <= 2
    )  # of wrong values, and of the memory behind them where another process met that
    for smallest in read.reproducers:
        assert smallest.nontrivial == 0
        assert (smallest.record.dims["n"], smallest.record.verdict.is_finding) == (17, True)


@pytest.mark.slow
def test_what_nobody_wrote_is_said_after_an_experiment(tmp_path: Path) -> None:
    _run(tmp_path, "--kt-backends", "interpret", "-k", "copies")
    (smallest,) = read_reproducers(tmp_path / "out")
    assert smallest.record.evidence is not None
    assert smallest.record.evidence.diagnosis.startswith("never written")


def test_no_smallest_case_is_looked_for_in_no_time(tmp_path: Path) -> None:
    run = _run(tmp_path, "--kt-backends", "interpret", "-k", "copies", "--kt-minimize", "0")
    assert not list(read_reproducers(tmp_path / "out"))
    assert "for example: x = " in run.stdout


@pytest.mark.slow
def test_verbose_runs_list_the_cases(tmp_path: Path) -> None:
    run = _run(tmp_path, "--kt-backends", "interpret", "-k", "copies", "-v")
    assert "E     special_mismatch: ones, n=17,float32" in run.stdout


RACING = """
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
import kerneltest as kt

def halves(x):
    def body(x_ref, o_ref):
        at = pl.ds(pl.program_id(0) * 8, 16)
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at]))

    return pl.pallas_call(body, out_shape=x, grid=(3,))(x)

@kt.oracle_for(halves, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(32,))), tolerance=kt.tolerance.exact())
def copies(x):
    return x
"""


def test_a_race_comes_with_the_offsets_of_both_accesses(tmp_path: Path) -> None:
    run = _pytest(tmp_path, *QUICK, "--kt-backends", "simulate:sm_90", suite=RACING)
    assert "a race" in run.stdout
    assert "o_ref at offset program_id(0) * 8 + arange(16)" in run.stdout
