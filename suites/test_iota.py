"""Pairings of the kernels that take no array at all."""

import numpy as np

import kerneltest as kt
from kernels.iota import BLOCK, iota_blocked, iota_grid, iota_scalar_memory


@kt.oracle_for(iota_grid, n=kt.size("n"), dims=dict(n=kt.dim(minimum=0)), tolerance=kt.exact())
def grid(n: int) -> np.ndarray:
    return np.arange(n)


@kt.oracle_for(
    iota_blocked,
    n=kt.size("n"),
    block=kt.choice(BLOCK, 16),
    dims=dict(n=kt.dim(tile=BLOCK, minimum=0)),
    tolerance=kt.exact(),
)
def blocked(n: int) -> np.ndarray:
    return np.arange(n)


@kt.oracle_for(iota_scalar_memory, n=kt.size("n"), dims=dict(n=kt.dim()), tolerance=kt.exact())
def scalar_memory(n: int) -> np.ndarray:
    return np.arange(n)
