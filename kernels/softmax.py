"""Softmax over the last axis of a matrix, in which -inf means "not there".

A row with nothing valid (all -inf) yields zeros. A NaN or +inf makes its whole row NaN.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK = 64

Guard = Callable[[jax.Array], jax.Array]


def finite(x: jax.Array) -> jax.Array:
    """Where `x` is neither infinite nor NaN, by JAX's own primitive."""
    return jnp.isfinite(x)


def finite_by_comparison(x: jax.Array) -> jax.Array:
    """The same as `finite`, for backends on which `is_finite` has no lowering."""
    return jnp.abs(x) < jnp.inf


def _shift(maximum: jax.Array, is_finite: Guard) -> jax.Array:
    """What to subtract: a maximum of -inf would turn `x - maximum` into NaN, so 0 takes its place."""
    return jnp.where(is_finite(maximum), maximum, jnp.maximum(maximum, 0.0))


def _divide(x: jax.Array, total: jax.Array) -> jax.Array:
    return x / jnp.where(total == 0.0, 1.0, total)


def _row(x_ref: Any, o_ref: Any, *, block: int, columns: int) -> None:
    row, tile = pl.program_id(0), pl.program_id(1)
    inside = tile * block + jnp.arange(block) < columns
    at = (row, pl.ds(tile * block, block))
    x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)
    e = jnp.exp(x - _shift(jnp.max(x), finite))
    plgpu.store(o_ref.at[at], _divide(e, jnp.sum(e)).astype(o_ref.dtype), mask=inside)


def softmax_fused(x: jax.Array) -> jax.Array:
    """Softmax of each row of `(m, n)` by one program a row; computed in float32, any `n > 0`."""
    m, n = x.shape
    return pl.pallas_call(
        functools.partial(_row, block=pl.next_power_of_2(n), columns=n),
        grid=(m, 1),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)


def _tile_statistics(
    x_ref: Any, maximum_ref: Any, total_ref: Any, *, block: int, columns: int, is_finite: Guard
) -> None:
    row, tile = pl.program_id(0), pl.program_id(1)
    inside = tile * block + jnp.arange(block) < columns
    x = plgpu.load(x_ref.at[row, pl.ds(tile * block, block)], mask=inside, other=-jnp.inf).astype(jnp.float32)
    maximum = jnp.max(x)
    maximum_ref[row, tile] = maximum
    total_ref[row, tile] = jnp.sum(jnp.exp(x - _shift(maximum, is_finite)))


def _normalise(
    x_ref: Any,
    maximum_ref: Any,
    total_ref: Any,
    o_ref: Any,
    *,
    block: int,
    columns: int,
    is_finite: Guard,
) -> None:
    row, tile = pl.program_id(0), pl.program_id(1)
    maxima = maximum_ref[row, :]
    shift = _shift(jnp.max(maxima), is_finite)
    total = jnp.sum(total_ref[row, :] * jnp.exp(maxima - shift))

    inside = tile * block + jnp.arange(block) < columns
    at = (row, pl.ds(tile * block, block))
    x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)
    plgpu.store(o_ref.at[at], _divide(jnp.exp(x - shift), total).astype(o_ref.dtype), mask=inside)


def softmax_tiled(x: jax.Array, *, block: int = BLOCK, is_finite: Guard = finite) -> jax.Array:
    """Softmax of each row of `(m, n)` in two passes over tiles of `block` columns, any `n > 0`.

    Pass 1 stores the maximum of each tile and the sum of its exponentials; pass 2 combines them and
    normalises. Both guard fully masked tiles with `is_finite`. The number of statistics is rounded up to a
    power of two by tiles that lie past the end and are fully masked.
    """
    m, n = x.shape
    tiles = pl.cdiv(n, block)
    statistics = jax.ShapeDtypeStruct((m, pl.next_power_of_2(tiles)), jnp.float32)
    maximum, total = pl.pallas_call(
        functools.partial(_tile_statistics, block=block, columns=n, is_finite=is_finite),
        grid=statistics.shape,
        out_shape=(statistics, statistics),
        compiler_params=plgpu.CompilerParams(),
    )(x)
    return pl.pallas_call(
        functools.partial(_normalise, block=block, columns=n, is_finite=is_finite),
        grid=(m, tiles),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, maximum, total)


softmax_tiled_by_comparison = functools.partial(softmax_tiled, is_finite=finite_by_comparison)
