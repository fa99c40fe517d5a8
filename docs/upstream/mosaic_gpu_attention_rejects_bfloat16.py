"""Attention for Hopper GPUs lets bfloat16 in and then fails at it (JAX 0.10.2 to 0.12.0.1).

`jax.experimental.pallas.ops.gpu.attention_mgpu` says "Only f16 and bf16 are supported". But `attention` keeps queries,
keys and values in float16 memory, and `attention_with_pipeline_emitter` queries and results, so that one of the two
products mixes dtypes. Shown for the latter without a GPU, by tracing.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.attention_mgpu import TuningConfig, attention_with_pipeline_emitter

wrong = False
for dtype in jnp.float16, jnp.bfloat16:
    q = jax.ShapeDtypeStruct((1, 128, 1, 64), dtype)
    try:
        attention_with_pipeline_emitter.trace(q, q, q, TuningConfig(64, 64, 2))
    except ValueError as error:
        print("JAX", jax.__version__, "raises for", dtype.__name__, str(error).splitlines()[0])
        wrong = True
raise SystemExit(int(wrong))
