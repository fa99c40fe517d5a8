"""The pairing of RMS normalisation, forward and backward."""

import numpy as np

import kerneltest as kt
from kernels.rms_norm import EPSILON, rms_norm

REALS = (-np.inf, np.inf)  # but not the largest and the smallest that a dtype has: a square of these is lost


@kt.oracle_for(
    rms_norm,
    x=kt.array("m n", domain=REALS),
    w=kt.array("n", domain=REALS),
    dims=dict(m=kt.dim(values=(3, 1, 5)), n=kt.dim(block=64)),
    batch_dims="m",
    invariant_to="grid",
    grad=True,
)
def normalised(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * w
