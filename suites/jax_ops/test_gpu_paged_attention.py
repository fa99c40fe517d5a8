"""Pairings of JAX's GPU paged attention: pages of floats, of integers with scales, and of large values."""

import numpy as np
from jax.experimental.pallas.ops.gpu.paged_attention import paged_attention

import kerneltest as kt

DIMS = dict(
    b=kt.dim(values=(2,)), h=kt.dim(values=(2,)), g=kt.dim(values=(3,)), d=kt.dim(values=(16,)),
    pages=kt.dim(values=(5,)), size=kt.dim(values=(8,)), p=kt.dim(values=(8,)),
)  # fmt: skip
OPTIONS = dict(
    block_tables=kt.indices("b p", into="pages"),
    lengths=kt.lengths("b", up_to="p*size"),
    pages_per_compute_block=kt.static(2),
    k_splits=kt.static(2),
    dims=DIMS,
    tolerance=kt.tolerance.rounding(compute="input"),
)


def arrays(q="float32", pages="float32", keys=(-4, 4), values=(-4, 4)):
    made = dict(q=kt.array("b h*g d", q, domain=keys), k_pages=kt.array("h pages size d", pages, domain=keys))
    return made | dict(v_pages=kt.array("h pages size d", pages, domain=values))


def paged(q, k_pages, v_pages, block_tables, lengths, cap=None):
    (b, _, d), h = q.shape, k_pages.shape[0]
    k, v = (np.moveaxis(each[:, block_tables], 1, 0).reshape(b, h, -1, d) for each in (k_pages, v_pages))
    scores = np.einsum("bhgd,bhtd->bhgt", q.reshape(b, h, -1, d), k)
    scores = scores if cap is None else np.tanh(scores / cap) * cap
    seen = np.arange(k.shape[2]) < lengths[:, None, None, None]
    terms = np.where(seen, np.exp(scores - np.where(seen, scores, -1e9).max(axis=-1, keepdims=True)), 0)
    total = terms.sum(axis=-1, keepdims=True)
    return np.einsum("bhgt,bhtd->bhgd", terms / np.where(total == 0, 1, total), v).reshape(q.shape)


@kt.oracle_for(
    paged_attention,
    **arrays(("float32", "bfloat16"), ("float32", "bfloat16")),
    attn_logits_soft_cap=kt.static(None, 2.0),
    **OPTIONS,
)
def floats(q, k_pages, v_pages, block_tables, lengths, attn_logits_soft_cap):
    return paged(q, k_pages, v_pages, block_tables, lengths, attn_logits_soft_cap)


@kt.oracle_for(
    paged_attention,
    **arrays("float32", "int8", values=(-100, 100)),
    k_scales_pages=kt.array("h pages size", "float32", domain=(0.1, 1)),
    v_scales_pages=kt.array("h pages size", "float32", domain=(0.1, 1)),
    **OPTIONS,
)
def integers(q, k_pages, v_pages, block_tables, lengths, k_scales_pages, v_scales_pages):
    scaled = k_pages * k_scales_pages[..., None], v_pages * v_scales_pages[..., None]
    return paged(q, *scaled, block_tables, lengths)


@kt.oracle_for(
    paged_attention,
    **arrays("float16", "float16", keys=(-0.5, 0.5), values=(30_000, 60_000)),
    **OPTIONS | dict(lengths=kt.static(None)),
    xfail=[
        kt.xfail(
            "special_mismatch",
            backend=backend,
            reason="sums of values that are not divided yet are kept in float16",
            url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/gpu/paged_attention.py#L250",
        )
        for backend in ("interpret", "simulate:*", "cuda")
    ],
)
def large_values(q, k_pages, v_pages, block_tables):
    return paged(q, k_pages, v_pages, block_tables, np.full(len(q), 64))
