"""The pairing of the cumulative sum, from either end."""

import numpy as np

import kerneltest as kt
from kernels.cumulative_sum import BLOCK, cumulative_sum


@kt.oracle_for(
    cumulative_sum,
    x=kt.array("m n"),
    reverse=kt.static(False, True),
    block=kt.static(BLOCK, 16),
    dims=dict(m=kt.dim(values=(3, 1, 5)), n=kt.dim(block=BLOCK)),
    batch_dims="m",
    invariant_to="grid",
)
def sums(x: np.ndarray, reverse: bool) -> np.ndarray:
    return np.cumsum(x[:, ::-1], axis=-1)[:, ::-1] if reverse else np.cumsum(x, axis=-1)
