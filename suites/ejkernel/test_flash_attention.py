"""Pairings of ejkernel's flash attention: plain, and from the compressed keys and values of latent attention."""

import numpy as np
import pytest

import kerneltest as kt

flash_attention = pytest.importorskip("ejkernel.kernels._pallas.tpu.flash_attention").flash_attention
flash_mla = pytest.importorskip("ejkernel.kernels._pallas.tpu.flash_mla").flash_mla

SIZES = dict(
    b=kt.dim(values=(1,)), s=kt.dim(values=(256,)), hk=kt.dim(values=(1,)), g=kt.dim(values=(2,)),
    d=kt.dim(values=(128,)),
)  # fmt: skip
REMOVED = [
    kt.xfail(
        "runtime_error",
        reason="it calls pltpu.repeat, which JAX 0.10.2 no longer has, though ejkernel asks for jax~=0.10.0",
        url="https://github.com/erfanzar/ejkernel/blob/main/ejkernel/kernels/_pallas/tpu/flash_attention",
    )
]


def small(axes):
    return kt.array(axes, "float32", domain=(-2, 2))


def attention(scores, value, causal):
    sq, sk = scores.shape[2:]
    scores = np.where((np.arange(sk) <= np.arange(sq)[:, None]) | (not causal), scores, -1e9)
    terms = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", terms / terms.sum(axis=-1, keepdims=True), value)


def repeated(array, query):
    return np.repeat(array, query.shape[2] // array.shape[2], axis=2)


@kt.oracle_for(
    flash_attention,
    query=small("b s hk*g d"),
    key=small("b s hk d"),
    value=small("b s hk d"),
    causal=kt.static(False, True),
    dims=SIZES,
)
def one_block(query, key, value, causal):
    scores = np.einsum("bqhd,bkhd->bhqk", query, repeated(key, query)) / np.sqrt(query.shape[-1])
    return attention(scores, repeated(value, query), causal)


@kt.oracle_for(
    flash_attention,
    query=small("b s hk*g d"),
    key=small("b s hk d"),
    value=small("b s hk d"),
    causal=kt.static(True),
    dims=SIZES | dict(s=kt.dim(values=(1024,))),
    xfail=REMOVED,
)
def several_blocks(query, key, value, causal):
    return one_block(query, key, value, causal)


@kt.oracle_for(
    flash_mla,
    query=small("b s hk*g d"),
    key_value=small("b s r"),
    w_kc=small("r hk d"),
    w_vc=small("r hk d"),
    b_q=small("b s rope"),
    b_k=small("b s rope"),
    causal=kt.static(False, True),
    dims=SIZES | dict(r=kt.dim(values=(128,)), rope=kt.dim(values=(128,))),
    xfail=REMOVED,
)
def latent(query, key_value, w_kc, w_vc, b_q, b_k, causal):
    key, value = (repeated(np.einsum("bsr,rhd->bshd", key_value, w), query) for w in (w_kc, w_vc))
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) + np.einsum("bqd,bkd->bqk", b_q, b_k)[:, None]
    return attention(scores / np.sqrt(query.shape[-1] + b_q.shape[-1]), value, causal)
