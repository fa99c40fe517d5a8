"""TPU paged attention rounds pages of float32 to bfloat16 (JAX 0.10.2 to 0.12.0.1).

Pages that are not quantized pass through `_maybe_dequantize`, whose default dtype is bfloat16, so keys and values lose
sixteen of their 24 bits though queries, pages and the result are float32. Shown without a TPU, by the values of JAX's
TPU interpreter: attention over one token should give that token's value.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

q, pages = jnp.ones((1, 8, 128)), jnp.full((1, 1, 16, 128), 1.001)
length, table = jnp.ones(1, jnp.int32), jnp.zeros((1, 1), jnp.int32)
with pltpu.force_tpu_interpret_mode():
    out = paged_attention(q, pages, pages, length, table, pages_per_compute_block=1)
print("JAX", jax.__version__, "gives", out[0, 0, 0], "of", out.dtype, "where it should be", pages[0, 0, 0, 0])
raise SystemExit(int(abs(out - 1.001).max() > 1e-6))
