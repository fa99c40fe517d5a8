"""The pairing of the TPU's iota by tiles; that in scalar memory is in `test_iota.py`."""

import numpy as np

import kerneltest as kt
from kernels.tpu_iota import BLOCK, tpu_iota


@kt.oracle_for(
    tpu_iota, n=kt.dim_size("n"), dims=dict(n=kt.dim(block=BLOCK, minimum=0)), tolerance=kt.tolerance.exact()
)
def iota(n: int) -> np.ndarray:
    return np.arange(n)
