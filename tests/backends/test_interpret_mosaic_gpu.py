"""Broken pipelines are found on the CPU, their right twins are not accused, and a failure harms no later case."""

import jax
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.api import Result, pairing_id
from kerneltest.plan.cases import value_cases
from kerneltest.trace.jax_compat.mosaic_gpu_interpreter import DETECTS_ALL_RACES
from tests.pipeline_bugs import BLOCK, SHAPE, STEPS, TWINS, Kernel
from tests.sample import whole

BACKEND = "interpret-mosaic-gpu"
# What JAX 0.10.2 has no notion of.
UNSEEN_BEFORE_0_11 = {
    "writes_into_a_block_being_stored",
    "waits_one_group_too_late",
    "waits_one_group_of_two_copies_too_late",
    "stores_without_commit_smem",
    "ends_while_it_stores",
    "rereads_what_is_being_stored",
    "input_only_pipeline_without_commit_smem",
}
SUMS = {"never_stores_the_invariant_output", "input_only_pipeline_without_commit_smem"}
FIRST_BLOCK = {"barrier_for_fewer_arrivals_than_come", "waits_for_each_other"}


def one_case(name: str, kernel: Kernel, backend: str = BACKEND) -> Result:
    def doubled(x: np.ndarray) -> np.ndarray:
        if name in SUMS:
            return x.reshape(STEPS, *BLOCK).sum(0)
        return 2 * x[: BLOCK[0]] if name in FIRST_BLOCK else 2 * x

    pairing = kt.oracle_for(
        kernel, x=kt.array("m n", "float32"), dims={d: kt.dim(values=[k]) for d, k in zip("mn", SHAPE, strict=True)}
    )(doubled)
    first = next(value_cases(pairing, pairing_id(pairing), "float32", "structural", 0, "quick"))
    return kt.check(pairing, backends=[backend], depth="quick", case=first.id)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", TWINS)
def test_the_right_twin_is_not_accused(name: str) -> None:
    make, _ = TWINS[name]
    result = one_case(name, make(False))
    assert result.ok, result.findings


def test_jaxs_debugging_modes_reach_no_callback() -> None:
    """The interpreter's callbacks run on other threads, which see the global value; its memory starts as NaN."""
    from suites.test_pipeline_copy import copy

    first = next(value_cases(copy, pairing_id(copy), "float32", "structural", 0, "quick"))
    jax.config.update("jax_debug_nans", True)
    try:
        result = kt.check(copy, backends=[BACKEND], depth="quick", case=first.id)
        assert jax.config.jax_debug_nans
    finally:
        jax.config.update("jax_debug_nans", False)
    assert result.ok, result.findings


@pytest.mark.parametrize("name", TWINS)
def test_the_broken_twin_is_found(name: str) -> None:
    make, verdict = TWINS[name]
    result = one_case(name, make(True))
    if name in UNSEEN_BEFORE_0_11 and not DETECTS_ALL_RACES:
        assert result.ok, "no longer unseen"
    else:
        assert [finding.verdict for finding in result.findings] == [verdict], result.findings


def test_a_deadlock_names_barriers_and_arrivals() -> None:
    (finding,) = one_case("", TWINS["barrier_for_more_arrivals_than_come"][0](True)).findings
    assert finding.message.startswith("deadlock: ")
    assert "barrier" in finding.message
    if DETECTS_ALL_RACES:
        assert "1 of 2 arrived" in finding.message
        assert "pipeline_bugs.py:" in finding.message


@pytest.mark.skipif(not DETECTS_ALL_RACES, reason="not in order before JAX 0.11")
def test_a_race_names_both_accesses_and_their_lines() -> None:
    (finding,) = one_case("", TWINS["writes_into_a_block_being_stored"][0](True)).findings
    assert "is written by warpgroup 0" in finding.message
    assert "is read by warpgroup 0" in finding.message
    assert finding.message.count("pipeline_bugs.py:") == 2


@pytest.mark.parametrize("name", ["fetches_into_the_block_in_use", "waits_for_each_other", "forgets_the_remainder"])
def test_a_case_after_a_failing_one_is_not_harmed(name: str) -> None:
    make, _ = TWINS[name]
    assert one_case(name, make(True)).findings
    assert one_case(name, make(False)).ok


def test_other_kernels_are_refused() -> None:
    from suites.test_vector_add import whole

    result = kt.check(whole, backends=[BACKEND], depth="quick")
    assert "not for mosaic_gpu" in result.not_applicable[BACKEND]


def test_a_kernel_of_no_dialect_is_told_what_selects_this_interpreter() -> None:
    def copy(x: jax.Array) -> jax.Array:
        return whole(lambda x_ref: x_ref[...], x, x)

    copied = kt.oracle_for(copy, x=kt.array("n", "float32"))(lambda x: x)
    told = kt.check(copied, backends=[BACKEND], depth="quick").not_applicable[BACKEND]
    assert "uses nothing of pallas.mosaic_gpu; plgpu.kernel, or compiler_params=" in told
