"""A copy by a Mosaic GPU pipeline: blocks travel from global to shared memory and back, several at a time."""

from typing import Any

import jax
from jax.experimental.pallas import mosaic_gpu as plgpu

BLOCK_M, BLOCK_N = 64, 64


def pipeline_copy(
    x: jax.Array, *, block: tuple[int, int] = (BLOCK_M, BLOCK_N), max_concurrent_steps: int = 2
) -> jax.Array:
    """A copy of `x`, on a Hopper GPU or newer.

    Args:
      x: `(m, n)`, whole blocks in both axes.
      block: what is copied in one step; a row of it is a multiple of 16 bytes.
      max_concurrent_steps: how many blocks may be under way at once.
    """
    m, n = x.shape
    if m % block[0] or n % block[1]:
        raise ValueError(f"a {m}x{n} array is not made of whole blocks of {block[0]}x{block[1]}")
    spec = plgpu.BlockSpec(block, lambda i, j: (i, j))

    def copy_block(_: Any, x_smem: Any, o_smem: Any) -> None:
        o_smem[...] = x_smem[...]

    def copy(x_gmem: Any, o_gmem: Any) -> None:
        plgpu.emit_pipeline(
            copy_block,
            grid=(m // block[0], n // block[1]),
            in_specs=[spec],
            out_specs=[spec],
            max_concurrent_steps=max_concurrent_steps,
        )(x_gmem, o_gmem)

    return plgpu.kernel(copy, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
