"""ejkernel's prefill_page_attention may read pages before they are copied (ejkernel 0.0.80.3, JAX 0.10.2).

All copies, of keys and values, of this block and of the next, signal one semaphore, which counts bytes. A wait ends
once enough bytes have arrived, so copies of the next block can end the wait for this one.
Shown without a TPU: JAX's TPU interpreter runs the latest copies first with `dma_execution_mode="on_wait"`. All values
are 1, and so should the output be.
"""

import jax
import jax.numpy as jnp
from ejkernel.kernels._pallas.tpu.prefill_page_attention import prefill_page_attention
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

tokens, page, width = 16, 8, 128
query, keys, values = jnp.zeros((tokens, 1, width)), jnp.zeros((1, 4, page, width)), jnp.ones((1, 4, page, width))
call = pl.pallas_call
got = {}
for mode in ("eager", "on_wait"):
    interpret = pltpu.InterpretParams(dma_execution_mode=mode)
    pl.pallas_call = lambda *args, how=interpret, **options: call(*args, interpret=how, **options)
    got[mode] = float(prefill_page_attention(query, keys, values, jnp.array([2 * tokens]), jnp.arange(4))[-1, 0, 0])
    jax.clear_caches()
print("JAX", jax.__version__, "gives", got, "where both should be 1")
raise SystemExit(int(not abs(got["on_wait"] - 1) < 1e-3))
