"""Pairings of JAX's GPU attention: with its gradients, with segments, and with more queries than keys."""

import numpy as np
from jax.experimental.pallas.ops.gpu.attention import BlockSizes, mha

import kerneltest as kt

DIMS = dict(b=kt.dim(values=(1,)), h=kt.dim(values=(2,)), s=kt.dim(block=16, values=(32,)), d=kt.dim(values=(24,)))
OPTIONS = dict(sm_scale=kt.static(0.25), block_sizes=kt.static(of_16=BlockSizes(16, 16, 16, 16, 16, 16)))


def arrays(q, kv, dtypes):
    return {name: kt.array(axes, dtypes, domain=(-4, 4)) for name, axes in (("q", q), ("k", kv), ("v", kv))}


def attention(q, k, v, causal, same=True):
    seen = (np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None]) if causal else True
    scores = np.where(seen & same, np.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, -1e9)
    terms = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", terms / terms.sum(axis=-1, keepdims=True), v)


@kt.oracle_for(
    mha,
    **arrays("b s h d", "b s h d", ("float32", "bfloat16")),
    segment_ids=kt.static(None),
    causal=kt.static(False, True),
    **OPTIONS,
    dims=DIMS,
    grad=True,
)
def plain(q, k, v, causal):
    return attention(q, k, v, causal)


@kt.oracle_for(
    mha,
    **arrays("b s h d", "b s h d", "float32"),
    segment_ids=kt.segment_ids("b s"),
    causal=kt.static(True),
    **OPTIONS,
    dims=DIMS,
    grad=True,
)
def segments(q, k, v, segment_ids):
    return attention(q, k, v, True, (segment_ids[:, :, None] == segment_ids[:, None])[:, None])


@kt.oracle_for(
    mha,
    **arrays("b s h d", "b t h d", "float32"),
    segment_ids=kt.static(None),
    causal=kt.static(True),
    **OPTIONS,
    dims=DIMS | dict(t=kt.dim(block=16, values=(16,))),
    backends=("interpret", "lower:*", "compile:*", "simulate:*"),  # a GPU reads what lies there, now this and now that
    xfail=[
        kt.xfail(
            verdict,
            backend=backend,
            reason="queries past the last key go over keys that do not exist, which the causal mask does not hide",
            url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/gpu/attention.py#L172",
        )
        for verdict, backend in (("special_mismatch", "interpret"), ("out_of_bounds", "simulate:*"))
    ],
)
def more_queries_than_keys(q, k, v):
    return attention(q, k, v, True)
