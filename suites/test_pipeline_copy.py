"""Pairing of the pipelined copy: whole blocks, every dtype that the copy engine moves."""

import numpy as np

import kerneltest as kt
from kernels.pipeline_copy import BLOCK_M, BLOCK_N, pipeline_copy


@kt.oracle_for(
    pipeline_copy,
    x=kt.array("m n", kt.FLOATS + kt.INTEGERS),
    max_concurrent_steps=kt.choice(2, 1, 3, 4),
    dims=dict(m=kt.dim(tile=BLOCK_M, multiple_of=BLOCK_M), n=kt.dim(tile=BLOCK_N, multiple_of=BLOCK_N)),
    tolerance=kt.exact(),
    signed_zeros=True,
)
def copy(x: np.ndarray) -> np.ndarray:
    return x
