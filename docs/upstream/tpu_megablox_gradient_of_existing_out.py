"""megablox.gmm has the wrong gradient for `existing_out` (JAX 0.10.2 to 0.12.0.1).

Rows of a group are written over those of `existing_out`, whose gradient is therefore 0 there. The backward pass returns
the gradient of the output for all rows. Shown without a TPU, in interpret mode.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.megablox import gmm

lhs, rhs, sizes = jnp.ones((16, 8)), jnp.ones((2, 8, 8)), jnp.array([8, 8], jnp.int32)


def total(existing: jax.Array) -> jax.Array:
    return gmm(lhs, rhs, sizes, jnp.float32, (8, 8, 8), None, existing, False, True).sum()


existing = jnp.ones((16, 8))
change = total(existing + 1) - total(existing)
gradient = jax.grad(total)(existing)
print(
    "JAX", jax.__version__, "gives", gradient[0, 0], "where it should be 0.0: 1 more in each changes the sum by", change
)
raise SystemExit(int((gradient != 0).any()))
