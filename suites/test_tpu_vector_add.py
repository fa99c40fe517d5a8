"""The pairing of the TPU's vector sum: correctly rounded, so judged bit for bit, zeros' signs included."""

import numpy as np

import kerneltest as kt
from kernels.tpu_vector_add import BLOCK, tpu_vector_add

NUMBERS = ("float32", "bfloat16", "int32", "int8")  # a TPU has no float16


@kt.oracle_for(
    tpu_vector_add,
    x=kt.array("n", NUMBERS),
    y=kt.array("n", NUMBERS),
    dims=dict(n=kt.dim(block=BLOCK, values=(BLOCK + 1, 1, BLOCK, 3 * BLOCK - 1, 0))),
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
    invariant_to="grid",
)
def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y
