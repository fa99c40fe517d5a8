"""Decode attention for GPUs spreads a NaN that a cache holds past `kv_seq_len` (JAX 0.10.2 to 0.12.0.1).

The kernel of `jax.experimental.pallas.ops.gpu.decode_attention` masks scores by adding a large negative number, so that
NaN stays NaN, and multiplies the values of masked keys by 0. `jnp.where` on both would hide them. Shown without a GPU.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.decode_attention import mqa

q, k = jnp.ones((1, 16, 16)), jnp.ones((1, 64, 16))
stale = k.at[:, 10:].set(jnp.nan)
got = mqa(q, stale, k, None, jnp.array([10]), k_splits=2, block_k=16, interpret=True)
print("JAX", jax.__version__, "gives", got[0, 0, 0], "where it should be 1.0")
raise SystemExit(int(bool(jnp.isnan(got).any())))
