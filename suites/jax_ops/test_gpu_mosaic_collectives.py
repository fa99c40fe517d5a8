"""Pairings of JAX's collectives for GPUs, in Mosaic GPU, which all devices of a mesh run together.

Machines without these devices lower and compile them, and compute no values.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental.pallas.ops.gpu.all_gather_mgpu import all_gather
from jax.experimental.pallas.ops.gpu.collective_matmul_mgpu import TuningConfig, all_gather_lhs_matmul
from jax.experimental.pallas.ops.gpu.reduce_scatter_mgpu import reduce_scatter
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

import kerneltest as kt

BACKENDS = ("lower:sm_90", "compile:xla-sm_90", "lower:sm_100", "compile:xla-sm_100", "cuda")
ROWS, COLUMNS = P("x", None), P(None, "x")
MATRIX = dict(
    x=kt.array("m n", ("float32", "bfloat16")), dims=dict(m=kt.dim(values=(64, 128)), n=kt.dim(values=(128, 256)))
)


def on_mesh(kernel: Any, devices: int, specs: tuple[P, ...], out: P, *arrays: jax.Array) -> jax.Array:
    mesh = AbstractMesh((devices,), ("x",), axis_types=(AxisType.Auto,))
    local = partial(kernel, axis_name="x")
    result: jax.Array = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(*arrays)
    return result


def gathered_rows(x: jax.Array) -> jax.Array:
    return on_mesh(partial(all_gather, num_blocks=4), 2, (ROWS,), P(), x)


def scattered_sum(x: jax.Array) -> jax.Array:
    return on_mesh(partial(reduce_scatter, scatter_dimension=1, num_blocks=4), 2, (COLUMNS,), COLUMNS, x)


def gathered_product(a: jax.Array, b: jax.Array) -> jax.Array:
    config = TuningConfig(64, 64, 64, max_concurrent_steps=2)
    # JAX's kernel refuses a mesh that lacks a device of the machine.
    return on_mesh(partial(all_gather_lhs_matmul, config=config), jax.device_count(), (ROWS, COLUMNS), COLUMNS, a, b)


@kt.oracle_for(gathered_rows, **MATRIX, backends=BACKENDS)
def gathered(x: np.ndarray) -> np.ndarray:
    return x


@kt.oracle_for(scattered_sum, **MATRIX, backends=BACKENDS)
def scattered(x: np.ndarray) -> np.ndarray:
    half = x.shape[1] // 2  # the columns of a device
    return x[:, :half] + x[:, half:]


@kt.oracle_for(
    gathered_product,
    a=kt.array("m k", "float16", domain=(-100, 100)),
    b=kt.array("k n", "float16", domain=(-100, 100)),
    dims=dict(m=kt.dim(values=(1024,)), n=kt.dim(values=(1024,)), k=kt.dim(values=(64, 192))),
    backends=("lower:sm_90", "cuda"),
)
def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b
