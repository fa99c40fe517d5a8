"""TPU flash attention leaves out a block of keys of which a query sees the first one alone (JAX 0.10.2 to 0.12.0.1).

`below_or_on_diag` compares the last row of a block of queries with the first column of a block of keys by `>`, where a
block whose corner is on the diagonal needs `>=`. With `causal=True` and one query, `block_q=1`, no block is run at all
and the output is 0 where it should be the first value. So it is for any odd `block_q` whose last row is a multiple of
the block of keys, as in 129 queries in one block. Shown without a TPU, by the values of JAX's TPU interpreter.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

q, kv = jnp.ones((1, 1, 1, 128)), jnp.ones((1, 1, 256, 128))
one_query = BlockSizes(block_q=1, block_k_major=128, block_k=128, block_b=1)
with pltpu.force_tpu_interpret_mode():
    out = flash_attention(q, kv, kv, causal=True, block_sizes=one_query)
print("JAX", jax.__version__, "gives", out[0, 0, 0, 0], "where it should be 1.0")
raise SystemExit(int(not (out == 1).all()))
