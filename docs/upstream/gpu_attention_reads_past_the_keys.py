"""Causal attention for GPUs reads past the last key where there are more queries (JAX 0.10.2 to 0.12.0.1).

`mha` of `jax.experimental.pallas.ops.gpu.attention` takes the number of key blocks of a causal mask from the queries
alone, so queries past the last key go over blocks that do not exist. The causal mask compares positions, which does not
hide what lies there: it is taken for keys and values, with weights of their own. Shown without a GPU: the interpreter
pads arrays with NaN.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.attention import BlockSizes, mha

q, k = jnp.ones((1, 32, 1, 16)), jnp.ones((1, 16, 1, 16))
out = mha(q, k, k, None, causal=True, block_sizes=BlockSizes(16, 16), interpret=True)
print("JAX", jax.__version__, "gives", out[0, -1, 0, 0], "for the last query, where it should be 1.0")
raise SystemExit(int(out[0, -1, 0, 0] != 1))
