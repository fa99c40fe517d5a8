"""Pairings of ejkernel's attention over pages of keys and values: one query a sequence, and a chunk of queries."""

import numpy as np
import pytest

import kerneltest as kt

page_attention = pytest.importorskip("ejkernel.kernels._pallas.tpu.page_attention").page_attention
prefill = pytest.importorskip("ejkernel.kernels._pallas.tpu.prefill_page_attention").prefill_page_attention

PAGES = {name: kt.array("hk pages t d", "float32", domain=(-4, 4)) for name in ("key_cache", "value_cache")}
DIMS = dict(
    hq=kt.dim(values=(16,)), hk=kt.dim(values=(2,)), d=kt.dim(values=(128,)), pages=kt.dim(values=(5,)),
    t=kt.dim(values=(16,)), p=kt.dim(values=(4,)),
)  # fmt: skip


def attention(query, keys, values, seen, soft_cap):
    """Grouped attention of queries (queries, hq, d) to keys and values (hk, keys, d)."""
    (n, hq, d), hk = query.shape, len(keys)
    scores = np.einsum("nhgd,htd->nhgt", query.reshape(n, hk, hq // hk, d), keys) / np.sqrt(d)
    if soft_cap is not None:
        scores = soft_cap * np.tanh(scores / soft_cap)
    seen = seen[:, None, None]
    terms = np.where(seen, np.exp(scores - np.where(seen, scores, -1e9).max(axis=-1, keepdims=True)), 0)
    total = terms.sum(axis=-1, keepdims=True)
    return np.einsum("nhgt,htd->nhgd", terms / np.where(total == 0, 1, total), values).reshape(n, hq, d)


@kt.oracle_for(
    page_attention,
    query=kt.array("b hq d", "float32", domain=(-4, 4)),
    **PAGES,
    context_lens=kt.lengths("b", up_to="p*t"),
    block_tables=kt.indices("b p", into="pages"),
    pages_per_compute_block=kt.static(2),
    attn_logits_soft_cap=kt.static(None, 2.0),
    sliding_window=kt.static(None, 7),
    dims=DIMS | dict(b=kt.dim(values=(2,))),
    xfail=[
        kt.xfail(
            "special_mismatch",
            backend="interpret",
            group="invariants",
            reason="NaN in keys and values that no query sees reaches the result",
            url="https://github.com/erfanzar/ejkernel/blob/main/ejkernel/kernels/_pallas/tpu/page_attention",
            strict=False,  # a budget may end before this is asked
        )
    ],
)
def decode(query, key_cache, value_cache, context_lens, block_tables, attn_logits_soft_cap, sliding_window):
    rows = []
    for row, length, table in zip(query, context_lens, block_tables, strict=True):
        keys, values = (cache[:, table].reshape(len(cache), -1, cache.shape[-1]) for cache in (key_cache, value_cache))
        at = np.arange(keys.shape[1])[None]
        seen = (at < length) & (at >= length - (sliding_window or np.inf))
        rows.append(attention(row[None], keys, values, seen, attn_logits_soft_cap)[0])
    return kt.defined(np.stack(rows), where=(context_lens > 0)[:, None, None])


def bug(verdict, backend, reason):
    url = "https://github.com/erfanzar/ejkernel/blob/main/ejkernel/kernels/_pallas/tpu/prefill_page_attention"
    return kt.xfail(verdict, backend=backend, group="*", reason=reason, url=url)


def chunk(**options):
    """The declaration of a chunk of queries, of which a sequence ends with the last."""
    return (
        dict(
            query=kt.array("n hq d", "float32", domain=(-4, 4)),
            **PAGES,
            context_len=kt.derived("1", lambda rng, n, p, t: rng.integers(n, p * t + 1, 1), dtypes="int32"),
            page_indices=kt.indices("p", into="pages"),
        )
        | options
    )


RACE = bug("race", "interpret-tpu", "all copies share a semaphore: those of the next block can end a wait for this one")
CHUNK = DIMS | dict(n=kt.dim(values=(32,)), hq=kt.dim(values=(2,)), hk=kt.dim(values=(1,)))


@kt.oracle_for(prefill, **chunk(sliding_window=kt.static(None, 7)), dims=CHUNK, xfail=[RACE])
def one_head(query, key_cache, value_cache, context_len, page_indices, sliding_window=None, soft_cap=None):
    caches = key_cache, value_cache
    keys, values = (cache[:, page_indices].reshape(len(cache), -1, cache.shape[-1]) for cache in caches)
    position, at = context_len - len(query) + np.arange(len(query))[:, None], np.arange(keys.shape[1])
    seen = (at <= position) & (at > position - (sliding_window or np.inf))
    return attention(query, keys, values, seen, soft_cap)


@kt.oracle_for(
    prefill,
    **chunk(),
    dims=CHUNK | dict(hk=kt.dim(values=(2,))),
    xfail=[
        bug(verdict, backend, "only the first head's first keys are copied")
        for verdict, backend in (("mismatch", "interpret"), ("hang", "interpret-tpu"))
    ],
)
def several_heads(query, key_cache, value_cache, context_len, page_indices):
    return one_head(query, key_cache, value_cache, context_len, page_indices)


@kt.oracle_for(
    prefill,
    **chunk(attn_logits_soft_cap=kt.static(2.0)),
    dims=CHUNK,
    xfail=[bug("mismatch", "interpret", "masked scores are capped too, so that they count"), RACE],
)
def capped(query, key_cache, value_cache, context_len, page_indices, attn_logits_soft_cap):
    return one_head(query, key_cache, value_cache, context_len, page_indices, soft_cap=attn_logits_soft_cap)
