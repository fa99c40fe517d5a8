"""Decode attention for GPUs gives inf of float16 values that float16 holds (JAX 0.10.2 to 0.12.0.1).

`gqa` and `mqa` of `jax.experimental.pallas.ops.gpu.decode_attention` split the keys among programs. Each writes its sum
of `exp(score - maximum) * value`, not divided yet, in the dtype of the queries. In float16, 64 equally weighted values
of 1100 have a sum of 70400, past its largest number, 65504. Shown without a GPU.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.decode_attention import gqa

q, k = jnp.zeros((1, 1, 16), jnp.float16), jnp.zeros((1, 128, 1, 16), jnp.float16)
out = gqa(q, k, jnp.full_like(k, 1100), k_splits=2, interpret=True)
print("JAX", jax.__version__, "gives", out[0, 0, 0], "where it should be 1100.0")
raise SystemExit(int(out[0, 0, 0] != 1100))
