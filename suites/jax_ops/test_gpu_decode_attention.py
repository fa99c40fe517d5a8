"""Pairings of JAX's GPU attention of one query a sequence, its keys split among programs."""

import numpy as np
from jax.experimental.pallas.ops.gpu.decode_attention import gqa, mqa

import kerneltest as kt

MODERATE = (-4.0, 4.0)
FLOATS = ("float32", "float16", "bfloat16")
DIMS = dict(b=kt.dim(values=(2,)), h=kt.dim(values=(4, 16)), t=kt.dim(block=16, values=(64,)), d=kt.dim(values=(16,)))
SPLITS = dict(k_splits=kt.static(2), block_k=kt.static(16))


def arrays(kv, dtypes=FLOATS, values=MODERATE):
    domains = dict(k=MODERATE, v=values)
    return dict(q=kt.array("b h d", dtypes, domain=MODERATE)) | {
        name: kt.array(kv, dtypes, domain=domain) for name, domain in domains.items()
    }


def attention(q, k, v, seen):
    scores = np.where(seen, np.einsum("bhgd,bthd->bhgt", q, k) / np.sqrt(q.shape[-1]), -1e9)
    terms = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = terms / terms.sum(axis=-1, keepdims=True)
    return kt.defined(np.einsum("bhgt,bthd->bhgd", weights, v), where=seen.any(axis=-1, keepdims=True))
