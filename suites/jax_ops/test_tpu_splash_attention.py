"""Pairings of JAX's TPU splash attention: masks that leave out whole blocks, parts of them, and nothing."""

import jax
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

import kerneltest as kt

FLOATS = ("float32", "bfloat16")
AXES = dict(q="h sq d", k="h sk d", v="h sk d", sinks="h")
SHAPE = (16, 256)
MASKS = dict(
    causal=masks.CausalMask(SHAPE, offset=120),
    local=masks.LocalMask(SHAPE, window_size=(100, 20), offset=130),
    full=masks.FullMask(SHAPE),
    array=masks.NumpyMask(np.arange(256) % 16 <= np.arange(16)[:, None]),
)
RACE = [
    kt.xfail(
        "race",
        backend="interpret-tpu",
        signature="h=2,*",
        family="[!v]*",  # under vmap, heads are in order
        reason="heads are parallel, and the cores share accumulators that are outputs; they are scratch since JAX 0.12",
        url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/tpu/splash_attention/"
        "splash_attention_kernel.py#L1105",
    )
]
BLOCKS = splash.BlockSizes(8, 128, 128, 16, 128, 128, 16, 128)


def attention(q, k, v, sinks, mask, soft_cap):
    every = masks.MultiHeadMask([mask] * q.shape[0])
    return splash.make_splash_mha_single_device(every, block_sizes=BLOCKS, attn_logits_soft_cap=soft_cap)(
        q, k, v, None, sinks
    )


@kt.oracle_for(
    attention,
    **{name: kt.array(axes, FLOATS, domain=(-2, 2)) for name, axes in AXES.items()},
    mask=kt.static(**MASKS),
    soft_cap=kt.static(None, 2.0),
    dims=dict(h=kt.dim(values=(2, 1)), sq=kt.dim(values=(16,)), sk=kt.dim(values=(256,)), d=kt.dim(values=(16,))),
    grad=True,
    xfail=RACE if jax.__version_info__ < (0, 12) else [],
)
def masked(q, k, v, sinks, mask, soft_cap):
    scores = np.einsum("hqd,hkd->hqk", q, k)
    if soft_cap is not None:
        scores = np.tanh(scores / soft_cap) * soft_cap
    terms = np.where(MASKS[mask][:, :], np.exp(scores), 0)
    return np.einsum("hqk,hkd->hqd", terms / (terms.sum(axis=-1) + np.exp(sinks)[:, None])[..., None], v)
