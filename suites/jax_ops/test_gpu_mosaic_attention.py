"""Pairings of JAX's attention for Hopper GPUs, in Mosaic GPU: warp-specialized by hand, and by a pipeline emitter."""

import numpy as np
from jax.experimental.pallas.ops.gpu.attention_mgpu import TuningConfig, attention, attention_with_pipeline_emitter

import kerneltest as kt

FLOATS = ("float16", "bfloat16")
ARRAYS = {
    name: kt.array(axes, FLOATS, domain=(-1, 1))
    for name, axes in (("q", "b s h*g d"), ("k", "b t h d"), ("v", "b t h d"))
}
DIMS = dict(
    b=kt.dim(values=(1,)), h=kt.dim(values=(1,)), g=kt.dim(values=(2,)), d=kt.dim(values=(64,)),
    s=kt.dim(values=(128,)), t=kt.dim(values=(64, 192)),
)  # fmt: skip
CONFIGS = dict(plain=TuningConfig(64, 64, 2), causal=TuningConfig(64, 64, 2, causal=True))
BACKWARD = TuningConfig(64, 64, 2, block_q_dkv=64, block_kv_dkv=64, block_q_dq=64, block_kv_dq=64)


def in_float16(line, *backends):
    url = f"https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/gpu/attention_mgpu.py#L{line}"
    reason = "memory is float16 whatever the arguments' dtype, so that bfloat16, which is let in, does not trace"
    return [
        kt.xfail("runtime_error", backend=backend, dtype="bfloat16", reason=reason, url=url)
        for backend in backends or ("cuda",)
    ]


def attended(q, k, v, causal=False):
    (b, s, _, d), (_, t, h, _) = q.shape, k.shape
    seen = np.arange(t) <= np.arange(s)[:, None]
    scores = np.where(seen | (not causal), np.einsum("bshgd,bthd->bhgst", q.reshape(b, s, h, -1, d), k), -1e9)
    terms = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("bhgst,bthd->bshgd", terms / terms.sum(axis=-1, keepdims=True), v).reshape(q.shape)


@kt.oracle_for(attention, **ARRAYS, config=kt.static(**CONFIGS), dims=DIMS, backends=("cuda",), xfail=in_float16(292))
def forward(q, k, v, config):
    return attended(q, k, v, config == "causal")


@kt.oracle_for(
    attention,
    **ARRAYS,
    config=kt.static(backward=BACKWARD),
    dims=DIMS | dict(t=kt.dim(values=(128,))),
    grad=True,
    backends=("cuda",),
    xfail=in_float16(292),
)
def backward(q, k, v):
    return attended(q, k, v)


@kt.oracle_for(
    attention_with_pipeline_emitter,
    **ARRAYS,
    config=kt.static(plain=CONFIGS["plain"]),
    dims=DIMS,
    backends=("lower:sm_90", "simulate:sm_90", "cuda"),
    xfail=in_float16(786, "lower:sm_90", "simulate:sm_90", "cuda"),
)
def by_pipeline_emitter(q, k, v):
    return attended(q, k, v)
