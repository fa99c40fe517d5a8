"""The pairing of the TPU's softmax. Lengths and -inf mask elements, and a row with nothing valid yields zeros."""

import numpy as np

import kerneltest as kt
from kernels.tpu_softmax import BLOCK_M, BLOCK_N, tpu_softmax


@kt.oracle_for(
    tpu_softmax,
    x=kt.array("b m n", ("float32", "bfloat16")),  # a TPU has no float16
    lengths=kt.lengths("b", up_to="n"),
    dims=dict(
        b=kt.dim(values=(2, 1)),
        m=kt.dim(block=BLOCK_M, values=(3, BLOCK_M + 1)),
        n=kt.dim(block=BLOCK_N, values=(BLOCK_N + 1, 1, 3 * BLOCK_N)),
    ),
    all_masked="zeros",
    batch_dims="b",
)
def softmax(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    inside = np.arange(x.shape[-1]) < lengths[:, None, None]
    x = np.where(inside, x, -np.inf)
    maximum = x.max(axis=-1, keepdims=True)
    e = np.exp(x - np.where(maximum == -np.inf, 0, maximum))
    total = e.sum(axis=-1, keepdims=True)
    return np.where(inside, e / np.where(total == 0, 1, total), 0)
