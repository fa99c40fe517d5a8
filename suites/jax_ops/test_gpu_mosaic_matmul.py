"""Pairings of JAX's matrix product for Hopper GPUs, in Mosaic GPU, which interpreters run at seconds a case."""

import numpy as np
from jax.experimental.pallas.ops.gpu.hopper_matmul_mgpu import MatmulDimension, TuningConfig, matmul

import kerneltest as kt

FLOATS = ("float16", "bfloat16")
HOPPER = ("lower:sm_90", "simulate:sm_90", "cuda")
COLUMNS = TuningConfig(64, 64, 64, max_concurrent_steps=2)
CONFIGS = dict(
    columns=COLUMNS,
    rows=TuningConfig(64, 64, 64, max_concurrent_steps=4, wg_dimension=MatmulDimension.M),
    cluster=TuningConfig(64, 64, 64, max_concurrent_steps=2, cluster_dimension=MatmulDimension.N),
)
DIMS = dict(m=kt.dim(values=(128, 256)), n=kt.dim(values=(256,)), k=kt.dim(values=(64, 192)))
ROUNDED = [
    kt.xfail(
        "mismatch",
        backend=backend,
        reason="the product is rounded to the dtype of c before c is added",
        url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/gpu/hopper_matmul_mgpu.py#L185",
    )
    for backend in ("simulate:sm_90", "cuda")
]


@kt.oracle_for(
    matmul,
    a=kt.array("m k", FLOATS, domain=(-100, 100)),
    b=kt.array("k n", FLOATS, domain=(-100, 100)),
    c=kt.static(None),
    config=kt.static(**CONFIGS),
    dims=DIMS,
    backends=HOPPER,
)
def product(a, b):
    return a @ b


@kt.oracle_for(
    matmul,
    a=kt.derived("m k", lambda rng, m, k: rng.normal(0, 9, (m, k)), dtypes="float16"),
    b=kt.derived("k n", lambda rng, k, n: rng.normal(0, 9, (k, n)), dtypes="float16"),
    c=kt.derived("m n", lambda rng, m, n: rng.normal(0, 99, (m, n)), dtypes="float16"),
    config=kt.static(columns=COLUMNS),
    dims=DIMS | dict(m=kt.dim(values=(128,)), k=kt.dim(values=(192,))),
    backends=HOPPER,
    xfail=ROUNDED,
)
def added(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return a @ b + c
