"""Layer normalisation of the rows of a matrix, `(x - mean) / sqrt(variance + EPSILON) * weight + bias`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

EPSILON = 1e-5
BLOCK = 32  # columns whose sums over the rows one program makes


def _load(ref: Any, at: Any, inside: jax.Array) -> jax.Array:
    return plgpu.load(ref.at[at], mask=inside, other=0).astype(jnp.float32)


def _row(
    x_ref: Any, weight_ref: Any, bias_ref: Any, o_ref: Any, mean_ref: Any, scale_ref: Any, *, block: int, columns: int
) -> None:
    row, at = pl.program_id(0), jnp.arange(block)
    inside = at < columns
    x, weight, bias = _load(x_ref, (row, at), inside), _load(weight_ref, at, inside), _load(bias_ref, at, inside)
    mean = jnp.sum(x) / columns
    centred = jnp.where(inside, x - mean, 0.0)
    scale = jax.lax.rsqrt(jnp.sum(centred * centred) / columns + EPSILON)
    y = centred * scale
    plgpu.store(o_ref.at[row, at], (y * weight + bias).astype(o_ref.dtype), mask=inside)
    mean_ref[row] = mean
    scale_ref[row] = scale


def _row_gradient(
    x_ref: Any, weight_ref: Any, mean_ref: Any, scale_ref: Any, g_ref: Any, dx_ref: Any, *, block: int, columns: int
) -> None:
    """With y the normalised row and s its scale: dx = s (w g - mean(w g) - y mean(y w g))."""
    row, at = pl.program_id(0), jnp.arange(block)
    inside = at < columns
    x, weight, g = _load(x_ref, (row, at), inside), _load(weight_ref, at, inside), _load(g_ref, (row, at), inside)
    scale = scale_ref[row]
    y = (x - mean_ref[row]) * scale
    dy = weight * g
    along = jnp.sum(y * dy) / columns
    dx = scale * (dy - jnp.sum(dy) / columns - y * along)
    plgpu.store(dx_ref.at[row, at], dx.astype(dx_ref.dtype), mask=inside)


def _column_gradients(
    x_ref: Any, mean_ref: Any, scale_ref: Any, g_ref: Any, dweight_ref: Any, dbias_ref: Any, *, rows: int, columns: int
) -> None:
    """Sums over the rows: dw = sum(y g), db = sum(g)."""
    at = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)
    inside = at < columns

    def step(row: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, g = _load(x_ref, (row, at), inside), _load(g_ref, (row, at), inside)
        y = (x - mean_ref[row]) * scale_ref[row]
        return sums[0] + y * g, sums[1] + g

    zeros = jnp.zeros(BLOCK, jnp.float32)
    dweight, dbias = jax.lax.fori_loop(0, rows, step, (zeros, zeros))
    plgpu.store(dweight_ref.at[at], dweight.astype(dweight_ref.dtype), mask=inside)
    plgpu.store(dbias_ref.at[at], dbias.astype(dbias_ref.dtype), mask=inside)


@jax.custom_vjp
def layer_norm(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    """The rows of `x` `(m, n)` less their mean, over their standard deviation, times `weight` plus `bias`, both `(n,)`.

    Any `m, n > 0`. The variance is the mean of squared distances from the mean. Computed in float32, so the squares of
    what lies beyond 2^64 overflow.
    """
    return _forward(x, weight, bias)[0]


def _forward(x: jax.Array, weight: jax.Array, bias: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    m, n = x.shape
    statistic = jax.ShapeDtypeStruct((m,), jnp.float32)
    y, mean, scale = pl.pallas_call(
        functools.partial(_row, block=pl.next_power_of_2(n), columns=n),
        grid=(m,),
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype), statistic, statistic),
        compiler_params=plgpu.CompilerParams(),
    )(x, weight, bias)
    return y, (x, weight, bias, mean, scale)


def _backward(kept: tuple[jax.Array, ...], g: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, weight, bias, mean, scale = kept
    m, n = x.shape
    dx = pl.pallas_call(
        functools.partial(_row_gradient, block=pl.next_power_of_2(n), columns=n),
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, weight, mean, scale, g)
    dweight, dbias = pl.pallas_call(
        functools.partial(_column_gradients, rows=m, columns=n),
        grid=(pl.cdiv(n, BLOCK),),
        out_shape=(jax.ShapeDtypeStruct((n,), weight.dtype), jax.ShapeDtypeStruct((n,), bias.dtype)),
        compiler_params=plgpu.CompilerParams(),
    )(x, mean, scale, g)
    return dx, dweight, dbias


layer_norm.defvjp(_forward, _backward)
