"""Pairings of the vector sums: correctly rounded, so judged bit for bit, zeros' signs included."""

import numpy as np

import kerneltest as kt
from kernels.vector_add import BLOCK, vector_add, vector_add_blocked

NUMBERS = kt.FLOATS + kt.INTEGERS


@kt.oracle_for(
    vector_add,
    x=kt.array("n", NUMBERS),
    y=kt.array("n", NUMBERS),
    dims=dict(n=kt.dim(tile=BLOCK, minimum=0)),
    tolerance=kt.exact(),
    signed_zeros=True,
)
def whole(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y


@kt.oracle_for(
    vector_add_blocked,
    x=kt.array("n", NUMBERS),
    y=kt.array("n", NUMBERS),
    block=kt.choice(BLOCK, 32),
    dims=dict(n=kt.dim(tile=BLOCK, minimum=0)),
    tolerance=kt.exact(),
    signed_zeros=True,
    independent=("block", "grid"),
)
def blocked(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y
