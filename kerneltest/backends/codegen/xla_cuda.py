"""XLA's CUDA compiler without a GPU, for whole jitted functions, Mosaic GPU kernels included."""

import base64
import functools
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import Artifact, Backend
from kerneltest.backends.codegen.tiers import unsupported_on
from kerneltest.backends.compilation import Compiler
from kerneltest.backends.jitted import compile_failure, describe_compile_failure
from kerneltest.backends.lowering_errors import user_place
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target, Tier
from kerneltest.trace.jax_compat.abstract_devices import module_bytes
from kerneltest.trace.platform_dispatch import abstract_platform
from kerneltest.trace.runnable import runnable
from kerneltest.trace.tracing import Traced

COMPILER = Compiler("kerneltest.backends.codegen.xla_compiler", "XLA's CUDA compiler", "hlo")

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
        if reason := _problem():
            return f"XLA's CUDA compiler does not start: {reason}"
        return ""

    def unsupported_reason(self, traced: Traced) -> str:
        return unsupported_on(traced, self.target)

    def unavailable_for(self, traced: Traced) -> str:
        return traced.not_local  # it compiles whole functions, for one device

    def prepare(self, traced: Traced) -> Artifact:
        hlo = _compile(runnable(traced, interpret=False), traced.inputs)
        return Artifact(len(traced.calls), files=lambda: {"optimized.hlo.txt": hlo})

    def environment(self) -> dict[str, Any]:
        return {"jax-cuda13-plugin": metadata.version("jax-cuda13-plugin")}


# Returns why XLA cannot compile even a copy, or "".
@functools.cache
def _problem() -> str:
    try:
        _compile(lambda x: [x], (ShapeDtype((1,), np.dtype(np.float32)),))
    except Failure as failure:
        return str(failure).splitlines()[0]
    return ""


# Lowers a function and compiles it for the H200, or returns the optimised HLO from the cache.
def _compile(function: Callable[..., Any], inputs: Sequence[ShapeDtype]) -> str:
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in inputs]
    try:
        with abstract_platform("cuda"):
            lowered = jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",))
    except Exception as error:
        raise compile_failure(error) from error
    request = {"module": base64.b64encode(module_bytes(lowered)).decode(), "target": _H200}
    answer = COMPILER.ask(request)
    if "verdict" in answer:
        printed, message = answer["printed"], answer["message"]
        said = f"{message} ({printed})" if printed and printed not in message else message
        raise describe_compile_failure(answer["error"], said, user_place(printed))
    hlo: str = answer["hlo"]
    return hlo
