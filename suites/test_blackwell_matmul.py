"""Pairing of the matrix product for Blackwell GPUs."""

import numpy as np

import kerneltest as kt
from kernels.blackwell_matmul import STEP, TILE, blackwell_matmul
from suites.pipeline_options import whole


@kt.oracle_for(
    blackwell_matmul,
    a=kt.array("m k", ("float16", "bfloat16")),
    b=kt.array("k n", ("float16", "bfloat16")),
    blocks=kt.static(1, 2),
    dims=dict(m=whole(2 * TILE, 1, 2), n=whole(2 * TILE, 1), k=whole(STEP, 1, 3)),
    backends=("lower:sm_100", "compile:xla-sm_100", "simulate:sm_100"),  # no GPU of this generation has run it
)
def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b
