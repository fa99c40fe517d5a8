"""Gradients are asked with several kinds of cotangents, each of which finds a fault that the others do not."""

from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.execute.invariants import COTANGENTS
from kerneltest.oracle.gradient import expect_gradients
from tests.execute.test_gradient_formulas import with_gradient


def clipped(x: Any, g: Any) -> Any:
    return 2 * x * jnp.clip(g, -1, 1)


def scaled_by_the_largest(x: Any, g: Any) -> Any:
    """As gradients that are stored in eight bits are scaled; a row of zeros has no scale."""
    rows = g.reshape(-1, 4)
    scale = jnp.max(jnp.abs(rows), axis=1, keepdims=True)
    return 2 * x * ((rows / scale) * scale).reshape(g.shape)


# A backward kernel of x^2, and the labels of what finds it wrong.
BACKWARD = {
    "right": (lambda x, g: 2 * x * g, set()),
    "clipped": (clipped, {"the gradient with weights from 1/512 to 256"}),
    "scaled": (scaled_by_the_largest, {"the gradient of each output's last element"}),
    "without the cotangent": (lambda x, g: 2 * x, set(COTANGENTS)),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_a_wrong_gradient_is_found_by_the_weights_that_show_it(name: str) -> None:
    slope, labels = BACKWARD[name]
    kernel = with_gradient(lambda x: x * x, slope)
    x, dims = kt.array("n", "float32", domain=(-4, 4)), {"n": kt.dim(values=(24,))}
    result = kt.check(kt.oracle_for(kernel, x=x, dims=dims, grad=True)(np.square), depth="quick", minimize=0)
    assert {each.family for each in result.findings} == ({"gradient"} if labels else set())
    told = "\n".join(each.message for each in result.findings)
    assert {each for each in COTANGENTS if f"{each}: by x" in told} <= labels
    assert not labels or any(each in told for each in labels), told


def test_the_gradient_of_an_oracle_is_computed_once_for_all_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: Counter[bytes] = Counter()

    def count(evaluate: Any, leaves: Any, weights: Any, *rest: Any) -> Any:
        computed[b"".join(each.tobytes() for each in (*leaves.values(), *weights))] += 1
        return expect_gradients(evaluate, leaves, weights, *rest)

    monkeypatch.setattr("kerneltest.execute.invariants.expect_gradients", count)
    kernel = with_gradient(lambda x: x * x, clipped)
    x, dims = kt.array("n", "float32", domain=(-4, 4)), {"n": kt.dim(values=(24,))}
    pairing = kt.oracle_for(kernel, x=x, dims=dims, grad=True)(np.square)
    result = kt.check(pairing, backends=["interpret", "simulate:sm_90"], depth="quick", minimize=0)
    assert {each.backend for each in result.findings} == {"interpret", "simulate:sm_90"}
    assert len(computed) == len(COTANGENTS)
    assert set(computed.values()) == {1}
