"""What is particular to TPUs: the shapes and memories that their kernels use, and libtpu's devices."""

from typing import Any

from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pltpu

from .kernels.base import BLOCK, MATRIX, VECTOR
from .target import Tpu

# What libtpu asks of a machine without a TPU; several processes may load it.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

# A TPU works on tiles of 8 by 128, and one dimension or a few columns are refused for reasons of their own.
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
    """The shape that a probe for TPUs has in place of one of a probe for GPUs."""
    if shape in _SHAPES:
        return _SHAPES[shape]
    return (*shape[:-2], *_SHAPES.get(shape[-2:], shape[-2:]))


def block_spec(shape: tuple[int, ...], block: tuple[int, ...]) -> Any:
    """How an array is passed: in blocks, or whole in VMEM. A scalar lies in scalar memory, in an array of one."""
    if block:
        return pl.BlockSpec(block, lambda *position: position)
    return pl.BlockSpec(memory_space=pltpu.VMEM if shape else pltpu.SMEM)


def device(tpu: Tpu) -> Any:
    """A device to compile for; starts libtpu."""
    return topologies.get_topology_desc(platform="tpu", topology_name=tpu.topology).devices[0]
