"""The pairing of layer normalisation, forward and backward."""

import numpy as np

import kerneltest as kt
from kernels.layer_norm import BLOCK, EPSILON, layer_norm

REALS = (-np.inf, np.inf)  # but not the largest and the smallest that a dtype has: a square of these is lost


@kt.oracle_for(
    layer_norm,
    x=kt.array("m n", domain=REALS),
    weight=kt.array("n"),
    bias=kt.array("n"),
    dims=dict(m=kt.dim(values=(3, 1, 5)), n=kt.dim(block=BLOCK)),
    batch_dims="m",
    invariant_to="grid",
    grad=True,
)
def normalised(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * weight + bias
