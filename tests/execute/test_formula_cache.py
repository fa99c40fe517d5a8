"""The question without rounding is asked once for all judgements of a case, and the oracle is sampled if it must be."""

from collections import Counter
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
from kerneltest.judge.formula import compare_closely
from kerneltest.oracle.expectation import Expectation
from kerneltest.trace.tracing import Traced
from tests.sample import whole


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
    result = kt.check(pairing, backends=["interpret", "simulate:sm_90"], depth="quick", minimize=0)
    assert {each.record.backend for each in result.findings} == {"interpret", "simulate:sm_90"}
    assert set(asked.values()) == {1}


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
