"""Pairings of the warp-specialized pipelines: one and two computing warpgroups, manual releases, a carry."""

import numpy as np

import kerneltest as kt
from kernels.pipeline_copy import BLOCK_M, BLOCK_N
from kernels.pipeline_specialized import specialized_double, specialized_total
from suites.pipeline_options import BLOCKS, LAYOUTS, REFUSED_STAGES, STAGES, whole


@kt.oracle_for(
    specialized_double,
    x=kt.array("m n", ("float32", "bfloat16")),
    warpgroups=kt.static(1, 2),
    manual_release=kt.static(False, True),
    memory_thread=kt.static(None),
    stages=kt.static(**STAGES),
    dims=dict(m=whole(BLOCK_M, *BLOCKS), n=whole(BLOCK_N, 1, 2)),
    rejects=[
        *REFUSED_STAGES,
        kt.rejects("memory_thread_not_last", memory_thread=0, raises=NotImplementedError, match="must be the last"),
    ],
)
def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


@kt.oracle_for(
    specialized_total,
    x=kt.array(f"m {BLOCK_N}", "float32"),
    warpgroups=kt.static(1, 2),
    stages=kt.static(**STAGES),
    dims=dict(m=whole(BLOCK_M, *BLOCKS)),
    xfail=LAYOUTS,
)
def total(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, BLOCK_M, x.shape[1]).sum(0)
