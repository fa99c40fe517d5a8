"""Pairings of the pipelines that compute, with every way of staging."""

import jax
import jax.numpy as jnp
import numpy as np

import kerneltest as kt
from kernels.pipeline_compute import (
    BLOCK_M,
    BLOCK_N,
    pipeline_add,
    pipeline_add_block,
    pipeline_add_pinned,
    pipeline_mixed,
    pipeline_revisited,
    pipeline_row_totals,
    pipeline_running_sum,
    pipeline_scale_cast,
    pipeline_total,
)
from suites.pipeline_options import BLOCKS, LAYOUTS, STAGES, whole

REVISITED = "Mosaic GPU's emit_pipeline stores an output block at its first visit, where the last is to count"
PIPELINE = "https://github.com/jax-ml/jax/blob/main/jax/_src/pallas/mosaic_gpu/pipeline.py"
DIMS = {"m": whole(BLOCK_M, *BLOCKS), "n": whole(BLOCK_N, 1, 2)}
FINITE = (-1e30, 1e30)  # a carry that is multiplied by 0 forgets no infinity


@kt.oracle_for(
    pipeline_scale_cast,
    x=kt.array("m n"),
    dtype=kt.static(float32=jnp.float32, bfloat16=jnp.bfloat16, float16=jnp.float16),
    stages=kt.static(**STAGES),
    dims=DIMS,
    xfail=[
        kt.xfail(
            "mismatch",
            backend="cuda",
            dtype="bfloat16",
            family=family,
            reason="LLVM narrows float16(2 * float32(x)) of a bfloat16 x to 2 * float16(x), which rounds twice",
            url="https://github.com/llvm/llvm-project/blob/main/llvm/lib/Transforms/InstCombine/InstCombineCasts.cpp",
        )
        for family in ("wide_magnitudes", "small_rows")
    ],
)
def scale_cast(x: np.ndarray) -> np.ndarray:
    return 2 * x


@kt.oracle_for(pipeline_add, x=kt.array("m n"), y=kt.array("m n"), stages=kt.static(**STAGES), dims=DIMS)
def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y


@kt.oracle_for(
    pipeline_add_block, x=kt.array("m n"), b=kt.array(f"{BLOCK_M} {BLOCK_N}"), stages=kt.static(**STAGES), dims=DIMS
)
def add_block(x: np.ndarray, b: np.ndarray) -> np.ndarray:
    return x + np.tile(b, (x.shape[0] // BLOCK_M, x.shape[1] // BLOCK_N))


@kt.oracle_for(pipeline_add_pinned, x=kt.array("m n"), y=kt.array("m n"), stages=kt.static(**STAGES), dims=DIMS)
def add_pinned(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y


@kt.oracle_for(
    pipeline_mixed,
    x=kt.array("m n", "float32"),
    y=kt.array("m n", ("bfloat16", "float16")),
    stages=kt.static(**STAGES),
    dims=DIMS,
    xfail=LAYOUTS,
)
def mixed(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x + y, -y


def _blocks(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, BLOCK_M, x.shape[1] // BLOCK_N, BLOCK_N)


@kt.oracle_for(
    pipeline_running_sum,
    x=kt.array(f"m {BLOCK_N}", "float32"),
    stages=kt.static(**STAGES),
    dims=dict(m=whole(BLOCK_M, *BLOCKS)),
    xfail=LAYOUTS,
)
def running_sum(x: np.ndarray) -> np.ndarray:
    return np.cumsum(_blocks(x), 0).reshape(x.shape)


@kt.oracle_for(
    pipeline_total,
    x=kt.array(f"m {BLOCK_N}", "float32"),
    stages=kt.static(**STAGES),
    dims=dict(m=whole(BLOCK_M, *BLOCKS)),
    xfail=LAYOUTS,
)
def total(x: np.ndarray) -> np.ndarray:
    return _blocks(x).sum((0, 2))


@kt.oracle_for(
    pipeline_row_totals,
    x=kt.array("m n", "float32", domain=FINITE),
    stages=kt.static(**STAGES),
    dims=dict(m=whole(BLOCK_M, *BLOCKS), n=whole(BLOCK_N, 2, 1, 3)),
    xfail=LAYOUTS,
)
def row_totals(x: np.ndarray) -> np.ndarray:
    return _blocks(x).sum(2).reshape(x.shape[0], BLOCK_N)


@kt.oracle_for(
    pipeline_revisited,
    x=kt.array("m n", "float32", domain=FINITE),
    stages=kt.static(**{"2-0": (2, 0), "1-0": (1, 0), "3-1": (3, 1)}),
    dims=dict(m=whole(BLOCK_M, 2, 3), n=whole(BLOCK_N, 2, 3)),  # a single row of blocks comes out right
    xfail=[
        *LAYOUTS,
        # The last block is stored twice, at its first visit and at the end, in no order; JAX 0.10 sees no such race.
        kt.xfail(
            "race" if jax.__version_info__ >= (0, 11) else "mismatch",
            backend="interpret-mosaic-gpu",
            reason=REVISITED,
            url=PIPELINE,
        ),
        kt.xfail("race", backend="simulate:*", reason=REVISITED, url=PIPELINE),
        kt.xfail("mismatch", backend="cuda", reason=REVISITED, url=PIPELINE),
    ],
)
def revisited(x: np.ndarray) -> np.ndarray:
    return _blocks(x).sum(2).reshape(x.shape[0], BLOCK_N)
