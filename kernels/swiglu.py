"""SwiGLU, `silu(x @ w1) * (x @ w2)`: both products and the gate in one kernel, or the gate alone."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK, BLOCK_M, BLOCK_N, BLOCK_K = 128, 16, 32, 32


def _silu(x: jax.Array) -> jax.Array:
    """`x / (1 + exp(-x))`: where the exponential overflows, below -88.7, the quotient is -0 and not yet -3e-37."""
    return x / (1.0 + jnp.exp(-x))


def _gate(a_ref: Any, b_ref: Any, o_ref: Any, *, block: int, length: int) -> None:
    start = pl.program_id(0) * block
    inside = start + jnp.arange(block) < length
    at = pl.ds(start, block)
    a = plgpu.load(a_ref.at[at], mask=inside, other=0).astype(jnp.float32)
    b = plgpu.load(b_ref.at[at], mask=inside, other=0).astype(jnp.float32)
    plgpu.store(o_ref.at[at], (_silu(a) * b).astype(o_ref.dtype), mask=inside)


def swiglu_gate(a: jax.Array, b: jax.Array, *, block: int = BLOCK) -> jax.Array:
    """`silu(a) * b` of two vectors `(n,)` of one floating dtype and any length from 1, computed in float32.

    Args:
      a, b: the vector that gates, and the gated one.
      block: elements a program; a power of two.
    """
    (length,) = a.shape
    return pl.pallas_call(
        functools.partial(_gate, block=block, length=length),
        grid=(pl.cdiv(length, block),),
        out_shape=jax.ShapeDtypeStruct(a.shape, a.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(a, b)


def _dot(x: jax.Array, y: jax.Array, precision: str | None) -> jax.Array:
    return jnp.dot(x, y, precision=precision, preferred_element_type=jnp.float32)


def _tile(
    x_ref: Any,
    w1_ref: Any,
    w2_ref: Any,
    o_ref: Any,
    *,
    shape: tuple[int, int, int],
    block: tuple[int, int, int],
    precision: str | None,
) -> None:
    m, n, k = shape
    block_m, block_n, block_k = block
    i, j = pl.program_id(0), pl.program_id(1)
    row_inside = i * block_m + jnp.arange(block_m) < m
    column_inside = j * block_n + jnp.arange(block_n) < n
    rows, columns = pl.ds(i * block_m, block_m), pl.ds(j * block_n, block_n)

    def step(s: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        a, b = sums
        depth = pl.ds(s * block_k, block_k)
        depth_inside = s * block_k + jnp.arange(block_k) < k
        x = plgpu.load(x_ref.at[rows, depth], mask=row_inside[:, None] & depth_inside[None, :], other=0)
        inside = depth_inside[:, None] & column_inside[None, :]
        w1 = plgpu.load(w1_ref.at[depth, columns], mask=inside, other=0)
        w2 = plgpu.load(w2_ref.at[depth, columns], mask=inside, other=0)
        return a + _dot(x, w1, precision), b + _dot(x, w2, precision)

    zeros = jnp.zeros((block_m, block_n), jnp.float32)
    a, b = jax.lax.fori_loop(0, pl.cdiv(k, block_k), step, (zeros, zeros))
    inside = row_inside[:, None] & column_inside[None, :]
    plgpu.store(o_ref.at[rows, columns], (_silu(a) * b).astype(o_ref.dtype), mask=inside)


def swiglu(
    x: jax.Array,
    w1: jax.Array,
    w2: jax.Array,
    *,
    precision: str | None = None,
    block: tuple[int, int, int] = (BLOCK_M, BLOCK_N, BLOCK_K),
) -> jax.Array:
    """`silu(x @ w1) * (x @ w2)`, summed and gated in float32 and rounded once to the inputs' dtype.

    Args:
      x: `(m, k)`, of a floating dtype; all lengths from 1.
      w1, w2: `(k, n)`, of the same dtype: the weights of the gate and of what it gates.
      precision: of float32 products, as for `jnp.dot`; `None` lets a GPU use TF32.
      block: tile lengths for `m`, `n` and `k`: powers of two, at least 16.
    """
    (m, k), n = x.shape, w1.shape[1]
    return pl.pallas_call(
        functools.partial(_tile, shape=(m, n, k), block=block, precision=precision),
        grid=(pl.cdiv(m, block[0]), pl.cdiv(n, block[1])),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, w1, w2)
