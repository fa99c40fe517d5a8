"""XLA's CUDA compiler without a GPU, for whole jitted functions, Mosaic GPU kernels included."""

import base64
import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import Artifact, Backend
from kerneltest.backends.codegen.gpu_features import check_features
from kerneltest.backends.codegen.tiers import unsupported_on
from kerneltest.backends.compilation import Compiler
from kerneltest.backends.jitted import compile_failure, describe_compile_failure
from kerneltest.backends.lowering_errors import user_place
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.targets import KIB, TARGETS, XLA_TARGETS, Target, Tier
from kerneltest.trace.jax_compat.abstract_devices import module_bytes
from kerneltest.trace.jax_compat.mosaic_gpu_lowering import lowering_for
from kerneltest.trace.runnable import runnable
from kerneltest.trace.tracing import Traced

# XLA compiles Mosaic GPU kernels in a process for the first target that it compiled one for, so each has its own.
COMPILERS = {
    target.id: Compiler("kerneltest.backends.codegen.xla_compiler", "XLA's CUDA compiler", "hlo")
    for target in XLA_TARGETS.values()
}

# XLA's GpuTargetConfigProto, with NVIDIA's figures for A100 SXM 80 GB, H200 SXM 141 GB and B200 HGX.
_CONFIG = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: {optin} shared_memory_per_core: {shared}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  {figures}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
device_description_str: "{kind}"
"""
_FIGURES: Mapping[str, str] = {
    "sm_80": "core_count: 108 fpus_per_core: 64 clock_rate_ghz: 1.41 memory_bandwidth: 2039000000000 "
    "l2_cache_size: 41943040 device_memory_size: 85899345920",
    "sm_90": "core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98 memory_bandwidth: 4800000000000 "
    "l2_cache_size: 62914560 device_memory_size: 150754820096",
    "sm_100": "core_count: 148 fpus_per_core: 128 clock_rate_ghz: 1.965 memory_bandwidth: 8000000000000 "
    "l2_cache_size: 132120576 device_memory_size: 180000000000",
}


def target_config(target: Target) -> str:
    """Returns the text of XLA's GpuTargetConfigProto for a GPU of a target."""
    major, minor = target.compute_capability.split(".")
    return _CONFIG.format(
        optin=target.shared_memory,
        shared=target.shared_memory + KIB,
        figures=_FIGURES[target.id],
        major=major,
        minor=minor,
        kind=target.device_kind,
    )


@dataclass(frozen=True, slots=True)
class XlaCompile(Backend):
    """Compilation of the whole function, as JAX does it on a GPU of the target."""

    id: str
    target: Target
    tier = Tier.COMPILE

    @property
    def platform(self) -> str:
        return self.target.platform

    def unavailable(self) -> str:
        if importlib.util.find_spec("jax_cuda13_plugin") is None:
            return (
                "XLA's CUDA compiler is not installed (pip install kerneltest[xla-cuda]); compile:sm_* works without it"
            )
        if reason := _problem():
            return f"XLA's CUDA compiler does not start: {reason}"
        return ""

    def unsupported_reason(self, traced: Traced) -> str:
        if traced.in_triton:
            return f"{traced.in_triton} is written in Triton, which XLA does not compile"
        return unsupported_on(traced, self.target)

    def unavailable_for(self, traced: Traced) -> str:
        return traced.not_local  # it compiles whole functions, for one device

    def prepare(self, traced: Traced) -> Artifact:
        check_features(traced, self.target)
        hlo = _compile(runnable(traced, interpret=False), traced.inputs, self.target)
        return Artifact(len(traced.calls), files=lambda: {"optimized.hlo.txt": hlo})

    def environment(self) -> dict[str, Any]:
        return {"jax-cuda13-plugin": metadata.version("jax-cuda13-plugin")}


# Returns why XLA cannot compile even a copy, or "".
@functools.cache
def _problem() -> str:
    try:
        _compile(lambda x: [x], (ShapeDtype((1,), np.dtype(np.float32)),), TARGETS["sm_90"])
    except Failure as failure:
        return str(failure).splitlines()[0]
    return ""


# Lowers a function and compiles it for a target, or returns the optimised HLO from the cache.
def _compile(function: Callable[..., Any], inputs: Sequence[ShapeDtype], target: Target) -> str:
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in inputs]
    try:
        with lowering_for(target):
            lowered = jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",))
    except Exception as error:
        raise compile_failure(error) from error
    request = {"module": base64.b64encode(module_bytes(lowered)).decode(), "target": target_config(target)}
    answer = COMPILERS[target.id].ask(request)
    if "verdict" in answer:
        printed, message = answer["printed"], answer["message"]
        said = f"{message} ({printed})" if printed and printed not in message else message
        raise describe_compile_failure(answer["error"], said, user_place(printed))
    hlo: str = answer["hlo"]
    return hlo
