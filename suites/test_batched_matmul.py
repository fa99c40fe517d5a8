"""Pairings of the tiled product under vmap: one and two leading axes, and either operand without them."""

import numpy as np

import kerneltest as kt
from kernels.batched_matmul import batched_matmul
from kernels.matmul import BLOCK_K, BLOCK_M, BLOCK_N

TILES = dict(m=kt.dim(block=BLOCK_M), n=kt.dim(block=BLOCK_N), k=kt.dim(block=BLOCK_K))
# Of lengths a few: `one_axis` and the product without a batch plan all of them for the same kernel.
FEW = {name: kt.dim(block=dim.block, values=(dim.block + 1, 3)) for name, dim in TILES.items()}
BATCH = kt.dim(values=(3, 1))
PRECISION = kt.static(None, "highest")


@kt.oracle_for(
    batched_matmul,
    x=kt.array("b m k"),
    y=kt.array("b k n"),
    precision=PRECISION,
    dims=dict(b=BATCH, **TILES),
    batch_dims="b",
    invariant_to="grid",
)
def one_axis(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    batched_matmul,
    x=kt.array("a b m k"),
    y=kt.array("a b k n"),
    precision=PRECISION,
    dims=dict(a=kt.dim(values=(2, 1)), b=BATCH, **FEW),
)
def two_axes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    batched_matmul,
    x=kt.array("b m k"),
    y=kt.array("k n"),
    precision=PRECISION,
    dims=dict(b=BATCH, **FEW),
)
def left_only(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    batched_matmul,
    x=kt.array("m k"),
    y=kt.array("b k n"),
    precision=PRECISION,
    dims=dict(b=BATCH, **FEW),
)
def right_only(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y
