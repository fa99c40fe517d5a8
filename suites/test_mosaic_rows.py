"""Pairings of softmax and RMS norm in Mosaic GPU."""

import numpy as np

import kerneltest as kt
from kernels.mosaic_rows import ROW, mosaic_rms_norm, mosaic_softmax
from suites.pipeline_options import whole

FLOATS = ("float32", "bfloat16")
DIMS = dict(m=kt.dim(values=(1, 3)), n=whole(ROW, 1, 2, 5))


@kt.oracle_for(mosaic_softmax, x=kt.array("m n", FLOATS), dims=DIMS)
def softmax(x: np.ndarray) -> np.ndarray:
    terms = np.exp(x - x.max(axis=-1, keepdims=True))
    return terms / terms.sum(axis=-1, keepdims=True)


@kt.oracle_for(mosaic_rms_norm, x=kt.array("m n", FLOATS), dims=DIMS)
def rms_norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
