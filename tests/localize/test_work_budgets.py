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
from kerneltest.report.text.suspect_text import describe_suspect


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


def found(factor: float) -> list[str]:
    """The text on the suspects that a machine finds if it is slower by a factor."""
    dims = dict(m=kt.dim(values=(4,)), n=kt.dim(values=(3, 17)))
    pairing = kt.oracle_for(_weighted, x=kt.array("m n", "float32"), dims=dims)(_oracle)
    with pytest.MonkeyPatch.context() as patch:
        slow_down(patch, factor)
        return [
            "\n".join(describe_suspect(suspect).texts)
            for suspect in kt.check(pairing, depth="quick", minimize=2).suspects
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
