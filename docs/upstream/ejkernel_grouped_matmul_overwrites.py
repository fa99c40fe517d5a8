"""ejkernel's grouped_matmul overwrites `existing_out`, which it should accumulate into (ejkernel 0.0.80.3, JAX 0.10.2).

Its documentation says "pre-existing output tensor to accumulate into", its gradient by `existing_out` is that of a sum,
and grouped_matmulv3 adds. The kernel only copies the array to where rows of other groups stay.
Shown without a TPU: a product of zeros, added to ones.
"""

import jax
import jax.numpy as jnp
from ejkernel.kernels._pallas.tpu.grouped_matmul import grouped_matmul

lhs, rhs, sizes = jnp.zeros((8, 128)), jnp.zeros((1, 128, 128)), jnp.array([8], jnp.int32)
got = grouped_matmul(lhs, rhs, sizes, tiling=(8, 128, 128), existing_out=jnp.ones((8, 128)), interpret=True)[0, 0]
print("JAX", jax.__version__, "gives", got, "where it should be 1.0")
raise SystemExit(int(got != 1))
