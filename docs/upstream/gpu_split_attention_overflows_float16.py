"""Attention for GPUs that splits its keys gives inf of values that float16 holds (JAX 0.10.2 to 0.12.0.1).

`decode_attention` (`mqa`, `gqa`) and `paged_attention` of `jax.experimental.pallas.ops.gpu` split the keys among
programs. Each writes its sum of `exp(score - maximum) * value`, not divided yet, in the dtype of the queries. In
float16, 64 equally weighted values of 1100 have a sum of 70400, past its largest number, 65504. Shown without a GPU.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.decode_attention import gqa
from jax.experimental.pallas.ops.gpu.paged_attention import paged_attention

q, k = jnp.zeros((1, 1, 16), jnp.float16), jnp.zeros((1, 128, 1, 16), jnp.float16)
decoded = gqa(q, k, jnp.full_like(k, 1100), k_splits=2, interpret=True)[0, 0, 0]
pages, table = k.reshape(1, 8, 16, 16), jnp.arange(8)[None]
paged = paged_attention(q, pages, jnp.full_like(pages, 1100), table, None, k_splits=2, interpret=True)[0, 0, 0]
print("JAX", jax.__version__, "gives", decoded, "and", paged, "where it should be 1100.0")
raise SystemExit(int(decoded != 1100 or paged != 1100))
