"""Expectations stay in the cache for other backends, up to a limit of memory."""

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import Verdict
from kerneltest.execute import expectations as kept
from kerneltest.execute.cache import Cache
from kerneltest.execute.expectations import REPEATED
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.verdict_key import verdict_key
from tests.sample import double


def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


def _answers(monkeypatch: pytest.MonkeyPatch, most: int) -> tuple[Cache, list[Verdict]]:
    monkeypatch.setattr(kept, "_MAX_EXPECTATIONS", most)
    pairing = kt.oracle_for(double, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(3, 1024))})(doubled)
    cache = Cache()
    items = plan_pairing(
        pairing, "suite.py::doubled", resolve(["interpret", "simulate:sm_90"]), RunSettings(depth="quick")
    ).items
    verdicts = [outcome.record.verdict for item in items for outcome in run_item(item, cache)]
    cache.process.pool.close()
    return cache, verdicts


def test_with_little_memory_the_oracle_is_evaluated_again_with_equal_results(monkeypatch: pytest.MonkeyPatch) -> None:
    roomy, verdicts = _answers(monkeypatch, 2**28)
    tight, again = _answers(monkeypatch, 600_000)
    assert sum(kept._expectation_size(each) for each in tight.expectations.cases.values()) <= 600_000
    assert verdicts == again
    once, twice = (each.process.journal.counts["oracle evaluations"] for each in (roomy, tight))
    assert once == len(roomy.expectations.cases)
    assert once < twice < 2 * once  # the second backend finds the first cases


def test_a_key_and_the_verdicts_share_the_evaluations_of_the_oracle() -> None:
    calls: list[int] = []

    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(x.size)
        return 2 * x

    pairing = kt.oracle_for(double, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(3, 64))})(counted)
    plan = plan_pairing(pairing, "suite.py::counted", resolve(["interpret"]), RunSettings(depth="quick"))
    (item,) = (each for each in plan.items if each.group.name == "structural")
    cache, cases = Cache(), list(item.cases())
    verdict_key([item], cache)
    for_key = len(calls)
    assert for_key >= len(cases)
    outcomes = list(run_item(item, cache))
    cache.process.pool.close()
    assert {outcome.record.verdict for outcome in outcomes} == {Verdict.PASS}
    assert len(calls) - for_key == sum(case.family.name in REPEATED for case in cases)
    assert not cache.expectations.evaluations
