"""Matrix products on a TPU: a step multiplies two blocks, and a scratch in VMEM sums over the steps along `k`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK_M, BLOCK_N, BLOCK_K = 64, 128, 128

Activation = Callable[[jax.Array], jax.Array]


def _accumulator(dtype: Any) -> Any:
    return jnp.int32 if jnp.issubdtype(dtype, jnp.integer) else jnp.float32


def _step(x_ref: Any, y_ref: Any, o_ref: Any, sum_ref: Any, *, k: int, activation: Activation | None) -> None:
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def _() -> None:
        sum_ref[...] = jnp.zeros_like(sum_ref)

    def inside(ref: Any, axis: int) -> jax.Array:
        """The block, with zeros past the end of `k`. Both operands need it: NaN may lie there, and 0 * NaN is NaN."""
        block = ref[...]
        if k % ref.shape[axis] == 0:
            return block
        at = step * ref.shape[axis] + jax.lax.broadcasted_iota(jnp.int32, block.shape, axis)
        return jnp.where(at < k, block, jnp.zeros_like(block))

    sum_ref[...] += jnp.dot(
        inside(x_ref, 1),
        inside(y_ref, 0),
        # Otherwise the matrix unit rounds float32 to bfloat16; narrower dtypes are exact and allow no other precision.
        precision="highest" if x_ref.dtype == jnp.float32 else None,
        preferred_element_type=sum_ref.dtype,
    )

    @pl.when(step == steps - 1)
    def _() -> None:
        total = sum_ref[...]
        o_ref[...] = (total if activation is None else activation(total)).astype(o_ref.dtype)


def tpu_tiled_matmul(
    x: jax.Array,
    y: jax.Array,
    *,
    activation: Activation | None = None,
    block: tuple[int, int, int] = (BLOCK_M, BLOCK_N, BLOCK_K),
) -> jax.Array:
    """`activation(x @ y)`: floats are summed in float32 and rounded once to their dtype, integers summed in int32.

    Args:
      x, y: `(m, k)` and `(k, n)` of one dtype and any lengths; with `k = 0` every sum is 0. A TPU v4 multiplies no
        matrices of integers.
      activation: elementwise, applied to the sum.
      block: lengths for `m`, `n` and `k`: multiples of 32, 128 and 128.
    """
    (m, k), (_, n) = x.shape, y.shape
    accumulator = _accumulator(x.dtype)
    out_dtype = x.dtype if accumulator == jnp.float32 else accumulator
    if m == 0 or n == 0 or k == 0:
        zeros = jnp.zeros((m, n), accumulator)
        return (zeros if activation is None else activation(zeros)).astype(out_dtype)
    block_m, block_n, block_k = block
    block_m = min(block_m, m)  # Mosaic cannot mask a 16-bit block that is longer than an array of 1 to 4 rows
    return pl.pallas_call(
        functools.partial(_step, k=k, activation=activation),
        grid=(pl.cdiv(m, block_m), pl.cdiv(n, block_n), pl.cdiv(k, block_k)),
        in_specs=[
            pl.BlockSpec((block_m, block_k), lambda i, j, s: (i, s)),
            pl.BlockSpec((block_k, block_n), lambda i, j, s: (s, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, s: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), out_dtype),
        scratch_shapes=[pltpu.VMEM((block_m, block_n), accumulator)],
        # A TPU's cores may share the first two axes. The third adds to the scratch and must run in order.
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(x, y)
