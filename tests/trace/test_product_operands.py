"""Whether a kernel rounds values to 16 bits before it multiplies them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kerneltest.trace.walk import has_narrow_products

LOW, F = jnp.bfloat16, jnp.float32


def _narrow_weights(x: Any, w: Any) -> Any:
    return jnp.exp(x.astype(F)).astype(LOW) @ w


def _narrow_weights_widened_again(x: Any, w: Any) -> Any:
    return jnp.exp(x.astype(F)).astype(LOW).astype(F).T @ w.astype(F)


def _wide(x: Any, w: Any) -> Any:
    return (jnp.exp(x.astype(F)) @ w.astype(F)).astype(LOW)


def _wide_with_a_narrow_statistic(x: Any, w: Any) -> Any:
    scale = jax.lax.reduce_precision(jnp.sum(x.astype(F)), 8, 7)
    return (x.astype(F) * scale) @ w.astype(F)


def _narrow_weights_without_a_matrix_product(x: Any, w: Any) -> Any:
    return jnp.sum(jnp.exp(x.astype(F)).astype(LOW).astype(F) * w.astype(F), axis=1)


def _rounded_to_be_stored(x: Any, w: Any) -> Any:
    def body(x_ref: Any, w_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.sum(jnp.exp(x_ref[...].astype(F)) * w_ref[...].astype(F), axis=1, keepdims=True).astype(LOW)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 1), LOW))(x, w)


def _scale_beside_exact_operands(x: Any, w: Any) -> Any:
    def body(x_ref: Any, w_ref: Any, o_ref: Any) -> None:
        def step(i: Any, total: Any) -> Any:
            scale = jnp.max(x_ref[...].astype(F)).astype(LOW).astype(F)
            return total + jnp.dot(x_ref[...].T, w_ref[...], preferred_element_type=F) * scale

        o_ref[...] = jax.lax.fori_loop(0, 2, step, jnp.zeros((8, 8), F))

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 8), F))(x, w)


def _weights_kept_in_narrow_memory(x: Any, w: Any) -> Any:
    def body(x_ref: Any, w_ref: Any, o_ref: Any, kept_ref: Any) -> None:
        kept_ref[...] = jnp.exp(x_ref[...])
        o_ref[...] = jnp.dot(kept_ref[...], w_ref[...], preferred_element_type=F)

    scratch = [pltpu.VMEM((8, 8), LOW)]
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((8, 8), F), scratch_shapes=scratch)(x, w)


def _narrow_weights_by_narrow_functions(x: Any, w: Any) -> Any:
    return jnp.exp(x).T @ w


def _narrow_weights_carried_by_a_loop(x: Any, w: Any) -> Any:
    def step(_: Any, carry: Any) -> Any:
        weights, total = carry
        return jnp.exp(weights).astype(LOW).astype(F), total + weights @ w.astype(F)

    return jax.lax.fori_loop(0, 2, step, (x.astype(F), jnp.zeros((8, 8), F)))[1]


@pytest.mark.parametrize(
    ("kernel", "narrow"),
    [
        (_narrow_weights, True),
        (_narrow_weights_widened_again, True),
        (_narrow_weights_without_a_matrix_product, True),
        (_narrow_weights_carried_by_a_loop, True),
        (_weights_kept_in_narrow_memory, True),
        (_narrow_weights_by_narrow_functions, True),
        (_scale_beside_exact_operands, False),
        (lambda x, w: jnp.dot(x.T, w, preferred_element_type=F), False),
        (_wide, False),
        (_wide_with_a_narrow_statistic, False),
        (_rounded_to_be_stored, False),
    ],
)
def test_narrow_operands_are_those_that_the_kernel_rounds(kernel: Callable[..., Any], narrow: bool) -> None:
    x = jax.ShapeDtypeStruct((8, 8), LOW)
    assert has_narrow_products(jax.make_jaxpr(kernel)(x, x).jaxpr) == narrow
