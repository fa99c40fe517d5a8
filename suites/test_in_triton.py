"""Pairings of the kernels in Triton itself, with the oracles of their Pallas versions."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import kerneltest as kt
from suites import test_batched_matmul, test_iota, test_matmul, test_softmax, test_vector_add
from suites.test_vector_add import NUMBERS

triton = pytest.importorskip("triton")

from kernels import in_triton as kernels  # noqa: E402 - after it is known that there is Triton
from kernels.in_triton import BLOCK, BLOCK_K, BLOCK_M, BLOCK_N  # noqa: E402

TILES = dict(m=kt.dim(block=BLOCK_M), n=kt.dim(block=BLOCK_N), k=kt.dim(block=BLOCK_K))


def blocks(given: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(given["n"], given["block"]),)


add = kt.oracle_for(
    kt.triton_kernel(
        kernels.add,
        grid=blocks,
        outputs=dict(out="x"),
        constants=dict(n=lambda given: given["x"].size, block=BLOCK),
    ),
    x=kt.array("n", NUMBERS),
    y=kt.array("n", NUMBERS),
    dims=dict(n=kt.dim(block=BLOCK, production=400_000_000)),
    needs={"n": lambda i: slice(i, i + 1)},
    tolerance=kt.tolerance.exact(),
    signed_zeros=True,
)(test_vector_add.blocked.oracle)


iota = kt.oracle_for(
    kt.triton_kernel(
        kernels.iota,
        grid=blocks,
        outputs=dict(out=lambda given: jax.ShapeDtypeStruct((given["n"],), jnp.int32)),
        constants=dict(block=BLOCK),
    ),
    n=kt.dim_size("n"),
    dims=dict(n=kt.dim(block=BLOCK)),
    tolerance=kt.tolerance.exact(),
)(test_iota.grid.oracle)


softmax = kt.oracle_for(
    kt.triton_kernel(
        kernels.softmax,
        grid=lambda given: (given["x"].shape[0],),
        outputs=dict(out="x"),
        constants=dict(n=lambda given: given["x"].shape[1], block=lambda given: triton.next_power_of_2(given["n"])),
    ),
    x=kt.array("m n"),
    dims=test_softmax.DIMS,
    all_masked=test_softmax.MASKED,
    batch_dims="m",
)(test_softmax.softmax)


def tiles(given: Mapping[str, Any]) -> tuple[int, int, int]:
    batch = max(array.shape[0] if array.ndim == 3 else 1 for array in (given["x"], given["y"]))
    return triton.cdiv(given["m"], BLOCK_M), triton.cdiv(given["n"], BLOCK_N), batch


def product(given: Mapping[str, Any]) -> jax.ShapeDtypeStruct:
    x, y = given["x"], given["y"]
    return jax.ShapeDtypeStruct((*x.shape[:-2], x.shape[-2], y.shape[-1]), x.dtype)


SIZES = dict(
    m=lambda given: given["x"].shape[-2],
    n=lambda given: given["y"].shape[-1],
    k=lambda given: given["x"].shape[-1],
    x_batch=lambda given: given["m"] * given["k"],
    y_batch=lambda given: given["k"] * given["n"],
    block_m=BLOCK_M,
    block_n=BLOCK_N,
    block_k=BLOCK_K,
)


matmul = kt.oracle_for(
    kt.triton_kernel(kernels.matmul, grid=tiles, outputs=dict(out=product), constants=SIZES),
    x=kt.array("m k"),
    y=kt.array("k n"),
    activation=kt.static("none", "relu", "gelu", "silu"),
    precision=kt.static(None, "ieee"),
    where=lambda activation, precision: activation == "none" or precision is None,  # one follows the other
    dims=TILES,
)(test_matmul.tiled.oracle)


# Of lengths a few: `matmul` plans all of them for the same code.
FEW = {name: kt.dim(block=dim.block, values=(dim.block + 1, 3)) for name, dim in TILES.items()}

batched_matmul = kt.oracle_for(
    kt.triton_kernel(
        kernels.matmul,
        grid=tiles,
        outputs=dict(out=product),
        constants=dict(SIZES, activation="none", precision=None),
    ),
    x=kt.array("b m k"),
    y=kt.array("b k n"),
    dims=dict(FEW, b=test_batched_matmul.BATCH),
    batch_dims="b",
)(test_batched_matmul.one_axis.oracle)
