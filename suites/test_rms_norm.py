"""The pairing of RMS normalisation, forward and backward."""

import numpy as np

import kerneltest as kt
from kernels.rms_norm import EPSILON, rms_norm


@kt.oracle_for(
    rms_norm,
    x=kt.array("m n"),
    w=kt.array("n"),
    dims=dict(m=kt.dim(values=(3, 1, 5)), n=kt.dim(tile=64)),
    tolerance=kt.conditioned(sums="n"),
    independent=("m", "grid"),
    grad=True,
)
def normalised(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * w
