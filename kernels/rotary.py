"""Rotary position embedding: pairs of features, one in each half of the last axis, turned by an angle that grows.

Feature `i` of `d / 2` at position `p` turns by `p base^(-2i/d)`. Angles are float32 and right to `3 p 2^-24`: up to
position 8192, less than half an ulp of a bfloat16 near 1.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK, BASE = 32, 10000.0


def _angles(position: jax.Array, feature: jax.Array, *, d: int, base: float) -> jax.Array:
    """`position base^(-2 feature / d)` in float32, `(positions, features)`."""
    frequency = jnp.exp(feature.astype(jnp.float32) * (-2 * math.log(base) / d))
    return position.astype(jnp.float32)[:, None] * frequency[None, :]


def _rotate(x_ref: Any, o_ref: Any, *, sizes: tuple[int, int], block: tuple[int, int], base: float, first: int) -> None:
    s, d = sizes
    half = d // 2
    row, feature = pl.program_id(1) * block[0] + jnp.arange(block[0]), jnp.arange(block[1])
    inside = (row < s)[:, None] & (feature < half)[None, :]
    at_a = pl.program_id(0), row[:, None], feature[None, :]
    at_b = pl.program_id(0), row[:, None], half + feature[None, :]
    a = plgpu.load(x_ref.at[at_a], mask=inside, other=0).astype(jnp.float32)
    b = plgpu.load(x_ref.at[at_b], mask=inside, other=0).astype(jnp.float32)
    angle = _angles(first + row, feature, d=d, base=base)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    plgpu.store(o_ref.at[at_a], (a * cosine - b * sine).astype(o_ref.dtype), mask=inside)
    plgpu.store(o_ref.at[at_b], (a * sine + b * cosine).astype(o_ref.dtype), mask=inside)


def rotary(x: jax.Array, *, first: int = 0, base: float = BASE, block: int = BLOCK) -> jax.Array:
    """The halves `a` and `b` of each row, turned to `a cos - b sin` and `a sin + b cos`, in float32.

    Args:
      x: `(..., s, d)`, floating point, of any length `s > 0` and an even `d`.
      first: the position of the first row; in decoding, the tokens before it.
      base: the angle of feature `i` advances by `base^(-2i/d)` with each position.
      block: rows a program; a power of two.
    """
    s, d = x.shape[-2:]
    batch = math.prod(x.shape[:-2])
    return pl.pallas_call(
        functools.partial(_rotate, sizes=(s, d), block=(block, pl.next_power_of_2(d // 2)), base=base, first=first),
        grid=(batch, pl.cdiv(s, block)),
        out_shape=jax.ShapeDtypeStruct((batch, s, d), x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x.reshape(batch, s, d)).reshape(x.shape)
