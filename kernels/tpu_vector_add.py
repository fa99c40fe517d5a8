"""Elementwise sum of two vectors on a TPU, whose registers hold two axes: a vector is viewed as rows of 128 lanes."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

LANES = 128
ROWS = 32  # whole registers of every dtype: 8 rows of 32 bits, 16 of 16 or 32 of 8
BLOCK = ROWS * LANES


def _add(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    x, y = x_ref[...], y_ref[...]
    if x.dtype.itemsize == 1:  # no TPU adds 8-bit integers: the low bits of the wide sum are theirs
        x, y = x.astype(jnp.int32), y.astype(jnp.int32)
    o_ref[...] = (x + y).astype(o_ref.dtype)


def tpu_vector_add(x: jax.Array, y: jax.Array) -> jax.Array:
    """The sum of two vectors of one dtype and any length.

    Args:
      x, y: `(n,)`. The last row is padded, and what is computed past the end is cut off; integers wrap around.
    """
    (n,) = x.shape
    if n == 0:
        return jnp.zeros_like(x)
    rows = pl.cdiv(n, LANES)

    def view(vector: jax.Array) -> jax.Array:
        return jnp.pad(vector, (0, rows * LANES - n)).reshape(rows, LANES)

    block = pl.BlockSpec((ROWS, LANES), lambda i: (i, 0))
    total = pl.pallas_call(
        _add,
        grid=(pl.cdiv(rows, ROWS),),
        in_specs=[block, block],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct((rows, LANES), x.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )(view(x), view(y))
    return total.reshape(-1)[:n]
