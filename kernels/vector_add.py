"""Elementwise sum of two vectors: one program for all of it, or one program a block."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK = 128


def _add_block(x_ref: Any, y_ref: Any, o_ref: Any, *, block: int, length: int) -> None:
    start = pl.program_id(0) * block
    inside = start + jnp.arange(block) < length
    at = pl.ds(start, block)
    x = plgpu.load(x_ref.at[at], mask=inside, other=0)
    y = plgpu.load(y_ref.at[at], mask=inside, other=0)
    plgpu.store(o_ref.at[at], x + y, mask=inside)


def vector_add_blocked(x: jax.Array, y: jax.Array, *, block: int = BLOCK) -> jax.Array:
    """The sum of two vectors of one dtype and any length `n`.

    Args:
      x, y: `(n,)`, any dtype that Pallas can add; integers wrap around.
      block: elements a program; a power of two.
    """
    (length,) = x.shape
    if length == 0:
        return jnp.zeros_like(x)
    return pl.pallas_call(
        functools.partial(_add_block, block=block, length=length),
        grid=(pl.cdiv(length, block),),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, y)


def vector_add(x: jax.Array, y: jax.Array) -> jax.Array:
    """The same sum as one program over the whole array, rounded up to a power of two and masked."""
    return vector_add_blocked(x, y, block=pl.next_power_of_2(max(x.size, 1)))
