"""Pairings of the kernels that take no array at all."""

import numpy as np

import kerneltest as kt
from kernels.iota import BLOCK, iota_blocked, iota_grid, iota_scalar_memory


@kt.oracle_for(iota_grid, n=kt.dim_size("n"), dims=dict(n=kt.dim(minimum=0)), tolerance=kt.tolerance.exact())
def grid(n: int) -> np.ndarray:
    return np.arange(n)


@kt.oracle_for(
    iota_blocked,
    n=kt.dim_size("n"),
    block=kt.static(BLOCK, 16),
    dims=dict(n=kt.dim(block=BLOCK, minimum=0)),
    tolerance=kt.tolerance.exact(),
)
def blocked(n: int) -> np.ndarray:
    return np.arange(n)


@kt.oracle_for(iota_scalar_memory, n=kt.dim_size("n"), dims=dict(n=kt.dim()), tolerance=kt.tolerance.exact())
def scalar_memory(n: int) -> np.ndarray:
    return np.arange(n)
