"""Pairings of SwiGLU: with its two products, and the gate alone."""

import numpy as np

import kerneltest as kt
from kernels.swiglu import BLOCK, BLOCK_K, BLOCK_M, BLOCK_N, swiglu, swiglu_gate

REALS = (-np.inf, np.inf)  # but not the largest that a dtype has: products of these overflow float32


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@kt.oracle_for(
    swiglu,
    x=kt.array("m k", domain=REALS),
    w1=kt.array("k n", domain=REALS),
    w2=kt.array("k n", domain=REALS),
    precision=kt.static(None, "highest"),
    dims=dict(m=kt.dim(block=BLOCK_M), n=kt.dim(block=BLOCK_N), k=kt.dim(block=BLOCK_K)),
    invariant_to="grid",
)
def fused(x: np.ndarray, w1: np.ndarray, w2: np.ndarray) -> np.ndarray:
    return silu(x @ w1) * (x @ w2)


@kt.oracle_for(
    swiglu_gate,
    a=kt.array("n"),
    b=kt.array("n"),
    block=kt.static(BLOCK, 32),
    dims=dict(n=kt.dim(block=BLOCK)),
    invariant_to=("block", "grid"),
)
def gate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return silu(a) * b
