"""Shapes and memory spaces that TPU kernels use, and the devices of libtpu."""

from typing import Any

from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pltpu

from .kernels.base import BLOCK, MATRIX, VECTOR
from .target import TpuTarget

# libtpu needs these on a machine without a TPU, and to be loaded by several processes.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

# A TPU works on tiles of 8 by 128; it refuses one-dimensional and narrow arrays for reasons other than the primitive.
_SHAPES = {
    VECTOR: (16, 128),
    MATRIX: (8, 128),
    BLOCK: (128, 128),
    (8,): (8, 128),
    (32,): (128,),
    (1, 16): (1, 128),
    (4, 16): (4, 16, 128),
}


def tpu_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that replaces a GPU probe's shape on TPUs."""
    if shape in _SHAPES:
        return _SHAPES[shape]
    return (*shape[:-2], *_SHAPES.get(shape[-2:], shape[-2:]))


def block_spec(shape: tuple[int, ...], block: tuple[int, ...]) -> Any:
    """Returns the spec that passes an array in blocks, or whole in VMEM; a scalar is an array of one in SMEM."""
    if block:
        return pl.BlockSpec(block, lambda *position: position)
    return pl.BlockSpec(memory_space=pltpu.VMEM if shape else pltpu.SMEM)


def device(tpu: TpuTarget) -> Any:
    """Returns a device to compile for; starts libtpu."""
    return topologies.get_topology_desc(platform="tpu", topology_name=tpu.topology).devices[0]
