"""Pairings of JAX's TPU paged attention: its length says how much of a sequence's pages counts."""

import jax
import numpy as np
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

import kerneltest as kt

TPU = "https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/tpu"
SOURCE = f"{TPU}/paged_attention/paged_attention_kernel.py"
DIMS = dict(
    b=kt.dim(values=(2,)), hq=kt.dim(values=(16, 2)), hk=kt.dim(values=(2,)), d=kt.dim(values=(128,)),
    pages=kt.dim(values=(5,)), t=kt.dim(values=(16,)), p=kt.dim(values=(4,)), capacity=kt.dim(values=(64,)),
)  # fmt: skip


def arrays(dtypes, domain=(-4.0, 4.0)):
    named = dict(q="b hq d", k_pages="hk pages t d", v_pages="hk pages t d")
    return {name: kt.array(axes, dtypes, domain=domain) for name, axes in named.items()}


INDICES = dict(lengths=kt.lengths("b", up_to="capacity"), page_indices=kt.indices("b p", into="pages"))

STEPS = "the output is rounded to its dtype after each step over the pages, and scaled again in the next"

GROUPS = ("structural", "numeric", "invariants")

# Under vmap, the output starts as an array of `jax.lax.empty`, which was zeros before JAX 0.11.
_UNDER_VMAP = [("uninitialised", "interpret-tpu", "vmapped")] if jax.__version_info__ >= (0, 11) else []


_QUERIES_ALONE = kt.xfail(
    "hang",
    backend="interpret-tpu",
    family="vmapped_first",
    reason="a batch of queries alone adds an axis to the grid, which the copies for the next step leave out",
    url=f"{SOURCE}#L102",
    strict=False,
)


def random_pages(rng, hk, pages, t, d):
    return rng.uniform(0.1, 0.3, (hk, pages, t, d))


def paged(q, k_pages, v_pages, lengths, page_indices, soft_cap=None):
    (b, hq, d), hk = q.shape, k_pages.shape[0]
    k, v = (np.moveaxis(each[:, page_indices], 1, 0).reshape(b, hk, -1, d) for each in (k_pages, v_pages))
    scores = np.einsum("bhgd,bhtd->bhgt", q.reshape(b, hk, hq // hk, d), k)
    if soft_cap is not None:
        scores = np.tanh(scores / soft_cap) * soft_cap
    seen = np.arange(k.shape[2]) < lengths[:, None, None, None]
    terms = np.where(seen, np.exp(scores - np.where(seen, scores, -1e9).max(axis=-1, keepdims=True)), 0)
    total = terms.sum(axis=-1, keepdims=True)
    return np.einsum("bhgt,bhtd->bhgd", terms / np.where(total == 0, 1, total), v).reshape(b, hq, d)


@kt.oracle_for(
    paged_attention,
    **arrays("bfloat16"),
    **INDICES,
    pages_per_compute_block=kt.static(2),
    attn_logits_soft_cap=kt.static(None, 2.0),
    dims=DIMS,
    xfail=[
        kt.xfail(
            "special_mismatch",
            backend="interpret*",
            family="unread_values",
            reason="a NaN past the length spreads: scores are masked by a sum",
            url=f"{SOURCE}#L269",
            strict=False,
        ),
        _QUERIES_ALONE,
    ],
)
def bfloat16(q, k_pages, v_pages, lengths, page_indices, attn_logits_soft_cap):
    return paged(q, k_pages, v_pages, lengths, page_indices, attn_logits_soft_cap)


@kt.oracle_for(
    paged_attention,
    q=kt.derived("b hq d", lambda rng, b, hq, d: rng.uniform(0.1, 0.3, (b, hq, d)), dtypes="bfloat16"),
    k_pages=kt.derived("hk pages t d", random_pages, dtypes="bfloat16"),
    v_pages=kt.derived("hk pages t d", random_pages, dtypes="bfloat16"),
    **INDICES,
    pages_per_compute_block=kt.static(1),
    dims=DIMS | dict(hq=kt.dim(values=(16,)), p=kt.dim(values=(8,)), capacity=kt.dim(values=(128,))),
    xfail=[
        _QUERIES_ALONE,
        *(
            kt.xfail("mismatch", backend="interpret*", group=group, reason=STEPS, url=f"{SOURCE}#L285")
            for group in ("structural", "invariants")
        ),
    ],
)
def many_steps(q, k_pages, v_pages, lengths, page_indices):
    return paged(q, k_pages, v_pages, lengths, page_indices)


@kt.oracle_for(
    paged_attention,
    **arrays("float32", domain=(0.1, 0.3)),
    **INDICES,
    pages_per_compute_block=kt.static(2),
    dims=DIMS | dict(hq=kt.dim(values=(8,)), hk=kt.dim(values=(1,))),
    xfail=[
        _QUERIES_ALONE,
        kt.xfail(
            "mismatch",
            backend="interpret*",
            group="*",
            reason="pages of float32 are rounded to bfloat16",
            url=f"{SOURCE}#L96",
        ),
    ],
)
def float32(q, k_pages, v_pages, lengths, page_indices):
    return paged(q, k_pages, v_pages, lengths, page_indices)


@kt.oracle_for(
    paged_attention,
    **arrays("bfloat16"),
    **INDICES,
    pages_per_compute_block=kt.static(2),
    inline_seq_dim=kt.static(False),
    dims=DIMS | dict(hq=kt.dim(values=(8,)), hk=kt.dim(values=(1,))),
    xfail=[
        _QUERIES_ALONE,
        *(
            kt.xfail(
                verdict,
                backend=backend,
                group=group,
                family=family,
                reason="the kernel does not write the output of a sequence without tokens",
                url=f"{SOURCE}#L227",
                strict=family == "*"
                and group != "invariants",  # these have few cases: a seed may draw no empty sequence
            )
            for verdict, backend, group, family in (
                *((verdict, backend, "*", family) for verdict, backend, family in _UNDER_VMAP),
                *(("special_mismatch", "interpret", group, "*") for group in GROUPS),
                *(("unwritten", "interpret-tpu", group, "*") for group in GROUPS),
                *(
                    ("mismatch", "interpret-tpu", group, "*") for group in GROUPS
                ),  # it keeps that of the sequence before
            )
        ),
    ],
)
def a_program_for_each_step(q, k_pages, v_pages, lengths, page_indices):
    return paged(q, k_pages, v_pages, lengths, page_indices)
