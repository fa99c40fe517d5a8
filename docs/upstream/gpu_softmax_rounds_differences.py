"""Softmax for GPUs rounds `x - max(x)` to the input's 16 bits (JAX 0.10.2 to 0.12.0.1).

The kernel of `jax.experimental.pallas.ops.gpu.softmax` computes in float32, but `(row - row_max).astype(jnp.float32)`
subtracts before the cast. The difference loses up to half an ulp, and `exp` makes that a relative error of the result:
for float16, 0.4% at a difference of 9, where a rounding of the result is at most 0.05%. Shown without a GPU.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.softmax import softmax

x = jnp.array([0.0038, -9], jnp.float16)
got = softmax(x[None], interpret=True)[0, 1]
expected = jax.nn.softmax(x.astype(jnp.float32))[1]
print("JAX", jax.__version__, "gives", got, "where it should be", expected)
raise SystemExit(int(abs(got - expected) > 2**-10 * expected))
