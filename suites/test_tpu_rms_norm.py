"""The pairing of the TPU's RMS normalisation."""

import numpy as np

import kerneltest as kt
from kernels.tpu_rms_norm import BLOCK_N, EPSILON, tpu_rms_norm

FLOATS = ("float32", "bfloat16")  # a TPU has no float16
REALS = (-np.inf, np.inf)  # but not the largest and the smallest that a dtype has: a square of these is lost


@kt.oracle_for(
    tpu_rms_norm,
    x=kt.array("m n", FLOATS, domain=REALS),
    w=kt.array("n", FLOATS, domain=REALS),
    dims=dict(m=kt.dim(values=(3, 1, 17)), n=kt.dim(block=BLOCK_N, values=(BLOCK_N + 1, 1, BLOCK_N, 3 * BLOCK_N - 1))),
    batch_dims="m",
)
def normalised(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * w
