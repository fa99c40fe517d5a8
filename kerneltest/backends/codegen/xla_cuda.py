"""XLA's CUDA compiler without a GPU, for whole jitted functions, Mosaic GPU kernels included."""

import functools
import importlib.util
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import jax
from jax.experimental import topologies

from kerneltest.backends.base import Artifact, Backend
from kerneltest.backends.codegen.gpu_tiers import unsupported_on
from kerneltest.backends.jitted import compile_failure
from kerneltest.core.targets import Target, Tier
from kerneltest.trace.jax_compat.patches import disable_disk_cache
from kerneltest.trace.runnable import runnable
from kerneltest.trace.tracing import Traced

# XLA's GpuTargetConfigProto for an H200, with NVIDIA's figures for the chip (SXM, 141 GB).
_H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 device_memory_size: 150754820096
  cuda_compute_capability { major: 9 minor: 0 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 13 minor: 0 patch: 0 }
device_description_str: "NVIDIA H200"
"""


@dataclass(frozen=True, slots=True)
class XlaCompile(Backend):
    """Compilation for an H200, as JAX does it there."""

    id: str
    target: Target
    tier = Tier.COMPILE

    @property
    def platform(self) -> str:
        return self.target.platform

    def unavailable(self) -> str:
        if importlib.util.find_spec("jax_cuda13_plugin") is None:
            return (
                "XLA's CUDA compiler is not installed (pip install kerneltest[xla-cuda]); "
                "compile:sm_90 works without it"
            )
        try:
            _device()
        except Exception as error:
            return f"XLA's CUDA compiler does not start ({error}); if this machine has no GPU, set JAX_PLATFORMS=cpu"
        return ""

    def unsupported_reason(self, traced: Traced) -> str:
        return unsupported_on(traced, self.target)

    def unavailable_for(self, traced: Traced) -> str:
        return traced.not_local  # it compiles whole functions, for one device

    def prepare(self, traced: Traced) -> Artifact:
        place = jax.sharding.SingleDeviceSharding(_device())
        shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype, sharding=place) for i in traced.inputs]
        try:
            staged = jax.jit(runnable(traced, interpret=False), out_shardings=place).trace(*shapes)
            with disable_disk_cache():
                compiled = staged.lower(lowering_platforms=("cuda",)).compile()
        except Exception as error:
            raise compile_failure(error) from error
        return Artifact(len(traced.calls), files=lambda: {"optimized.hlo.txt": compiled.as_text() or ""})

    def environment(self) -> dict[str, Any]:
        return {"jax-cuda13-plugin": metadata.version("jax-cuda13-plugin")}


@functools.cache
def _device() -> Any:
    one = topologies.get_topology_desc(platform="cuda", topology_name="one", topology="1x1x1", target_config=_H200)
    return one.devices[0]
