"""Pairings of the TPU's matrix product under vmap, and with either operand shared by the batch."""

import numpy as np

import kerneltest as kt
from kernels.tpu_batched_matmul import tpu_batched_matmul
from kernels.tpu_matmul import BLOCK_K, BLOCK_M, BLOCK_N

FLOATS = ("float32", "bfloat16")  # a TPU has no float16
DIMS = dict(b=kt.dim(values=(3, 1)), m=kt.dim(block=BLOCK_M), n=kt.dim(block=BLOCK_N), k=kt.dim(block=BLOCK_K))


@kt.oracle_for(
    tpu_batched_matmul,
    x=kt.array("b m k", FLOATS),
    y=kt.array("b k n", FLOATS),
    dims=DIMS,
    batch_dims="b",
)
def both(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(tpu_batched_matmul, x=kt.array("b m k", FLOATS), y=kt.array("k n", FLOATS), dims=DIMS)
def left_only(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(tpu_batched_matmul, x=kt.array("m k", FLOATS), y=kt.array("b k n", FLOATS), dims=DIMS)
def right_only(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y
