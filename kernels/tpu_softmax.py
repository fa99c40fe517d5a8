"""Softmax on a TPU over as many columns as `lengths` says, in two passes over tiles.

Within the length, -inf means "not there"; a row with nothing valid yields zeros, and a NaN or +inf makes its row NaN.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK_M, BLOCK_N = 16, 128  # one register of bfloat16, two of float32


def _tile(lengths_ref: Any, x_ref: Any, o_ref: Any, maximum_ref: Any, total_ref: Any) -> None:
    batch, second_pass, tile = pl.program_id(0), pl.program_id(2), pl.program_id(3)
    start, length = tile * BLOCK_N, lengths_ref[batch]
    partly_inside = start < length

    @pl.when((second_pass == 0) & (tile == 0))
    def _() -> None:
        maximum_ref[...] = jnp.full_like(maximum_ref, -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref)

    def load() -> tuple[jax.Array, jax.Array]:
        inside = start + jax.lax.broadcasted_iota(jnp.int32, x_ref.shape, 1) < length
        return inside, jnp.where(inside, x_ref[...].astype(jnp.float32), -jnp.inf)

    def shift(maximum: jax.Array) -> jax.Array:
        """What to subtract: a maximum of -inf would turn `x - maximum` into NaN, so 0 takes its place."""
        return jnp.where(maximum == -jnp.inf, 0.0, maximum)

    @pl.when((second_pass == 0) & partly_inside)
    def _() -> None:
        _, x = load()
        before = maximum_ref[...]
        maximum = jnp.maximum(before, jnp.max(x, axis=1, keepdims=True))
        terms = jnp.exp(x - shift(maximum))
        total_ref[...] = total_ref[...] * jnp.exp(before - shift(maximum)) + jnp.sum(terms, axis=1, keepdims=True)
        maximum_ref[...] = maximum

    @pl.when((second_pass == 1) & partly_inside)
    def _() -> None:
        inside, x = load()
        total = total_ref[...]
        share = jnp.exp(x - shift(maximum_ref[...])) / jnp.where(total == 0.0, 1.0, total)
        o_ref[...] = jnp.where(inside, share, 0.0).astype(o_ref.dtype)

    @pl.when((second_pass == 1) & ~partly_inside)
    def _() -> None:
        o_ref[...] = jnp.zeros_like(o_ref)


def tpu_softmax(x: jax.Array, lengths: jax.Array) -> jax.Array:
    """Softmax of the rows of `x[b]` over their first `lengths[b]` columns, and 0 in the others; computed in float32.

    The first pass keeps the maximum of each row and the sum of its exponentials in scratch, the second normalises.
    The lengths are known before a step starts, so that tiles past them are not even fetched.

    Args:
      x: `(b, m, n)`, all lengths at least 1.
      lengths: `(b,)` int32, from 0 to `n`.
    """
    b, m, n = x.shape

    def source(batch: Any, row: Any, second_pass: Any, tile: Any, lengths_ref: Any) -> tuple[Any, ...]:
        last = jnp.maximum(pl.cdiv(lengths_ref[batch], BLOCK_N) - 1, 0)
        return batch, row, jnp.minimum(tile, last)  # a block that was fetched for the step before stays

    def target(batch: Any, row: Any, second_pass: Any, tile: Any, lengths_ref: Any) -> tuple[Any, ...]:
        return batch, row, tile * second_pass  # nothing is written in the first pass, so nothing may be flushed

    return pl.pallas_call(
        _tile,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(b, pl.cdiv(m, BLOCK_M), 2, pl.cdiv(n, BLOCK_N)),
            in_specs=[pl.BlockSpec((None, BLOCK_M, BLOCK_N), source)],
            out_specs=pl.BlockSpec((None, BLOCK_M, BLOCK_N), target),
            scratch_shapes=[pltpu.VMEM((BLOCK_M, 1), jnp.float32)] * 2,
        ),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary", "arbitrary")),
    )(lengths, x)
