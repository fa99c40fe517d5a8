"""Pairings of the pipelined copies: every way of staging, every dtype that the copy engine moves."""

import numpy as np

import kerneltest as kt
from kernels.pipeline_copy import BLOCK_M, BLOCK_N, pipeline_copy, pipeline_swap_blocks, pipeline_swizzled_copy
from suites.pipeline_options import ALL_STAGES, BLOCKS, REFUSED_STAGES, STAGES, whole


@kt.oracle_for(
    pipeline_copy,
    x=kt.array("m n", kt.DEFAULT_FLOATS + kt.DEFAULT_INTEGERS),
    stages=kt.static(**ALL_STAGES),
    dims=dict(m=whole(BLOCK_M, *BLOCKS), n=whole(BLOCK_N, 1, 2)),
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
    rejects=[
        *REFUSED_STAGES,
        kt.rejects("grid_with_a_zero", dims={"m": 0}, raises=ValueError, match="strictly positive"),
        kt.rejects("part_of_a_block", dims={"m": BLOCK_M - 1}, raises=ValueError, match="whole blocks"),
    ],
)
def copy(x: np.ndarray) -> np.ndarray:
    return x


@kt.oracle_for(
    pipeline_copy,
    x=kt.array("m n", kt.DEFAULT_FLOATS + kt.DEFAULT_INTEGERS),
    # The smallest rows that the copy engine takes: 16 bytes, which are as many elements of int8.
    block=kt.static(short=(16, 16)),
    stages=kt.static(**STAGES),
    dims=dict(m=kt.dim(values=[32, 16, 48]), n=kt.dim(values=[16, 32])),
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
)
def copy_in_short_rows(x: np.ndarray) -> np.ndarray:
    return x


@kt.oracle_for(
    pipeline_copy,
    x=kt.array("m n", kt.DEFAULT_FLOATS + kt.DEFAULT_INTEGERS),
    # The longest axis that it takes, either way.
    block=kt.static(tall=(256, 16), wide=(16, 256)),
    stages=kt.static(**STAGES),
    dims=dict(m=kt.dim(values=[256]), n=kt.dim(values=[256])),
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
)
def copy_in_long_rows(x: np.ndarray) -> np.ndarray:
    return x


@kt.oracle_for(
    pipeline_swap_blocks,
    x=kt.array("m n", kt.DEFAULT_FLOATS + kt.DEFAULT_INTEGERS),
    stages=kt.static(**STAGES),
    dims=dict(m=whole(BLOCK_M, *BLOCKS), n=whole(BLOCK_N, 1, 2)),
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
)
def swap_blocks(x: np.ndarray) -> np.ndarray:
    m, n = x.shape
    blocks = x.reshape(m // BLOCK_M, BLOCK_M, n // BLOCK_N, BLOCK_N)
    return blocks.transpose(2, 1, 0, 3).reshape(n, m)


@kt.oracle_for(
    pipeline_swizzled_copy,
    x=kt.array("m n", (*kt.DEFAULT_FLOATS, "int32")),
    swizzle=kt.static(128, 64, 32),
    stages=kt.static(**STAGES),
    dims=dict(m=whole(BLOCK_M, *BLOCKS), n=whole(BLOCK_N, 1, 2)),
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
)
def swizzled_copy(x: np.ndarray) -> np.ndarray:
    return x
