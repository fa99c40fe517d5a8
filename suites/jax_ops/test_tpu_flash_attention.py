"""Pairings of JAX's TPU flash attention, in one step over the keys and in several."""

import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, SegmentIds, flash_attention

import kerneltest as kt

MODERATE = (-4.0, 4.0)
HEADS = dict(b=kt.dim(values=(1,)), h=kt.dim(values=(1,)), d=kt.dim(values=(16,)))
CAUSAL = kt.static(True, False)
FIRST_BLOCK = "-inf less -inf is NaN where the first block of keys is masked"


def bug(verdict, reason, line, family="*", **more):
    url = "https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/tpu/flash_attention.py"
    return [kt.xfail(verdict, backend="interpret*", family=family, reason=reason, url=f"{url}#L{line}", **more)]


def blocks(q):
    return kt.static(short=BlockSizes(q, 128, 128, 1, q, 128, 128, q, 128, 128, q))


def array(axes, dtypes="float32"):
    return kt.array(axes, dtypes, domain=MODERATE)


def inputs(dtypes="float32"):
    return {name: array(f"b h {axis} d", dtypes) for name, axis in (("q", "sq"), ("k", "sk"), ("v", "sk"))}


def lengths(sq, sk):
    return HEADS | dict(sq=kt.dim(values=sq), sk=kt.dim(values=sk))


def attention(q, k, v, seen, bias=0):
    scores = np.where(seen, np.einsum("bhqd,bhkd->bhqk", q, k) + bias, -1e9)
    terms = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = terms / terms.sum(axis=-1, keepdims=True)
    return kt.defined(np.einsum("bhqk,bhkd->bhqd", weights, v), where=seen.any(axis=-1, keepdims=True))


def before(sq, sk):
    return np.arange(sk) <= np.arange(sq)[:, None]


@kt.oracle_for(
    flash_attention,
    **inputs(("float32", "bfloat16")),
    causal=CAUSAL,
    block_sizes=blocks(8),
    dims=lengths((16,), (256,)),
    grad=True,
)
def plain(q, k, v, causal):
    sq, sk = q.shape[2], k.shape[2]
    return attention(q, k, v, before(sq, sk) | (not causal))


@kt.oracle_for(
    flash_attention,
    **inputs(),
    causal=kt.static(True),
    block_sizes=blocks(1),
    dims=lengths((1,), (256,)),
    xfail=bug("mismatch", "a block that is on the diagonal with its corner alone is left out", 328),
)
def one_query(q, k, v):
    return attention(q, k, v, before(1, k.shape[2]))


@kt.oracle_for(
    flash_attention,
    **inputs(),
    ab=array("b h sq sk"),
    causal=kt.static(True),
    block_sizes=blocks(8),
    dims=lengths((12,), (256,)),
    xfail=bug("out_of_bounds", "after the last block of queries, a bias one block further on is fetched", 646),
)
def biased(q, k, v, ab):
    return attention(q, k, v, before(*ab.shape[2:]), ab)


def masked_by_bias(q, k, v, mask):
    return flash_attention(q, k, v, jnp.where(mask, 0, -jnp.inf), block_sizes=blocks(8).value("short"))


@kt.oracle_for(
    masked_by_bias,
    **inputs(),
    mask=kt.mask("b h sq sk"),
    dims=lengths((16,), (256,)) | dict(sk=kt.dim(block=128, values=(256,))),
    xfail=[
        *bug("special_mismatch", FIRST_BLOCK, 447, "[aw]*_tile*"),
        *bug("special_mismatch", FIRST_BLOCK, 447, "one_visible", strict=False),  # which key is seen is drawn
    ],
)
def infinite_bias(q, k, v, mask):
    return attention(q, k, v, mask)


@kt.oracle_for(
    flash_attention,
    **inputs(),
    segment_ids=kt.tree(SegmentIds(kt.indices("b sq", into="segments"), kt.indices("b sk", into="segments"))),
    causal=kt.static(True),
    block_sizes=blocks(8),
    dims=lengths((16,), (256,)) | dict(segments=kt.dim(values=(3,))),
)
def segments(q, k, v, segment_ids):
    same = segment_ids.q[:, None, :, None] == segment_ids.kv[:, None, None, :]
    return attention(q, k, v, same & before(*same.shape[2:]))
