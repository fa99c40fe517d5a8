"""Cases that are queued on a device together, with a CPU in place of the device."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.base import Backend
from kerneltest.backends.jitted import Jitted, compile_for
from kerneltest.core.failures import Failure
from kerneltest.core.precision import XLA_CPU
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute import batching
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.process_state import ProcessState
from kerneltest.execute.runner import PriorAttempts, run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.records.journal import Phase
from kerneltest.records.schema import Record
from kerneltest.trace.tracing import Traced, kernel_device
from tests.sample import double

LENGTHS = (3, 8)


class Pretended(Backend):
    id, tier, runs_jaxpr = "pretended", Tier.DEVICE, True

    @property
    def platform(self) -> str:
        return "cpu"

    def unavailable(self) -> str:
        return ""

    def prepare(self, traced: Traced) -> Jitted:
        return compile_for(traced, kernel_device("cpu"), XLA_CPU, interpret=True)


def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


def _records(cache: Cache, before: PriorAttempts | None = None) -> list[Record]:
    pairing = kt.oracle_for(double, x=kt.array("n", "float32"), dims={"n": kt.dim(values=LENGTHS)})(doubled)
    items = plan_pairing(pairing, "suite.py::doubled", [Pretended()], RunSettings(depth="quick")).items
    records = [outcome.record for item in items for outcome in run_item(item, cache, prior=before)]
    cache.process.pool.close()
    return records


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes = []
    plain = Jitted.run_batch

    def counted(self: Jitted, cases: Sequence[Any]) -> Any:
        sizes.append(len(cases))
        return plain(self, cases)

    monkeypatch.setattr(Jitted, "run_batch", counted)
    return sizes


def test_cases_of_a_signature_are_queued_and_end_as_each_does_alone(batches: list[int]) -> None:
    alone = _records(Cache())
    assert set(batches) == {1}
    batches.clear()
    queued = _records(Cache(process=ProcessState(abort=lambda word: None)))
    assert max(batches) > 3
    assert [(each.case, each.verdict, each.bound_fraction) for each in queued] == [
        (each.case, each.verdict, each.bound_fraction) for each in alone
    ]
    assert {each.verdict for each in queued} == {Verdict.PASS}


def test_after_a_death_each_case_runs_alone(batches: list[int]) -> None:
    _records(Cache(process=ProcessState(abort=lambda word: None)), PriorAttempts())
    assert set(batches) == {1}


@pytest.mark.parametrize("responds", [True, False])
def test_a_fault_is_told_by_each_case_alone_and_a_lost_device_ends_the_process(
    responds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(KeyboardInterrupt):
        pass

    def end(word: str) -> None:
        doing = cache.process.journal.activity
        assert doing is not None
        assert (doing.phase, doing.concurrent_compiles > 0) == (Phase.RUNNING, True)  # so that no single case is blamed
        raise Ended(word)

    plain = Jitted.run_batch

    def failing(self: Jitted, cases: Sequence[Sequence[np.ndarray]]) -> Any:
        if any(np.isnan(leaf).any() for leaves in cases for leaf in leaves):
            raise Failure(Verdict.RUNTIME_ERROR, "the kernel raised")
        return plain(self, cases)

    monkeypatch.setattr(Jitted, "run_batch", failing)
    monkeypatch.setattr(batching, "device_responds", lambda platform: responds)
    cache = Cache(process=ProcessState(abort=end))
    if not responds:
        with pytest.raises(Ended, match="no longer responds after"):
            _records(cache)
        return
    records = _records(cache)
    failed = {each.family for each in records if each.verdict is Verdict.RUNTIME_ERROR}
    assert failed
    assert all("nan" in family for family in failed)
    assert any(each.verdict is Verdict.PASS for each in records)


def test_a_kernel_that_writes_to_its_input_is_told_of_whichever_case_did() -> None:
    def writing(x: Any) -> tuple[Any, ...]:
        if x[0] == 2:
            ctypes.memset(x.unsafe_buffer_pointer(), 0, 4)
        return (x + 1,)

    fine, bad = np.ones(16, np.float32), np.full(16, 2, np.float32)
    jitted = Jitted(writing, kernel_device("cpu"), XLA_CPU, eager=True)
    assert [each[0][0] for each in jitted.run_batch([[fine], [3 * fine]])] == [2, 4]
    with pytest.raises(Failure, match="wrote to its array argument 0"):
        jitted.run_batch([[fine], [bad], [fine]])
