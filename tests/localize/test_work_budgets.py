"""Searches end by the work that they do, so that a slow machine finds the same. Time ends what would be too long."""

import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.core import work_budget
from kerneltest.core.work_budget import WorkBudget
from kerneltest.execute.cache import Cache
from kerneltest.localize import equation_replay
from kerneltest.report.text.suspect_text import describe_suspect
from tests.localize.fault_cases import make_case


def slow_down(patch: pytest.MonkeyPatch, factor: float) -> None:
    """Has every clock run faster by a factor, as a slower machine sees it."""

    def slowed(clock: Callable[[], float], start: float) -> Callable[[], float]:
        return lambda: start + factor * (clock() - start)

    for name in ("thread_time", "process_time", "perf_counter", "monotonic"):
        clock = getattr(time, name)
        patch.setattr(time, name, slowed(clock, clock()))


def _weighted(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        shifted = x - jnp.max(x, axis=1, keepdims=True)
        total = jnp.sum(jnp.exp(shifted), axis=1, keepdims=True)
        o_ref[...] = jnp.exp(shifted) / (total * 2)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def _oracle(x: Any) -> Any:
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def _pairing() -> kt.Pairing:
    dims = dict(m=kt.dim(values=(4,)), n=kt.dim(values=(3, 17)))
    return kt.oracle_for(_weighted, x=kt.array("m n", "float32"), dims=dims)(_oracle)


def found(factor: float) -> list[str]:
    """The text on the suspects that a machine finds if it is slower by a factor."""
    with pytest.MonkeyPatch.context() as patch:
        slow_down(patch, factor)
        return [
            "\n".join(describe_suspect(suspect).texts)
            for suspect in kt.check(_pairing(), depth="quick", minimize=2).suspects
        ]


def test_a_slow_machine_finds_the_same() -> None:
    texts = found(1)
    assert any("root cause" in text for text in texts)
    assert found(8) == texts


def test_time_ends_a_search_that_is_far_too_long_and_the_suspect_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    late = "this machine was too slow for the whole search: another run may find more"
    assert not any(late in text for text in found(1))
    seconds = itertools.count()
    monkeypatch.setattr(work_budget, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    assert any(late in text for text in found(1))


def test_time_counts_from_the_first_question_and_a_share_of_the_work_has_a_share_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(work_budget, "time", SimpleNamespace(monotonic=lambda: now))
    budget = WorkBudget(1.0)
    now = 1000.0
    assert not budget.is_over()
    now += 40
    assert budget.is_over()
    budget.work = 2.0  # as of a search whose first step had half of its work
    assert not budget.is_over()
    assert (budget.spent, budget.is_cut, budget.is_late) == (1.0, True, True)


def test_a_kernel_is_replayed_however_large_it_is_if_it_is_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equation_replay, "_SHARE", 0.0)
    pairing = _pairing()
    cases = [make_case(pairing, dict(n=n)) for n in (3, 17)]
    options: Any = dict(family="drawn", budget=WorkBudget(5), cache=Cache(), kernels={})
    for _ in range(2):
        replays = [*equation_replay.equation_replays(pairing, cases, distinctive=True, **options)]
        assert [dict(each.case.signature.dims)["n"] for each in replays] == [3, 3, 3]
