"""Decode attention for GPUs gives float32 for bfloat16, and it is off by more than bfloat16 (JAX 0.10.2 to 0.12.0.1).

The last step of `mqa` and `gqa` divides by `l.astype(o.dtype) + eps`. `eps` is a NumPy float32 number, so the result is
float32 and not of the queries' dtype, as that of `mqa_reference` is. The total of all weights has been rounded to the
queries' dtype by then, as the sums of values have. Shown without a GPU: the average of values that are all 1 is not 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.gpu.decode_attention import mqa, mqa_reference

q, k = (jnp.asarray(np.random.default_rng(0).normal(size=(1, n, 16)), jnp.bfloat16) for n in (16, 128))
out = mqa(q, k, jnp.ones_like(k), k_splits=4, interpret=True)
error, of_reference = (abs(o.astype("float32") - 1).max() for o in (out, mqa_reference(q, k, jnp.ones_like(k))))
print(
    "JAX", jax.__version__, "gives", out.dtype, "of", q.dtype, "off by", error, "and by", of_reference, "in JAX itself"
)
raise SystemExit(int(out.dtype != q.dtype or error > 2**-8))
