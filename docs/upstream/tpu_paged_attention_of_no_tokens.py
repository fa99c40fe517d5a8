"""TPU paged attention leaves the output of a sequence of length 0 as it was (JAX 0.10.2 to 0.12.0.1).

With `inline_seq_dim=False` all of the kernel, the zeros at its start as well, is under `pl.when(i * bk < length)`, so
nobody writes that sequence's block. With `inline_seq_dim=True` it is 0. Shown without a TPU, by JAX's TPU interpreter,
which fills what nobody wrote with NaN.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

q, pages = jnp.ones((2, 8, 128), jnp.bfloat16), jnp.ones((1, 1, 16, 128), jnp.bfloat16)
lengths, table = jnp.array([0, 16]), jnp.zeros((2, 1), jnp.int32)
with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(uninitialized_memory="nan")):
    inline, other = (
        paged_attention(q, pages, pages, lengths, table, pages_per_compute_block=1, inline_seq_dim=inline)
        for inline in (True, False)
    )
print("JAX", jax.__version__, "gives", inline[0, 0, 0], "if inline_seq_dim, and else", other[0, 0, 0])
raise SystemExit(int(not (inline == other).all()))
