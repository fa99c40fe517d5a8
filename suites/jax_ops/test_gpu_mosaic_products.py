"""Pairings of JAX's other matrix products for Hopper GPUs, in Mosaic GPU: of groups of rows, and of mixed dtypes."""

import numpy as np
from jax.experimental.pallas.ops.gpu.hopper_mixed_type_matmul_mgpu import TuningConfig, mixed_matmul_kernel
from jax.experimental.pallas.ops.gpu.ragged_dot_mgpu import ragged_dot
from jax.experimental.pallas.ops.gpu.transposed_ragged_dot_mgpu import transposed_ragged_dot

import kerneltest as kt
from suites.jax_ops.ragged import group_sizes, ragged_product

HOPPER = ("lower:sm_90", "compile:xla-sm_90", "simulate:sm_90", "cuda")
BLOCKS = dict(
    block_m=kt.static(64), block_n=kt.static(64), block_k=kt.static(64), max_concurrent_steps=kt.static(2),
    grid_block_n=kt.static(1),
)  # fmt: skip
DIMS = dict(m=kt.dim(values=(128, 256)), n=kt.dim(values=(128,)), k=kt.dim(values=(64, 192)), g=kt.dim(values=(3,)))


@kt.oracle_for(
    ragged_dot,
    lhs=kt.array("m k", "float16", domain=(-8, 8)),
    rhs=kt.array("g k n", "float16", domain=(-8, 8)),
    group_sizes=group_sizes("m"),
    **BLOCKS,
    dims=DIMS,
    backends=HOPPER,
    xfail=[
        kt.xfail(
            "runtime_error",
            backend=backend,
            family="vmapped",
            reason="under jax.vmap, the reference to the sizes of the groups has no length, which the kernel asks for",
            url="https://github.com/jax-ml/jax/blob/jax-v0.11.2/jax/experimental/pallas/ops/gpu/ragged_dot_mgpu.py#L55",
        )
        for backend in ("simulate:sm_90", "cuda")
    ],
)
def groups(lhs: np.ndarray, rhs: np.ndarray, group_sizes: np.ndarray) -> np.ndarray:
    return ragged_product(lhs, rhs, group_sizes)


@kt.oracle_for(
    transposed_ragged_dot,
    lhs=kt.array("k m", "float16", domain=(-8, 8)),
    rhs=kt.array("k n", "float16", domain=(-8, 8)),
    group_sizes=group_sizes("k"),
    **BLOCKS,
    dims=DIMS,
    backends=HOPPER,
)
def transposed_groups(lhs: np.ndarray, rhs: np.ndarray, group_sizes: np.ndarray) -> np.ndarray:
    ends = np.cumsum(group_sizes)
    return np.stack([lhs[end - n : end].T @ rhs[end - n : end] for n, end in zip(group_sizes, ends, strict=True)])


@kt.oracle_for(
    mixed_matmul_kernel,
    a=kt.array("m k", "int8"),
    b=kt.array("k n", ("float16", "bfloat16"), domain=(-8, 8)),
    out_dtype=kt.static(float32=np.dtype("float32")),
    config=kt.static(columns=TuningConfig(64, 64, 64, max_concurrent_steps=2)),
    dims=dict(m=kt.dim(values=(128,)), n=kt.dim(values=(128,)), k=kt.dim(values=(64, 192))),
    backends=HOPPER,
)
def mixed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b
