"""Pairing of JAX's matrix product for Blackwell GPUs, in Mosaic GPU, which no GPU has run here: it is simulated."""

import numpy as np
from jax.experimental.pallas.ops.gpu.blackwell_matmul_mgpu import TuningConfig, matmul_kernel

import kerneltest as kt

UNFINISHED = kt.xfail(
    "race",
    backend="simulate:sm_100",
    reason="the last copy to global memory is not waited for, so shared memory may be given away while it is read",
    url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/gpu/blackwell_matmul_mgpu.py",
)


@kt.oracle_for(
    matmul_kernel,
    a=kt.array("m k", ("float16", "bfloat16"), domain=(-100, 100)),
    b=kt.array("k n", ("float16", "bfloat16"), domain=(-100, 100)),
    config=kt.static(one_block=TuningConfig(128, 128, 64, max_concurrent_steps=2, collective=False)),
    dims=dict(m=kt.dim(values=(128, 256)), n=kt.dim(values=(256,)), k=kt.dim(values=(256,))),
    backends=("lower:sm_100", "simulate:sm_100"),
    xfail=[UNFINISHED],
)
def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b
