"""XLA's TPU compiler on a machine without a TPU: lowered modules, compiled for a topology."""

import base64
import functools
from typing import Any

from jax._src.lib import tpu  # type: ignore[attr-defined, unused-ignore]
from jax.experimental import topologies
from jaxlib.mlir import ir

from kerneltest.trace.jax_compat.device_free_compilation import compile_for_device
from kerneltest.trace.jax_compat.mlir import CustomCall

TPU_CUSTOM_CALL = "tpu_custom_call"


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
    return compile_for_device(module, device_of(topology))
