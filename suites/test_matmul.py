"""Pairings of the matrix products: inner products in float32 of operands that a GPU may round to TF32."""

import jax
import jax.numpy as jnp
import numpy as np

import kerneltest as kt
from kernels.matmul import BLOCK_K, BLOCK_M, BLOCK_N, matmul, matmul_2x2, relu


@kt.oracle_for(
    matmul_2x2,
    x=kt.array("m k"),
    y=kt.array("k n"),
    precision=kt.static(None, "highest"),
    dims=dict(
        m=kt.dim(values=(32, 64, 128)),
        n=kt.dim(values=(32, 64, 128)),
        k=kt.dim(values=(16, 32, 64)),
    ),
)
def two_by_two(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    matmul,
    x=kt.array("m k"),
    y=kt.array("k n"),
    activation=kt.static(none=None, relu=relu, gelu=jax.nn.gelu, silu=jax.nn.silu, tanh=jnp.tanh),
    precision=kt.static(None, "highest"),
    dims=dict(m=kt.dim(block=BLOCK_M), n=kt.dim(block=BLOCK_N), k=kt.dim(block=BLOCK_K, minimum=0)),
)
def tiled(x: np.ndarray, y: np.ndarray, activation: str) -> np.ndarray:
    z = x @ y
    match activation:
        case "relu":
            return np.maximum(z, 0)
        case "gelu":
            return z * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
        case "silu":
            return z / (1 + np.exp(-z))
        case "tanh":
            return np.tanh(z)
    return z
