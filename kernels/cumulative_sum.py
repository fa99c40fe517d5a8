"""The cumulative sum along the rows of a matrix, from either end."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK = 32


def _row(x_ref: Any, o_ref: Any, *, block: int, columns: int, reverse: bool) -> None:
    row = pl.program_id(0)

    def step(tile: jax.Array, carry: jax.Array) -> jax.Array:
        position = tile * block + jnp.arange(block)
        inside = position < columns
        # Sums from the end are those of the row read backwards: no total to subtract from.
        at = (row, jnp.where(inside, columns - 1 - position, position) if reverse else position)
        x = plgpu.load(x_ref.at[at], mask=inside, other=0).astype(jnp.float32)
        plgpu.store(o_ref.at[at], (carry + jnp.cumsum(x)).astype(o_ref.dtype), mask=inside)
        return carry + jnp.sum(x)

    jax.lax.fori_loop(0, pl.cdiv(columns, block), step, jnp.float32(0.0))


def cumulative_sum(x: jax.Array, *, reverse: bool = False, block: int = BLOCK) -> jax.Array:
    """The sums of each row of `(m, n)` up to each of its elements, or from it on; any `m, n > 0`.

    One program a row takes tile after tile of `block` elements, a power of two, and carries the sum in float32.
    """
    m, n = x.shape
    return pl.pallas_call(
        functools.partial(_row, block=block, columns=n, reverse=reverse),
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)
