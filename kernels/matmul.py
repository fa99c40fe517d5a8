"""Matrix products: the two-by-two-block teaching form and a tiled form for any shape."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 32

Activation = Callable[[jax.Array], jax.Array]


def relu(z: jax.Array) -> jax.Array:
    """`max(z, 0)` that keeps NaN on every backend.

    `jax.nn.relu` does not: Pallas' Triton lowering turns `maximum` into an instruction that returns the operand
    that is not NaN (docs/upstream/triton_maximum_drops_nan.py).
    """
    return jnp.where(z < 0, 0.0, z)


def _dot(x: jax.Array, y: jax.Array, precision: str | None) -> jax.Array:
    return jnp.dot(x, y, precision=precision, preferred_element_type=jnp.float32)


def _quarter(x_ref: Any, y_ref: Any, o_ref: Any, *, precision: str | None) -> None:
    o_ref[...] = _dot(x_ref[...], y_ref[...], precision).astype(o_ref.dtype)


def matmul_2x2(x: jax.Array, y: jax.Array, *, precision: str | None = None) -> jax.Array:
    """`x @ y` by four programs, each of a quarter of the output.

    Args:
      x, y: `(m, k)` and `(k, n)`, floating point. On a GPU `m`, `n` and `k` are powers of two, `m` and `n`
        at least 32 and `k` at least 16, and a quarter must fit in shared memory.
      precision: of float32 products, as for `jnp.dot`; `None` lets a GPU use TF32.
    """
    m, k = x.shape
    _, n = y.shape
    return pl.pallas_call(
        functools.partial(_quarter, precision=precision),
        grid=(2, 2),
        in_specs=[
            pl.BlockSpec((m // 2, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, n // 2), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((m // 2, n // 2), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, y)


def _tile(
    x_ref: Any,
    y_ref: Any,
    o_ref: Any,
    *,
    shape: tuple[int, int, int],
    block: tuple[int, int, int],
    activation: Activation | None,
    precision: str | None,
) -> None:
    m, n, k = shape
    block_m, block_n, block_k = block
    i, j = pl.program_id(0), pl.program_id(1)
    row_inside = i * block_m + jnp.arange(block_m) < m
    column_inside = j * block_n + jnp.arange(block_n) < n
    rows, columns = pl.ds(i * block_m, block_m), pl.ds(j * block_n, block_n)

    def step(s: jax.Array, accumulator: jax.Array) -> jax.Array:
        depth = pl.ds(s * block_k, block_k)
        depth_inside = s * block_k + jnp.arange(block_k) < k
        x = plgpu.load(x_ref.at[rows, depth], mask=row_inside[:, None] & depth_inside[None, :], other=0)
        y = plgpu.load(y_ref.at[depth, columns], mask=depth_inside[:, None] & column_inside[None, :], other=0)
        return accumulator + _dot(x, y, precision)

    zeros = jnp.zeros((block_m, block_n), jnp.float32)
    result = jax.lax.fori_loop(0, pl.cdiv(k, block_k), step, zeros)
    if activation is not None:
        result = activation(result)
    inside = row_inside[:, None] & column_inside[None, :]
    plgpu.store(o_ref.at[rows, columns], result.astype(o_ref.dtype), mask=inside)


def matmul(
    x: jax.Array,
    y: jax.Array,
    *,
    activation: Activation | None = None,
    precision: str | None = None,
    block: tuple[int, int, int] = (BLOCK_M, BLOCK_N, BLOCK_K),
) -> jax.Array:
    """`activation(x @ y)`, summed in float32 and rounded once to the inputs' dtype.

    Args:
      x, y: `(m, k)` and `(k, n)` of one floating dtype and any lengths; with `k = 0` every sum is 0.
      activation: elementwise, applied to the float32 sum.
      precision: of float32 products, as for `jnp.dot`; `None` lets a GPU use TF32.
      block: tile lengths for `m`, `n` and `k`: powers of two, at least 16.
    """
    m, k = x.shape
    _, n = y.shape
    if m == 0 or n == 0 or k == 0:
        zeros = jnp.zeros((m, n), jnp.float32)
        return (zeros if activation is None else activation(zeros)).astype(x.dtype)
    tile = functools.partial(_tile, shape=(m, n, k), block=block, activation=activation, precision=precision)
    return pl.pallas_call(
        tile,
        grid=(pl.cdiv(m, block[0]), pl.cdiv(n, block[1])),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, y)
