"""An item that a new process resumes after a crash: the cases that do not run again."""

from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import PriorAttempts, run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.plan.cases import Case
from kerneltest.records.journal import Activity, Phase
from tests.sample import double


def _make_pairing(oracle: Any, *lengths: int) -> kt.Pairing:
    return kt.oracle_for(double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=lengths)))(oracle)


@pytest.mark.parametrize(("phase", "filled"), [(Phase.RUNNING, True), (Phase.FILLING, False)])
def test_a_case_that_crashed_is_filled_again_unless_filling_crashed(
    phase: Phase, filled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = plan_pairing(
        _make_pairing(lambda x: 2 * x, 3), "suite.py::doubled", resolve(["interpret"]), RunSettings(depth="quick")
    ).items[0]
    case = next(iter(item.cases()))
    cache, seen = Cache(), []
    fill = Case.fill

    def filling(self: Case, pairing: Any) -> Any:
        doing = cache.process.journal.activity
        seen.append((doing.case, doing.phase) if doing else None)
        return fill(self, pairing)

    monkeypatch.setattr(Case, "fill", filling)
    death = Activity(item.name, case.id, case.family.name, str(case.signature), phase)
    before = PriorAttempts(crashes=[(death, Failure(Verdict.CRASH, "the process died"))])
    (outcome,) = run_item(item, cache, case.id, before)
    assert outcome.record.verdict is Verdict.CRASH
    assert seen == [(case.id, Phase.FILLING)] * filled
    assert (outcome.arguments is not None) == filled


def test_an_oracle_is_not_called_to_plan() -> None:
    def oracle(x: np.ndarray) -> np.ndarray:
        calls.append(x)
        return 2 * x

    calls: list[Any] = []
    pairing = _make_pairing(oracle, 3, 5)
    items = plan_pairing(pairing, "suite.py::doubled", resolve(["interpret"]), RunSettings(depth="quick")).items
    cases = [case for item in items for case in item.cases()]
    assert len(cases) > 50
    assert not calls
    for case in cases:
        if isinstance(case, Case) and case.family.name == "small_integers":
            case.fill(pairing)
    assert len(calls) == 2  # once for each signature


@pytest.mark.parametrize("factor", [2, 3], ids=["right", "wrong"])
def test_an_oracle_is_evaluated_only_in_its_own_phase(factor: int) -> None:
    def oracle(x: np.ndarray) -> np.ndarray:
        if cache.process.journal.activity is not None:
            phases.add(cache.process.journal.activity.phase)
        return factor * x

    doubled = jax.custom_vjp(double)
    doubled.defvjp(lambda x: (double(x), None), lambda _, cotangent: (double(cotangent),))
    cache, phases = Cache(), set()
    declared = kt.oracle_for(
        doubled, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(5, 7))), batch_dims=("n",), grad=True
    )
    items = plan_pairing(
        declared(oracle), "suite.py::doubled", resolve(["interpret"]), RunSettings(depth="quick")
    ).items
    records = [outcome.record for item in items for outcome in run_item(item, cache)]
    assert {"alone", "gradient"} <= {record.family for record in records if record.compared}
    assert any(record.error_budget for record in records) == (factor == 3)  # which takes another evaluation
    assert phases == {Phase.FILLING, Phase.EXPECTING}
