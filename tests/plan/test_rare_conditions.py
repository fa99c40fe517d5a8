"""Bugs that show at some lengths, numbers or calls only: two signatures or families find each at `quick`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from tests.sample import whole

BLOCK = 16
Make = Callable[[bool], kt.Pairing]  # takes whether the kernel is wrong


def ring(longest: int) -> Make:
    """Copies through two slots, which the wrong kernel takes anew from the first one with each row."""

    def kernel(x: jax.Array, wrong: bool) -> jax.Array:
        m, n = x.shape

        def body(x_ref: Any, o_ref: Any) -> None:
            def step(t: Any, slots: Any) -> Any:
                i, j = t // n, t % n
                slots = jnp.where(jnp.arange(2) == t % 2, x_ref[i, j], slots)
                o_ref[i, j] = jnp.sum(jnp.where(jnp.arange(2) == (j if wrong else t) % 2, slots, 0.0))
                return slots

            jax.lax.fori_loop(0, m * n, step, jnp.zeros(2))

        return jax.jit(pallas(body, x))(x)

    dims = dict(m=kt.dim(values=(2,)), n=kt.dim(minimum=2, maximum=longest))
    return lambda wrong: kt.oracle_for(
        lambda x: kernel(x, wrong), x=kt.array("m n", "float32", domain=(-9, 9)), dims=dims
    )(lambda x: x)
