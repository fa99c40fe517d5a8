"""Pairings of JAX's matrix products for Blackwell GPUs, in Mosaic GPU: no GPU has run them here, they are simulated."""

from typing import Any

import numpy as np
from jax.experimental.pallas.ops.gpu import blackwell_ragged_dot_mgpu as ragged
from jax.experimental.pallas.ops.gpu.blackwell_matmul_mgpu import MatmulDimension, TuningConfig, matmul_kernel

import kerneltest as kt
from suites.jax_ops.ragged import group_sizes, ragged_product

BLACKWELL = ("lower:sm_100", "compile:xla-sm_100", "simulate:sm_100")
FLOATS = ("float16", "bfloat16")
PLACE = "https://github.com/jax-ml/jax/blob/jax-v0.11.2/jax/experimental/pallas/ops/gpu"


def raced(reason: str, file: str) -> list[Any]:
    return [kt.xfail("race", backend="simulate:sm_100", reason=reason, url=f"{PLACE}/{file}_mgpu.py")]


@kt.oracle_for(
    matmul_kernel,
    a=kt.array("m k", FLOATS, domain=(-100, 100)),
    b=kt.array("k n", FLOATS, domain=(-100, 100)),
    config=kt.static(one_block=TuningConfig(128, 128, 64, max_concurrent_steps=2, collective=False)),
    dims=dict(m=kt.dim(values=(128, 256)), n=kt.dim(values=(256,)), k=kt.dim(values=(256,))),
    backends=BLACKWELL,
    xfail=raced(
        "the last copy to global memory is not waited for, and may read what is no longer there", "blackwell_matmul"
    ),
)
def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b


@kt.oracle_for(
    matmul_kernel,
    a=kt.array("m k", FLOATS, domain=(-100, 100)),
    b=kt.array("k n", FLOATS, domain=(-100, 100)),
    config=kt.static(two_blocks=TuningConfig(128, 128, 64, max_concurrent_steps=2, collective=True)),
    dims=dict(m=kt.dim(values=(512,)), n=kt.dim(values=(256,)), k=kt.dim(values=(128,))),
    backends=BLACKWELL,
    xfail=raced("both blocks of a cluster claim a tile, and the last copy is not waited for", "blackwell_matmul"),
)
def product_of_two_blocks(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b


@kt.oracle_for(
    ragged.ragged_dot_kernel,
    a=kt.array("m k", "float16", domain=(-8, 8)),
    b=kt.array("g k n", "float16", domain=(-8, 8)),
    group_sizes=group_sizes("m"),
    config=kt.static(two_blocks=ragged.TuningConfig(128, 128, 64, 2, True, 1, MatmulDimension.N)),
    dims=dict(m=kt.dim(values=(512,)), n=kt.dim(values=(256,)), k=kt.dim(values=(128,)), g=kt.dim(values=(3,))),
    backends=BLACKWELL,
)
def product_of_groups(a: np.ndarray, b: np.ndarray, group_sizes: np.ndarray) -> np.ndarray:
    return ragged_product(a, b, group_sizes)
