"""ejkernel's prefill_page_attention lets masked keys count if scores are capped (ejkernel 0.0.80.3, JAX 0.10.2).

The mask, about -2e38, is added to the scores before `attn_logits_soft_cap * tanh(scores / attn_logits_soft_cap)`. The
cap turns it into -attn_logits_soft_cap, so with a cap of 2 a key of the future weighs exp(-2) where it should weigh 0.
Shown without a TPU: the first query may see one key alone, whose value is 0, but the output is not 0.
"""

import jax
import jax.numpy as jnp
from ejkernel.kernels._pallas.tpu.prefill_page_attention import prefill_page_attention
from jax.experimental import pallas as pl

tokens, width = 16, 128
query = jnp.zeros((tokens, 1, width))
keys = jnp.zeros((1, 1, tokens, width))
values = jnp.ones((1, 1, tokens, width)).at[:, :, 0].set(0)
call = pl.pallas_call
pl.pallas_call = lambda *args, **options: call(*args, interpret=True, **options)
got = prefill_page_attention(query, keys, values, jnp.array([tokens]), jnp.array([0]), attn_logits_soft_cap=2.0)[
    0, 0, 0
]
print("JAX", jax.__version__, "gives", got, "where it should be 0.0")
raise SystemExit(int(got > 1e-3))
