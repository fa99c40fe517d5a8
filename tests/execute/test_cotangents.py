"""Gradients are asked with several kinds of cotangents, each of which finds a fault that the others do not."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.execute.cotangents import COTANGENTS
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
