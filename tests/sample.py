"""Small kernels in plain JAX around one Pallas call, for the framework's own tests."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def whole(function: Callable[..., Any], out_shape: Any, *arrays: jax.Array) -> jax.Array:
    """One program that stores what `function` makes of references to whole arrays."""

    def body(*refs: Any) -> None:
        refs[-1][...] = function(*refs[:-1])

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(out_shape.shape, out_shape.dtype))(*arrays)


def elementwise(function: Callable[..., Any], *arrays: jax.Array, dtype: Any = None) -> jax.Array:
    """One program that applies `function` to whole arrays."""
    out = jax.ShapeDtypeStruct(arrays[0].shape, dtype or arrays[0].dtype)
    return whole(lambda *refs: function(*(ref[...] for ref in refs)).astype(out.dtype), out, *arrays)


def double(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: v + v, x)


def exponential(x: jax.Array) -> jax.Array:
    return elementwise(jnp.exp, x)
