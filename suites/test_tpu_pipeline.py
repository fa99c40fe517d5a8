"""Pairings of the TPU pipelines."""

from typing import Any

import numpy as np

import kerneltest as kt
from kernels.tpu_pipeline import BLOCK_K, BLOCK_M, BLOCK_N, tpu_copy, tpu_matmul, tpu_sum
from suites.pipeline_options import whole

NOT_MAPPED = kt.xfail(
    "compile_error",
    backend="interpret-tpu",
    family="vmapped",
    reason="JAX's TPU interpreter takes no array in main memory that vmap cuts into blocks",
    url="https://github.com/jax-ml/jax/blob/main/jax/_src/pallas/mosaic/interpret/interpret_pallas_call.py",
)
NO_FLOAT16 = kt.xfail(
    "unimplemented",
    backend="compile:tpu-*",
    dtype="float16",
    reason="no TPU has vectors of float16",
    url="https://github.com/pytorch/helion/pull/3204",
)
DIMS: dict[str, Any] = {"m": whole(BLOCK_M, 2, 1, 3), "n": whole(BLOCK_N, 1, 2)}


@kt.oracle_for(
    tpu_copy,
    x=kt.array("m n", (*kt.DEFAULT_FLOATS, "int32")),
    dims=DIMS,
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
    xfail=[NOT_MAPPED, NO_FLOAT16],
)
def copy(x: np.ndarray) -> np.ndarray:
    return x


@kt.oracle_for(
    tpu_sum,
    x=kt.array("m n", "float32"),
    dims=DIMS,
    xfail=[NOT_MAPPED],
)
def row_totals(x: np.ndarray) -> np.ndarray:
    return x.reshape(x.shape[0], -1, BLOCK_N).sum(1)


@kt.oracle_for(
    tpu_matmul,
    x=kt.array("m k", "float32"),
    y=kt.array("k n", "float32"),
    dims=dict(**DIMS, k=whole(BLOCK_K, 1, 2)),
    xfail=[NOT_MAPPED],
)
def matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y
