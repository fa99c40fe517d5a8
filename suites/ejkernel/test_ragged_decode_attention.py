"""Pairings of ejkernel's attention of one query a sequence, where each sequence has a range of the keys."""

import numpy as np
import pytest

import kerneltest as kt

on_gpu = pytest.importorskip("ejkernel.kernels._pallas.gpu.ragged_decode_attention")
on_tpu = pytest.importorskip("ejkernel.kernels._pallas.tpu.ragged_decode_attention")
params = pytest.importorskip("ejkernel.ops").FwdParams


def arrays(dtypes):
    named = dict(query="b hk*g d", key="b s hk d", value="b s hk d")
    return {name: kt.array(axes, dtypes, domain=(-4, 4)) for name, axes in named.items()}


RANGE = dict(sequence_start=kt.lengths("b", up_to="s"), sequence_end=kt.lengths("b", up_to="s"))
DIMS = dict(b=kt.dim(values=(2,)), hk=kt.dim(values=(2, 1)), g=kt.dim(values=(8,)), d=kt.dim(values=(128,)))


def attention(query, key, value, sequence_start, sequence_end, soft_cap=None):
    (b, hq, d), (_, s, hk, _) = query.shape, key.shape
    scores = np.einsum("bhgd,bshd->bhgs", query.reshape(b, hk, hq // hk, d), key) / np.sqrt(d)
    if soft_cap is not None:
        scores = soft_cap * np.tanh(scores / soft_cap)
    inside = (sequence_start[:, None] <= np.arange(s)) & (np.arange(s) < sequence_end[:, None])
    seen = inside[:, None, None]
    terms = np.where(seen, np.exp(scores - np.where(seen, scores, -1e9).max(axis=-1, keepdims=True)), 0)
    total = terms.sum(axis=-1, keepdims=True)
    weights = terms / np.where(total == 0, 1, total)
    out = np.einsum("bhgs,bshd->bhgd", weights, value).reshape(b, hq, d)
    return kt.defined(out, where=inside.any(axis=-1)[:, None, None])


@kt.oracle_for(
    on_gpu.ragged_decode_attention,
    **arrays(("float32", "bfloat16", "float16")),
    **RANGE,
    fwd_params=kt.static(
        whole=params(blocksize_heads=16, kv_blocksize=16, num_key_splits=1, num_warps=4, num_stages=1),
        split=params(blocksize_heads=16, kv_blocksize=16, num_key_splits=2, num_warps=4, num_stages=1),
    ),
    dims=DIMS | dict(d=kt.dim(values=(16,)), s=kt.dim(multiple_of=32, values=(64, 128))),
    tolerance=kt.tolerance.rounding(compute="input"),
)
def gpu(query, key, value, sequence_start, sequence_end):
    return attention(query, key, value, sequence_start, sequence_end)


@kt.oracle_for(
    on_tpu.ragged_decode_attention,
    **arrays(("float32", "bfloat16")),
    **RANGE,
    fwd_params=kt.static(of_128=params(kv_blocksize=128)),
    dims=DIMS | dict(s=kt.dim(block=128, values=(128, 200, 384))),
)
def tpu(query, key, value, sequence_start, sequence_end):
    return attention(query, key, value, sequence_start, sequence_end)


@kt.oracle_for(
    on_tpu.ragged_decode_attention,
    **arrays("float32"),
    **RANGE,
    logits_soft_cap=kt.static(2.0),
    dims=DIMS | dict(hk=kt.dim(values=(1,)), s=kt.dim(values=(128,))),
    xfail=[
        kt.xfail(
            "mismatch", backend="interpret*", group="*", reason="logits_soft_cap is documented, and ignored",
            url="https://github.com/erfanzar/ejkernel/blob/main/ejkernel/kernels/_pallas/tpu/ragged_decode_attention",
        )
    ],
)  # fmt: skip
def soft_cap(query, key, value, sequence_start, sequence_end, logits_soft_cap):
    return attention(query, key, value, sequence_start, sequence_end, logits_soft_cap)
