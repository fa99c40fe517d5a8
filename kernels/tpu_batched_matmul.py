"""Batched matrix products on a TPU: the tiled form under `jax.vmap`, which puts an axis before those of the grid."""

import jax

from kernels.tpu_matmul import tpu_tiled_matmul


def tpu_batched_matmul(x: jax.Array, y: jax.Array) -> jax.Array:
    """`x @ y` over one leading axis, which either operand may lack.

    Args:
      x, y: `(b, m, k)` or `(m, k)`, and `(b, k, n)` or `(k, n)`.
    """
    axes = tuple(0 if each.ndim == 3 else None for each in (x, y))
    return jax.vmap(tpu_tiled_matmul, in_axes=axes)(x, y)
