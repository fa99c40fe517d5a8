"""Pairings of the vector sums: correctly rounded, so judged bit for bit, zeros' signs included."""

import numpy as np

import kerneltest as kt
from kernels.vector_add import BLOCK, vector_add, vector_add_blocked

NUMBERS = kt.DEFAULT_FLOATS + kt.DEFAULT_INTEGERS


@kt.oracle_for(
    vector_add,
    x=kt.array("n", NUMBERS),
    y=kt.array("n", NUMBERS),
    dims=dict(n=kt.dim(block=BLOCK, minimum=0)),
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
)
def whole(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y


@kt.oracle_for(
    vector_add_blocked,
    x=kt.array("n", NUMBERS),
    y=kt.array("n", NUMBERS),
    block=kt.static(BLOCK, 32),
    dims=dict(n=kt.dim(block=BLOCK, minimum=0, production=400_000_000)),
    needs={"n": lambda i: slice(i, i + 1)},
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
    invariant_to=("block", "grid"),
)
def blocked(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y
