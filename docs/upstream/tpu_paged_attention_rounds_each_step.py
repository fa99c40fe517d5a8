"""TPU paged attention rounds its output to bfloat16 after every step over the pages (JAX 0.10.2 to 0.12.0.1).

Where the heads of a group are a multiple of 8, the output has the dtype of q, and each step over the pages scales what
the one before it left there: `o_ref[...] = (l_prev * alpha * o_ref[...] + beta * o_curr) / l_next`. In bfloat16 the
roundings add up; a float32 accumulator, rounded once, is off by at most 0.4%. Shown without a TPU, by the values of
JAX's TPU interpreter.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

pages, tokens, depth = 64, 16, 128
q = jnp.ones((1, 8, depth), jnp.bfloat16)
k, v = (jax.random.uniform(jax.random.key(i), (1, pages, tokens, depth), jnp.bfloat16, 0.1, 0.3) for i in range(2))
with pltpu.force_tpu_interpret_mode():
    out = paged_attention(
        q, k, v, jnp.array([pages * tokens]), jnp.arange(pages)[None], pages_per_compute_block=1
    )  # fmt: skip
keys, values = (np.asarray(x, np.float64).reshape(-1, depth) for x in (k, v))
weights = np.exp(keys.sum(axis=1) - keys.sum(axis=1).max())
exact = weights @ values / weights.sum()
off = np.abs(np.asarray(out, np.float64)[0, 0] / exact - 1).max()
print(f"JAX {jax.__version__}: off by {off:.1%}, where one rounding to bfloat16 gives 0.4% at most")
raise SystemExit(int(off > 0.005))
