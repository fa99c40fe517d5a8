"""TPU flash attention fetches a block of the bias that lies outside of it (JAX 0.10.2 to 0.12.0.1).

Where a causal mask skips a block of keys, the index map of `ab` names the next block of queries to fetch, and goes back
to 0 after the last one. It takes `q_seq_len // block_q` for their number, though queries may end within a block
(`block_q` need not divide their length in the forward pass), and then asks for the block after the last. On a TPU the
copy reads past the end of the array. Shown without a TPU: its interpreter refuses the block.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

q, kv, bias = jnp.ones((1, 1, 12, 128)), jnp.ones((1, 1, 256, 128)), jnp.ones((1, 1, 12, 256))
with pltpu.force_tpu_interpret_mode():
    try:
        flash_attention(q, kv, kv, bias, causal=True, block_sizes=BlockSizes(8, 128, 128, 1)).block_until_ready()
    except Exception as error:
        found = [line for line in str(error).splitlines() if "Out-of-bounds" in line]
        print("JAX", jax.__version__, *found, sep="\n")
        raise SystemExit(int(bool(found))) from None
print("JAX", jax.__version__, "finds every block inside its array")
