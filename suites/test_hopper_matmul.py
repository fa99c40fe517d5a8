"""Pairing of the matrix product for Hopper GPUs."""

import numpy as np

import kerneltest as kt
from kernels.hopper_matmul import hopper_matmul
from kernels.pipeline_copy import BLOCK_M, BLOCK_N
from suites.pipeline_options import whole


@kt.oracle_for(
    hopper_matmul,
    a=kt.array("m k", ("float16", "bfloat16")),
    b=kt.array("k n", ("float16", "bfloat16")),
    stages=kt.static(2, 4),
    dims=dict(m=whole(BLOCK_M, 1, 2), n=whole(BLOCK_N, 1, 2), k=whole(BLOCK_N, 1, 3)),
)
def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b
