"""XLA's compilers on a machine without their devices: lowered modules as bytecode, compiled for a described device."""

import functools
from typing import Any

import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client  # type: ignore[attr-defined, unused-ignore]
from jax.experimental import topologies
from jaxlib.mlir import ir


def module_bytes(lowered: Any) -> bytes:
    """Bytecode of the StableHLO, Mosaic modules included, that `jax.jit(...).trace(...).lower(...)` returned."""
    written: bytes = mlir.module_to_bytecode(lowered.compiler_ir("stablehlo"))
    return written


@functools.cache
def described_gpu(config: str) -> Any:
    """Returns the device that the text of a GpuTargetConfigProto describes; loads XLA's CUDA plugin."""
    one = topologies.get_topology_desc(platform="cuda", topology_name="one", topology="1x1x1", target_config=config)
    return one.devices[0]


def compile_for_device(module: bytes, device: Any) -> Any:
    """Compiles StableHLO bytecode for one device of a topology, and returns XLA's executable."""
    options = compiler.get_compile_options(1, 1, device_assignment=np.array([[device.id]]))
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        return device.client.compile(
            parsed, executable_devices=xla_client.DeviceList((device,)), compile_options=options
        )
