"""RMS normalisation of the rows of a matrix, `x / sqrt(mean(x^2) + EPSILON) * w`, with its gradient."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

EPSILON = 2.0**-10


def _load(ref: Any, at: Any, inside: jax.Array) -> jax.Array:
    return plgpu.load(ref.at[at], mask=inside, other=0).astype(jnp.float32)


def _scaled(x: jax.Array, columns: int) -> tuple[jax.Array, jax.Array]:
    """x / c, and 1 / sqrt(mean((x / c)^2) + EPSILON / c^2), with c such that no square of a finite x overflows."""
    largest = jnp.max(jnp.abs(x))
    c = jnp.where((largest > 2.0**50) & (largest < jnp.inf), 2.0**80, 1.0)
    z = x / c
    return z, jax.lax.rsqrt(jnp.sum(z * z) / columns + EPSILON / c / c)


def _row(x_ref: Any, w_ref: Any, o_ref: Any, *, block: int, columns: int) -> None:
    at = jnp.arange(block)
    row, inside = (pl.program_id(0), at), at < columns
    x, w = _load(x_ref, row, inside), _load(w_ref, at, inside)
    z, scale = _scaled(x, columns)
    plgpu.store(o_ref.at[row], (z * w * scale).astype(o_ref.dtype), mask=inside)


def _row_gradient(x_ref: Any, w_ref: Any, g_ref: Any, dx_ref: Any, dw_ref: Any, *, block: int, columns: int) -> None:
    """With y = x s the normalised row: dx = s (w g - y mean(y w g)), and this row's share of dw = y g."""
    at = jnp.arange(block)
    row, inside = (pl.program_id(0), at), at < columns
    x, w, g = _load(x_ref, row, inside), _load(w_ref, at, inside), _load(g_ref, row, inside)
    scale = jax.lax.rsqrt(jnp.sum(x * x) / columns + EPSILON)
    y = x * scale
    mean = jnp.sum(y * w * g) / columns
    plgpu.store(dx_ref.at[row], (scale * (w * g - y * mean)).astype(dx_ref.dtype), mask=inside)
    plgpu.store(dw_ref.at[row], y * g, mask=inside)


@jax.custom_vjp
def rms_norm(x: jax.Array, w: jax.Array) -> jax.Array:
    """The rows of `x` `(m, n)` over their root mean square, times `w` `(n,)`; computed in float32, any `m, n > 0`."""
    return _call(_row, jax.ShapeDtypeStruct(x.shape, x.dtype), x, w)


def _forward(x: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return rms_norm(x, w), (x, w)


def _backward(kept: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w = kept
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape, jnp.float32)]
    dx, dw = _call(_row_gradient, shapes, x, w, g)
    return dx, dw.sum(0).astype(w.dtype)


rms_norm.defvjp(_forward, _backward)


def _call(body: Any, out_shape: Any, x: jax.Array, *others: jax.Array) -> Any:
    rows, columns = x.shape
    return pl.pallas_call(
        functools.partial(body, block=pl.next_power_of_2(columns), columns=columns),
        grid=(rows,),
        out_shape=out_shape,
        compiler_params=plgpu.CompilerParams(),
    )(x, *others)
