"""ejkernel's fused_cross_entropy loses the sign of weights, which its gradient keeps (ejkernel 0.0.80.3, JAX 0.10.2).

The forward kernel multiplies a row's loss by `jnp.abs(weight)`, the backward kernel by `weight`. With a negative weight
the loss has the wrong sign, and its gradient is that of another function.
Shown without a TPU: the loss of a row with a weight of -1.
"""

import jax
import jax.numpy as jnp
from ejkernel.kernels._pallas.tpu.fused_cross_entropy import fused_cross_entropy
from jax.experimental import pallas as pl

call = pl.pallas_call
pl.pallas_call = lambda *args, **options: call(*args, interpret=True, **options)
logits, targets, weights = jnp.zeros((1, 256)), jnp.array([3]), jnp.array([-1.0])
got = fused_cross_entropy(logits, targets, weights, reduction="sum")[0]
expected = weights[0] * jnp.log(256)
print("JAX", jax.__version__, "gives", got, "where it should be", expected)
raise SystemExit(int(abs(got - expected) > 1e-3))
