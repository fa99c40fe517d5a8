"""A helper in a file of its own, as kernels have: what it does has no GPU lowering."""

import jax
import jax.numpy as jnp


def ranked(x: jax.Array) -> jax.Array:
    return jnp.sort(x)  # THE LINE


@jax.jit
def ranked_in_a_jitted_helper(x: jax.Array) -> jax.Array:
    return -jnp.sort(-x)  # THE LINE IN THE JITTED HELPER
