"""Softmax and RMS norm in Mosaic GPU, of any NVIDIA GPU since Ampere: a warpgroup a row."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu

ROW = 128  # the elements of which the length of a row is a multiple: one for each thread


def _by_row(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        row = lax.axis_index("row")
        o_ref[row] = function(x_ref[row].astype(jnp.float32)).astype(x.dtype)

    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return plgpu.kernel(body, out_type=out, grid=x.shape[:1], grid_names=("row",))(x)


def mosaic_softmax(x: jax.Array) -> jax.Array:
    """The softmax of each row of `(m, n)`, n whole blocks of 128."""

    def softmax(row: jax.Array) -> jax.Array:
        terms = jnp.exp(row - jnp.max(row))
        return terms / jnp.sum(terms)

    return _by_row(softmax, x)


def mosaic_rms_norm(x: jax.Array, *, epsilon: float = 1e-6) -> jax.Array:
    """Each row of `(m, n)`, n whole blocks of 128, over the root of the mean of its squares and `epsilon`."""
    return _by_row(lambda row: row * lax.rsqrt(jnp.sum(row * row) / x.shape[1] + epsilon), x)
