"""Pairings of the broken kernels, for a report with findings: `make findings`."""

import numpy as np

import examples.broken_kernels as kernels
import kerneltest as kt

TILE = kernels.BLOCK
VECTOR = {"n": kt.dim(block=TILE, values=(40,))}
MATRIX = {"m": kt.dim(block=TILE, values=(40,)), "n": kt.dim(block=TILE, values=(56,))}


@kt.oracle_for(
    kernels.add_without_tail,
    x=kt.array("n", ("float32", "int32")),
    y=kt.array("n", ("float32", "int32")),
    dims=VECTOR,
    tolerance=kt.tolerance.exact(),
)
def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y


@kt.oracle_for(kernels.transposed_tiles, x=kt.array("m n", "float32"), dims=MATRIX, tolerance=kt.tolerance.exact())
def double(x: np.ndarray) -> np.ndarray:
    return x + x


@kt.oracle_for(
    kernels.matmul_unmasked_depth,
    x=kt.array("m k", "float32"),
    y=kt.array("k n", "float32"),
    dims={**MATRIX, "k": kt.dim(block=TILE, values=(40,))},
    tolerance=kt.tolerance.dot(over="k"),
)
def matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


@kt.oracle_for(
    kernels.softmax_unguarded,
    x=kt.array("m n", "float32"),
    dims={"m": kt.dim(values=(17,)), "n": kt.dim(block=TILE, values=(40,))},
    all_masked="zeros",
)
def softmax(x: np.ndarray) -> np.ndarray:
    maximum = x.max(axis=-1, keepdims=True)
    e = np.exp(x - np.where(maximum == -np.inf, 0, maximum))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


@kt.oracle_for(
    kernels.row_sums_in_input_dtype,
    x=kt.array("m n", ("float32", "bfloat16")),
    dims={"m": kt.dim(values=(4,)), "n": kt.dim(values=(600,))},
    tolerance=kt.tolerance.reduction(over="n"),
)
def row_sums(x: np.ndarray) -> np.ndarray:
    return x.sum(axis=1)


@kt.oracle_for(
    kernels.racing_total, x=kt.array("n", "float32"), dims=VECTOR, tolerance=kt.tolerance.reduction(over="n")
)
def total(x: np.ndarray) -> np.ndarray:
    return x.sum(keepdims=True)


@kt.oracle_for(
    kernels.sorted_rows,
    x=kt.array("m n", "float32"),
    dims={"m": kt.dim(values=(3,)), "n": kt.dim(values=(64,))},
    tolerance=kt.tolerance.exact(),
    xfail=[
        kt.xfail(
            "unimplemented",
            backend=f"{tier}:*",
            reason="Pallas has no lowering of sort to Triton",
            url="https://docs.jax.dev/en/latest/pallas/index.html",
        )
        for tier in ("lower", "compile", "simulate")
    ],
)
def sort(x: np.ndarray) -> np.ndarray:
    return np.sort(x, axis=1)


@kt.oracle_for(kernels.clamp, x=kt.array("n", "float32"), dims=VECTOR, tolerance=kt.tolerance.exact())
def clamp(x: np.ndarray) -> np.ndarray:
    return np.where(x > 1, 1, np.where(x < -1, -1, x))
