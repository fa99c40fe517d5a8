"""ejkernel's ragged_decode_attention for TPUs ignores `logits_soft_cap` (ejkernel 0.0.80.3, JAX 0.10.2).

Its documentation says `logits = logits_soft_cap * tanh(logits / logits_soft_cap)`, but the argument reaches
`inner_decode_tpu` and is used nowhere; `sliding_window` and `softmax_aux` end there as well.
Shown without a TPU: two keys with scores of 9 and -9 and values of 1 and 0.
"""

import jax
import jax.numpy as jnp
from ejkernel.kernels._pallas.tpu.ragged_decode_attention import ragged_decode_attention
from jax.experimental import pallas as pl

cap = 0.5
query = jnp.ones((1, 1, 1))
key = jnp.array([9.0, -9.0]).reshape(1, 2, 1, 1)
value = jnp.array([1.0, 0.0]).reshape(1, 2, 1, 1)
call = pl.pallas_call
pl.pallas_call = lambda *args, **options: call(*args, interpret=True, **options)
got = ragged_decode_attention(query, key, value, jnp.array([0]), jnp.array([2]), logits_soft_cap=cap)[0, 0, 0]
expected = jax.nn.softmax(cap * jnp.tanh(jnp.array([9.0, -9.0]) / cap))[0]
print("JAX", jax.__version__, "gives", got, "where it should be", expected)
raise SystemExit(int(abs(got - expected) > 1e-3))
