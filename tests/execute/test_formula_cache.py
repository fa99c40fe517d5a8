"""The question without rounding is asked once for all judgements of a case, and the oracle is sampled if it must be."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import Array
from kerneltest.core.precision import Precision
from kerneltest.execute.expectations import BoundedStore
from kerneltest.execute.formula import Formula
from kerneltest.judge import mismatch_evidence
from kerneltest.judge.formula import compare_closely
from kerneltest.judge.relations import MismatchContext
from kerneltest.oracle.expectation import Expectation
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel, SampleArithmetic
from kerneltest.trace.tracing import Traced
from tests.sample import double, whole

BOTH = ("interpret", "simulate:sm_90")


def test_a_wrong_case_is_compared_without_rounding_once_for_all_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return whole(lambda x_ref: jnp.exp(x_ref[...]) * 1.01, x, x)

    asked: Counter[tuple[Traced, str]] = Counter()

    compare = Formula._compare

    def count(formula: Formula, *, specials: bool = False) -> Any:
        if specials:
            asked[formula.traced, formula.key] += 1
        return compare(formula, specials=specials)

    monkeypatch.setattr(Formula, "_compare", count)
    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(64,))})(np.exp)
    result = kt.check(pairing, backends=BOTH, depth="quick", minimize=0)
    assert {each.record.backend for each in result.findings} == {"interpret", "simulate:sm_90"}
    assert set(asked.values()) == {1}


def test_equal_outputs_are_described_once_for_all_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    diagnose = mismatch_evidence.diagnose

    def count(mismatch: MismatchContext, *, is_gradient: bool = False) -> str:
        described.append(str(mismatch.signature))
        return diagnose(mismatch, is_gradient=is_gradient)

    monkeypatch.setattr(mismatch_evidence, "diagnose", count)
    pairing = kt.oracle_for(double, x=kt.array("n", "int32", domain=(-99, 99)), dims={"n": kt.dim(values=(64,))})(
        lambda x: x
    )
    result = kt.check(pairing, backends=BOTH, depth="quick", minimize=0)
    said = {name: {f.record.case: f.message for f in result.findings if f.backend == name} for name in BOTH}
    assert said["simulate:sm_90"]
    assert said["simulate:sm_90"].items() <= said["interpret"].items()
    assert len(described) < len(result.findings)


@pytest.mark.parametrize(("off", "needed"), [(2.0**-42, False), (2.0**-39, True)])
def test_the_oracle_is_sampled_only_if_the_exact_comparison_does_not_pass(off: float, needed: bool) -> None:
    asked: list[str] = []

    class Limit:
        def at(self, precision: Precision) -> Array:
            asked.append(precision.name)
            return np.ones(3)

    value = np.array([1.0, 2.0, 3.0])
    expectation = Expectation((value,), None, None, formula=(Limit(),))
    (found,) = compare_closely([value * (1 + off)], expectation, lambda arithmetic: ())
    assert not found.wrong.any()
    assert bool(asked) == needed


def test_the_first_answers_and_the_latest_are_kept() -> None:
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    store: BoundedStore[str, str] = BoundedStore(8, len)
    for name in ("one", "two", "much more", "one", "much more", "twelve", "two", "much more"):
        assert store.compute_once(name, lambda name=name: make(name)) == name  # type: ignore[misc]
    assert made == ["one", "two", "much more", "twelve", "much more"]
    assert list(store) == ["one", "two", "much more"]
    copied = store.copy()
    del store["one"]
    store["six"] = "six"  # in the place of the first
    assert list(store) == ["two", "six", "much more"]
    assert list(copied) == ["one", "two", "much more"]
    store.clear()
    assert not len(store)


def test_own_samples_of_coming_cases_are_evaluated_with_those_of_wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x: jax.Array, y: jax.Array) -> jax.Array:
        return whole(
            lambda x_ref, y_ref: (jnp.exp(x_ref[...]) + y_ref[...]).astype("bfloat16").astype("float32"), x, x, y
        )

    evaluated: list[int] = []
    sample = PromotedKernel.sample_cases

    def count(self: PromotedKernel, leaves: Sequence[Array], arithmetic: SampleArithmetic) -> tuple[Array, ...]:
        evaluated.append(len(leaves[0]))
        return sample(self, leaves, arithmetic)

    kept: list[Any] = []
    keep = BoundedStore.__setitem__

    def note(self: BoundedStore[Any, Any], key: Any, answer: Any) -> None:
        kept.append(answer)
        keep(self, key, answer)

    def judge(most: int) -> tuple[list[str], list[int]]:
        evaluated.clear()
        monkeypatch.setattr("kerneltest.execute.formula._MOST_SAMPLED", most)
        result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
        return [f"{each.verdict} {each.message}" for each in result.records], list(evaluated)

    monkeypatch.setattr(PromotedKernel, "sample_cases", count)
    monkeypatch.setattr(BoundedStore, "__setitem__", note)
    arrays = {"x": kt.array("n", "float32"), "y": kt.array("n", "float32")}
    pairing = kt.oracle_for(kernel, **arrays, dims={"n": kt.dim(values=(64, 65))})(lambda x, y: np.exp(x) + y)
    separate, alone = judge(0)
    together, batches = judge(2**19)
    assert together == separate
    assert set(alone) == {1}
    assert len(batches) < len(alone) / 3
    assert sum(batches) <= 2 * len(alone)
    answers = (answer for answer in kept if isinstance(answer, tuple))
    arrays_kept = [array for answer in answers for array in answer if isinstance(array, np.ndarray)]
    assert arrays_kept
    assert all(array.base is None for array in arrays_kept)  # or one would keep all of its batch in memory
