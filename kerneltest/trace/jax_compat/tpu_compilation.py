"""XLA's TPU compiler on a machine without a TPU: lowered modules, compiled for a topology."""

import base64
import functools
from typing import Any

import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import tpu, xla_client  # type: ignore[attr-defined, unused-ignore]
from jax.experimental import topologies
from jaxlib.mlir import ir

from kerneltest.trace.jax_compat.mlir import CustomCall

TPU_CUSTOM_CALL = "tpu_custom_call"


def module_bytes(lowered: Any) -> bytes:
    """Bytecode of the StableHLO, Mosaic modules included, that `jax.jit(...).trace(...).lower(...)` returned."""
    written: bytes = mlir.module_to_bytecode(lowered.compiler_ir("stablehlo"))
    return written


def mosaic_module(call: CustomCall) -> bytes:
    """Bytecode of the Mosaic module in a custom call."""
    return base64.b64decode(call.config["custom_call_config"]["body"])


def mosaic_text(module: bytes) -> str:
    """MLIR text of a Mosaic module."""
    context = ir.Context()
    tpu.register_dialect(context)
    context.allow_unregistered_dialects = True
    return str(ir.Module.parse(module, context))


@functools.cache
def device_of(topology: str) -> Any:
    """Returns a device of a topology, such as `v5e:2x2`, to compile for; starts libtpu."""
    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]


def compile_for_topology(module: bytes, topology: str) -> Any:
    """Compiles StableHLO bytecode for one device of a topology.

    Returns:
      XLA's executable, which reports its costs.
    """
    device = device_of(topology)
    options = compiler.get_compile_options(1, 1, device_assignment=np.array([[device.id]]))
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        return device.client.compile(
            parsed, executable_devices=xla_client.DeviceList((device,)), compile_options=options
        )
