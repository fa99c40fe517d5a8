"""Pairings of the TPU's matrix product under vmap: of two batches, and with either operand shared by the batch."""

import numpy as np

import kerneltest as kt
from kernels.tpu_batched_matmul import tpu_batched_matmul
from kernels.tpu_matmul import BLOCK_K, BLOCK_M, BLOCK_N

FLOATS = ("float32", "bfloat16")  # a TPU has no float16
# The tiles themselves are tried in `test_tpu_matmul.py`, so there are few of them here.
SHARED = dict(
    b=kt.dim(values=(2,)),
    m=kt.dim(block=BLOCK_M, values=(3,)),
    n=kt.dim(block=BLOCK_N, values=(BLOCK_N + 1,)),
    k=kt.dim(block=BLOCK_K, values=(3,)),
)


@kt.oracle_for(
    tpu_batched_matmul,
    x=kt.array("b m k", FLOATS),
    y=kt.array("b k n", FLOATS),
    dims=dict(
        b=kt.dim(values=(2, 1)),
        m=kt.dim(block=BLOCK_M, values=(BLOCK_M + 1,)),
        n=kt.dim(block=BLOCK_N, values=(2,)),
        k=kt.dim(block=BLOCK_K, values=(BLOCK_K + 1, 1)),
    ),
    batch_dims="b",
)
def both(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    tpu_batched_matmul,
    x=kt.array("b m k", FLOATS),
    y=kt.array("k n", FLOATS),
    dims=SHARED,
)
def left_only(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    tpu_batched_matmul,
    x=kt.array("m k", FLOATS),
    y=kt.array("b k n", FLOATS),
    dims=SHARED,
)
def right_only(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y
