"""Pairing of attention for Hopper GPUs."""

import numpy as np

import kerneltest as kt
from kernels.hopper_attention import BLOCK, hopper_attention
from suites.pipeline_options import whole

FLOATS = ("float16", "bfloat16")


@kt.oracle_for(
    hopper_attention,
    q=kt.array("m d", FLOATS, domain=(-8, 8)),
    k=kt.array("n d", FLOATS, domain=(-8, 8)),
    v=kt.array("n d", FLOATS, domain=(-8, 8)),
    dims=dict(m=whole(BLOCK, 1, 2), n=whole(BLOCK, 1, 3), d=kt.dim(values=(64,))),
    backends=("lower:sm_90", "compile:xla-sm_90", "simulate:sm_90", "cuda"),  # JAX interprets no wgmma in a region
)
def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q @ k.T / 8
    terms = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return terms / terms.sum(axis=-1, keepdims=True) @ v
