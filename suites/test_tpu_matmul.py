"""Pairings of the TPU's matrix product with an activation: floats summed in float32, int8 in int32."""

import jax
import numpy as np

import kerneltest as kt
from kernels.matmul import relu
from kernels.tpu_matmul import BLOCK_K, BLOCK_M, BLOCK_N, tpu_tiled_matmul

FLOATS = ("float32", "bfloat16")  # a TPU has no float16
# Few and short, since this interpreter takes its time: within a block and past its end, and whole blocks of `k`.
DIMS = dict(
    m=kt.dim(block=BLOCK_M, values=(BLOCK_M + 1, 3)),
    n=kt.dim(block=BLOCK_N, values=(BLOCK_N + 1, 1)),
    k=kt.dim(block=BLOCK_K, values=(BLOCK_K + 1, 1, 2 * BLOCK_K, 0)),
)


@kt.oracle_for(
    tpu_tiled_matmul,
    x=kt.array("m k", FLOATS),
    y=kt.array("k n", FLOATS),
    activation=kt.static(none=None, relu=relu, gelu=jax.nn.gelu),
    dims=DIMS,
)
def floats(x: np.ndarray, y: np.ndarray, activation: str) -> np.ndarray:
    z = x @ y
    match activation:
        case "relu":
            return np.maximum(z, 0)
        case "gelu":
            return z * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    return z


@kt.oracle_for(
    tpu_tiled_matmul,
    x=kt.array("m k", "int8"),
    y=kt.array("k n", "int8"),
    activation=kt.static(none=None, relu=relu),
    dims=DIMS,
    tolerance=kt.tolerance.exact(),
    xfail=[
        kt.xfail(
            "unimplemented",
            backend="compile:tpu-v4",
            reason="the compiler refuses integer products on a TPU v4",
            url="https://github.com/jax-ml/jax/issues/37367",
        )
    ],
)
def integers(x: np.ndarray, y: np.ndarray, activation: str) -> np.ndarray:
    z = x @ y
    return np.maximum(z, 0) if activation == "relu" else z
