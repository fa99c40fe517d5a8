"""Gradients are held to the oracle's without rounding too, so that a formula that is slightly off is found."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from tests.found import records

X = kt.array("n", "bfloat16", domain=(-4, 4))
DIMS = {"n": kt.dim(values=(24,))}


def elementwise(function: Any, *arrays: Any) -> Any:
    def body(*refs: Any) -> None:
        *inputs, output = refs
        output[...] = function(*(ref[...].astype(jnp.float32) for ref in inputs)).astype(output.dtype)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype))(*arrays)


def with_gradient(function: Any, slope: Any, optimize_remat: bool = False) -> Any:
    kernel = jax.custom_vjp(lambda x: elementwise(function, x))
    backward = lambda x, g: (elementwise(slope, x, g),)  # noqa: E731
    kernel.defvjp(lambda x: (kernel(x), x), backward, optimize_remat=optimize_remat)
    return lambda x: kernel(x)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + jnp.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def gelu_oracle(x: Any) -> Any:
    return x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x: Any, g: Any, inner: float = 3 * 0.044715) -> Any:
    t = jnp.tanh(0.7978845608028654 * (x + 0.044715 * x**3))
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + inner * x * x))


def relu(x: Any) -> Any:
    return jnp.maximum(x, 0)


# A kernel, its oracle, and the message of findings of its gradient.
GRADIENTS = {
    "right": (with_gradient(gelu, gelu_slope), gelu_oracle, ""),
    "a slope that is chosen": (
        with_gradient(lambda x: jnp.where(x > 0, x, 0.1 * x), lambda x, g: g * jnp.where(x > 0, 1.0, 0.1)),
        lambda x: np.where(x > 0, x, 0.1 * x),
        "",
    ),
    "slightly off": (
        with_gradient(gelu, lambda x, g: gelu_slope(x, g, 0.1342)),
        gelu_oracle,
        "it computes something else: off by 1.6e-05 times the largest value even without rounding",
    ),
    "right, and its residuals are optimized": (with_gradient(gelu, gelu_slope, optimize_remat=True), gelu_oracle, ""),
    "slightly off, and its residuals are optimized": (
        with_gradient(gelu, lambda x, g: gelu_slope(x, g, 0.1342), optimize_remat=True),
        gelu_oracle,
        "it computes something else: off by 1.6e-05 times the largest value even without rounding",
    ),
    "steep near zero": (
        with_gradient(
            lambda x: x * jax.lax.rsqrt(x * x + 1e-5), lambda x, g: 1e-5 * g * jax.lax.rsqrt(x * x + 1e-5) ** 3
        ),
        lambda x: x / np.sqrt(x * x + 1e-5),
        "",
    ),
    "a kink": (with_gradient(relu, lambda x, g: jnp.where(x > 0, g, 0)), lambda x: np.maximum(x, 0), ""),
    "partly by JAX": (
        lambda x: jnp.sin(with_gradient(lambda v: 2 * v, lambda v, g: 2 * g)(x)),
        lambda x: np.sin(2 * x),
        "",
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_is_asked_whether_its_formula_is_right(name: str) -> None:
    kernel, oracle, message = GRADIENTS[name]
    judged = list(records(kt.oracle_for(kernel, x=X, dims=DIMS, grad=True)(oracle), ["interpret"], group="invariants"))
    found = [each for each in judged if each.verdict.is_finding]
    told = {each.message for each in found}
    assert {each.family for each in found} == ({"gradient"} if message else set())
    assert all("the gradient without rounding: by x: " in each and message in each for each in told), told
    answers = [record.formula for record in judged if record.family == "gradient" and record.compared]
    assert answers
    assert (
        all((answer is not None and answer.compared == 24 and not answer.unanswered) for answer in answers) or message
    )


def test_slopes_at_some_elements_are_no_formula() -> None:
    """An oracle that cannot be tracked gives slopes at 16 of 24 elements."""
    kernel, _, _ = GRADIENTS["right"]
    oracle = lambda x: np.array([gelu_oracle(float(v)) for v in x])  # noqa: E731
    result = kt.check(kt.oracle_for(kernel, x=X, dims=DIMS, grad=True)(oracle), depth="quick", minimize=0)
    assert not result.findings
    assert {record.formula for record in result.records if record.family == "gradient"} == {None}
