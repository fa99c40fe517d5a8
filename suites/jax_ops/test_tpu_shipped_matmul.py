"""Pairings of JAX's TPU matrix product: whole blocks, integers, and lengths that are no multiple of a block."""

import numpy as np
from jax.experimental.pallas.ops.tpu.matmul import matmul

import kerneltest as kt

FLOATS = ("float32", "bfloat16")
BLOCKS = dict(block_shape=kt.static((8, 128)), block_k=kt.static(128))
WHOLE = dict(m=kt.dim(values=(16,)), n=kt.dim(values=(256,)), k=kt.dim(values=(256,)))


def dropped(verdict, backend):
    return kt.xfail(
        verdict,
        backend=backend,
        reason="the grid counts whole blocks only, so the rest of an axis is left out without a word",
        url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/tpu/matmul.py#L78",
    )


@kt.oracle_for(matmul, x=kt.array("m k", FLOATS), y=kt.array("k n", FLOATS), **BLOCKS, dims=WHOLE)
def whole_blocks(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    matmul,
    x=kt.array("m k", "int8"),
    y=kt.array("k n", "int8"),
    **BLOCKS,
    out_dtype=kt.static("int32"),
    dims=WHOLE,
    xfail=[
        kt.xfail(
            "unimplemented",
            backend="compile:tpu-v4",
            reason="the compiler refuses integer products on a TPU v4",
            url="https://github.com/jax-ml/jax/issues/37367",
        )
    ],
)
def integers(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    matmul,
    x=kt.array("m k", "float32", domain=(-9, 9)),
    y=kt.array("k n", "float32", domain=(-9, 9)),
    **BLOCKS,
    dims=WHOLE | dict(m=kt.dim(values=(12,)), n=kt.dim(values=(128,)), k=kt.dim(values=(128,))),
    xfail=[dropped("special_mismatch", "interpret"), dropped("unwritten", "interpret-tpu")],
)
def tails(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y
