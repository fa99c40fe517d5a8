"""Small kernels in plain JAX around one Pallas call, for the framework's own tests."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def elementwise(function: Callable[..., Any], *shapes_like: jax.Array, dtype: Any = None) -> jax.Array:
    """One program that applies `function` to whole arrays."""

    def body(*refs: Any) -> None:
        *inputs, output = refs
        output[...] = function(*(ref[...] for ref in inputs)).astype(output.dtype)

    like = shapes_like[0]
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(like.shape, dtype or like.dtype))(*shapes_like)


def double(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: v + v, x)


def exponential(x: jax.Array) -> jax.Array:
    return elementwise(jnp.exp, x)
