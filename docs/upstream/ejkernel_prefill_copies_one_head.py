"""ejkernel's prefill_page_attention waits for copies that nothing starts (ejkernel 0.0.80.3, JAX 0.10.2).

The first keys and values are copied `when((i == 0) & (h == 0))`, and those that follow one step ahead. Each head begins
at i == 0 again, so every head but the first waits for a copy of its first keys that was never started: a TPU hangs, and
Pallas' interpreter, which does not wait, computes with what is left from the head before.
Shown without a TPU: the values of the second head are larger by 10, and so should its output be.
"""

import jax
import jax.numpy as jnp
from ejkernel.kernels._pallas.tpu.prefill_page_attention import prefill_page_attention
from jax.experimental import pallas as pl

tokens, page, width = 16, 16, 128
query = jnp.zeros((tokens, 2, width))
keys = jnp.zeros((2, 4, page, width))
values = keys + jnp.array([0.0, 10.0])[:, None, None, None]
call = pl.pallas_call
pl.pallas_call = lambda *args, **options: call(*args, interpret=True, **options)
got = prefill_page_attention(query, keys, values, jnp.array([2 * tokens]), jnp.array([1, 2]))
print("JAX", jax.__version__, "gives", got[-1, :, 0], "where it should be [0. 10.]")
raise SystemExit(int(abs(got[-1, 1, 0] - 10) > 1e-3))
