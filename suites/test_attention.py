"""Pairings of causal attention. The last query sees all keys; one that sees none yields zeros."""

import numpy as np

import kerneltest as kt
from kernels.attention import BLOCK_K, BLOCK_Q, causal_attention, causal_attention_online

REALS = (-np.inf, np.inf)  # but not the largest that a dtype has: scores of these overflow float32
DIMS = dict(b=kt.dim(values=(2, 1)), sq=kt.dim(block=BLOCK_Q), sk=kt.dim(block=BLOCK_K), d=kt.dim(values=(16, 20, 32)))
PRECISION = kt.static(None, "highest")


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    (sq, d), sk = q.shape[-2:], k.shape[-2]
    scores = np.einsum("...qd,...kd->...qk", q, k) / np.sqrt(d)
    seen = np.arange(sk) <= np.arange(sq)[:, None] + (sk - sq)
    scores = np.where(seen, scores, -np.inf)
    maximum = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(maximum == -np.inf, 0, maximum))
    total = e.sum(axis=-1, keepdims=True)
    return np.einsum("...qk,...kd->...qd", e / np.where(total == 0, 1, total), v)


@kt.oracle_for(
    causal_attention,
    q=kt.array("b sq d", domain=REALS),
    k=kt.array("b sk d", domain=REALS),
    v=kt.array("b sk d", domain=REALS),
    precision=PRECISION,
    dims=DIMS | {name: kt.dim(block=block, maximum=1024) for name, block in (("sq", BLOCK_Q), ("sk", BLOCK_K))},
    batch_dims="b",
    invariant_to="grid",
)
def one_block(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return attention(q, k, v)


@kt.oracle_for(
    causal_attention_online,
    q=kt.array("b h sq d", domain=REALS),
    k=kt.array("b h sk d", domain=REALS),
    v=kt.array("b h sk d", domain=REALS),
    precision=PRECISION,
    dims=DIMS | dict(b=kt.dim(values=(1, 2)), h=kt.dim(values=(2, 1))),
    batch_dims=("b", "h"),
    invariant_to="grid",
)
def online(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return attention(q, k, v)
