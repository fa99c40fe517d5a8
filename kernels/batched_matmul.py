"""Batched matrix products: the tiled form of `matmul` under `jax.vmap`."""

import functools

import jax

from kernels.matmul import matmul


def batched_matmul(x: jax.Array, y: jax.Array, *, precision: str | None = None) -> jax.Array:
    """`x @ y` over leading axes, which either operand may lack.

    Args:
      x, y: `(..., m, k)` and `(..., k, n)`. Where both have leading axes, these are the same.
      precision: of float32 products, as for `jnp.dot`.
    """
    product = functools.partial(matmul, precision=precision)
    x_axes, y_axes = x.ndim - 2, y.ndim - 2
    if x_axes and y_axes and x.shape[:-2] != y.shape[:-2]:
        raise ValueError(f"leading axes differ: {x.shape[:-2]} and {y.shape[:-2]}")
    for _ in range(max(x_axes, y_axes)):
        product = jax.vmap(product, in_axes=(0 if x_axes else None, 0 if y_axes else None))
    return product(x, y)
