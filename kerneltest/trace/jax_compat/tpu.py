"""XLA's TPU compiler, with no TPU: modules that JAX lowered elsewhere, compiled for a topology."""

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

CALL = "tpu_custom_call"


def module_bytes(lowered: Any) -> bytes:
    """The StableHLO that `jax.jit(...).trace(...).lower(...)` returned, Mosaic's modules in its custom calls."""
    written: bytes = mlir.module_to_bytecode(lowered.compiler_ir("stablehlo"))
    return written


def mosaic_module(call: CustomCall) -> bytes:
    """The Mosaic module in one of the custom calls, as bytecode."""
    return base64.b64decode(call.config["custom_call_config"]["body"])


def mosaic_text(module: bytes) -> str:
    """A Mosaic module as MLIR text."""
    context = ir.Context()
    tpu.register_dialect(context)
    context.allow_unregistered_dialects = True
    return str(ir.Module.parse(module, context))


@functools.cache
def device_of(topology: str) -> Any:
    """A device of a topology, such as `v5e:2x2`, to compile for; starts libtpu."""
    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]


def compiled(module: bytes, topology: str) -> Any:
    """Compiles StableHLO for one device of a topology; what comes back tells its costs."""
    device = device_of(topology)
    options = compiler.get_compile_options(1, 1, device_assignment=np.array([[device.id]]))
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        return device.client.compile(
            parsed, executable_devices=xla_client.DeviceList((device,)), compile_options=options
        )
