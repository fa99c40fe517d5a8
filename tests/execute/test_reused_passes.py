"""Targets with equal code are simulated only once."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import kerneltest as kt
from kernels.softmax import softmax_fused
from kerneltest.api import pairing_id
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.records.schema import Record
from suites import test_softmax
from tests.sample import elementwise, whole

ONE, OTHER = "simulate:sm_90", "simulate:gfx942"


def _records(pairing: kt.Pairing) -> tuple[list[Record], list[Record], int]:
    """The records of both targets without the fields that must differ, and how many the second took from the first."""
    cache = Cache()
    items = plan_pairing(pairing, pairing_id(pairing), resolve([ONE, OTHER]), RunSettings(depth="quick")).items
    records = [outcome.record for item in items for outcome in run_item(item, cache)]
    cache.process.pool.close()
    one, other = (
        [replace(r, item="", backend="", seconds=0.0) for r in records if r.backend == backend]
        for backend in (ONE, OTHER)
    )
    return one, other, cache.process.journal.counts[f"reused for {OTHER}"]


def _times(factor: float) -> Any:
    return lambda x: whole(lambda x: x[...] * factor, x, x)


SOFTMAX = kt.oracle_for(
    softmax_fused,  # whose code for the targets differs in the name of `exp`
    x=kt.array("m n", "float32"),
    dims=dict(m=kt.dim(values=(3,)), n=kt.dim(values=(5, 16))),
    all_masked=test_softmax.MASKED,
    invariant_to="grid",
)


def test_a_pass_of_one_target_is_reused_for_the_other() -> None:
    one, other, taken = _records(SOFTMAX(test_softmax.softmax))
    assert one == other
    assert taken > 40
    assert taken == sum(record.group != "invariants" for record in other)


def test_a_target_does_not_reuse_its_own_passes() -> None:
    cache = Cache()
    items = plan_pairing(
        SOFTMAX(test_softmax.softmax), "t.py::softmax", resolve([ONE]), RunSettings(depth="quick")
    ).items
    for item in (each for each in items for _ in range(2)):
        records = [outcome.record for outcome in run_item(item, cache)]
        assert [(r.case, r.verdict, r.message) for r in records if r.verdict is not Verdict.PASS] == []
    cache.process.pool.close()
    assert not cache.process.journal.counts[f"reused for {ONE}"]


def test_a_failure_of_one_target_is_not_reused() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: jnp.where(jnp.isinf(v), 0, 2 * v), x)

    @kt.oracle_for(kernel, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(16, 17))})
    def doubled(x: np.ndarray[Any, Any]) -> Any:
        return 2 * x

    one, other, taken = _records(doubled)
    found = [record.verdict.is_finding for record in other if record.group != "invariants"]
    assert any(found)
    assert taken == found.count(False) > 0
    assert [record.verdict for record in one] == [record.verdict for record in other]


def test_code_that_differs_is_run_for_each_target() -> None:
    def kernel(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cuda=_times(2.0), rocm=_times(3.0), default=_times(2.0))

    @kt.oracle_for(kernel, x=kt.array("n", "float32"), dims={"n": kt.dim(maximum=64)})
    def doubled(x: np.ndarray[Any, Any]) -> Any:
        return 2 * x

    one, other, taken = _records(doubled)
    assert not any(record.verdict is Verdict.MISMATCH for record in one)
    assert any(record.verdict is Verdict.MISMATCH for record in other)
    assert not taken
