"""JAX's TPU matmul leaves out what no whole block holds, without a word (JAX 0.10.2 to 0.12.0.1).

Its grid has `shape // block` programs along each axis, and no check that blocks divide the shape. Rows and columns past
the last whole block are never written, and the end of `k` is not summed: with the default `block_k=256`, a product over
k=128 has no program at all. Shown without a TPU, by JAX's TPU interpreter, which fills what nobody wrote with NaN.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.matmul import matmul

with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(uninitialized_memory="nan")):
    rows = matmul(jnp.ones((12, 256)), jnp.ones((256, 128)), block_shape=(8, 128))
    terms = matmul(jnp.ones((8, 384)), jnp.ones((384, 128)), block_shape=(8, 128))
print("JAX", jax.__version__, "gives", rows[11, 0], "and", terms[0, 0], "where it should be 256.0 and 384.0")
raise SystemExit(int(rows[11, 0] != 256 or terms[0, 0] != 384))
