"""Pairings of the softmax kernels. -inf masks an element, and a row with nothing valid yields zeros."""

import numpy as np

import kerneltest as kt
from kernels.softmax import BLOCK, softmax_fused, softmax_tiled, softmax_tiled_by_comparison

DIMS = dict(m=kt.dim(values=(3, 1, 5)), n=kt.dim(block=BLOCK))
MASKED = "zeros"


def softmax(x: np.ndarray) -> np.ndarray:
    maximum = x.max(axis=-1, keepdims=True)
    e = np.exp(x - np.where(maximum == -np.inf, 0, maximum))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


@kt.oracle_for(
    softmax_fused,
    x=kt.array("m n"),
    dims=DIMS,
    all_masked=MASKED,
    batch_dims="m",  # each row by itself, bit for bit
    invariant_to="grid",
)
def fused(x: np.ndarray) -> np.ndarray:
    return softmax(x)


@kt.oracle_for(softmax_tiled, x=kt.array("m n"), block=kt.static(BLOCK, 16), dims=DIMS, all_masked=MASKED)
def tiled(x: np.ndarray) -> np.ndarray:
    return softmax(x)


@kt.oracle_for(softmax_tiled_by_comparison, x=kt.array("m n"), dims=DIMS, all_masked=MASKED)
def tiled_by_comparison(x: np.ndarray) -> np.ndarray:
    return softmax(x)
