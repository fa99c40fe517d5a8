"""RMS normalisation of rows on a TPU, `x / sqrt(mean(x^2) + EPSILON) * w`, in two passes over tiles."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK_M, BLOCK_N = 16, 128  # one register of bfloat16, two of float32
EPSILON = 2.0**-10


def _tile(x_ref: Any, w_ref: Any, o_ref: Any, squares_ref: Any, *, columns: int) -> None:
    second_pass, tile = pl.program_id(1), pl.program_id(2)

    @pl.when((second_pass == 0) & (tile == 0))
    def _() -> None:
        squares_ref[...] = jnp.zeros_like(squares_ref)

    @pl.when(second_pass == 0)
    def _() -> None:
        x = x_ref[...].astype(jnp.float32)
        at = tile * BLOCK_N + jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
        squares_ref[...] += jnp.sum(jnp.where(at < columns, x * x, 0.0), axis=1, keepdims=True)

    @pl.when(second_pass == 1)
    def _() -> None:
        scale = jax.lax.rsqrt(squares_ref[...] / columns + EPSILON)
        o_ref[...] = (x_ref[...].astype(jnp.float32) * scale * w_ref[...].astype(jnp.float32)).astype(o_ref.dtype)


def tpu_rms_norm(x: jax.Array, w: jax.Array) -> jax.Array:
    """The rows of `x` `(m, n)` over their root mean square, times `w` `(n,)`; any `m, n > 0`.

    Computed in float32, so the squares of what lies beyond 2^64 overflow. The first pass sums the squares of a row
    in scratch and masks what lies past its end, the second scales the tiles.
    """
    m, n = x.shape
    return pl.pallas_call(
        functools.partial(_tile, columns=n),
        grid=(pl.cdiv(m, BLOCK_M), 2, pl.cdiv(n, BLOCK_N)),
        in_specs=[
            pl.BlockSpec((BLOCK_M, BLOCK_N), lambda i, second_pass, j: (i, j)),
            pl.BlockSpec((1, BLOCK_N), lambda i, second_pass, j: (0, j)),
        ],
        # Nothing is written in the first pass, so nothing may be flushed.
        out_specs=pl.BlockSpec((BLOCK_M, BLOCK_N), lambda i, second_pass, j: (i, j * second_pass)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM((BLOCK_M, 1), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary", "arbitrary")),
    )(x, w.reshape(1, n))
