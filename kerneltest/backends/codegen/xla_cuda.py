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
from kerneltest.backends.codegen.tiers import LoweredKernel, lower_mosaic_gpu, spill_advice, unsupported_on
from kerneltest.backends.compilation import Compiler, unique_names
from kerneltest.backends.jitted import compile_failure, describe_compile_failure
from kerneltest.backends.lowering_errors import user_place
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.fingerprint import Fingerprint
from kerneltest.core.targets import KIB, TARGETS, XLA_TARGETS, Target, Tier
from kerneltest.trace.jax_compat.abstract_devices import module_bytes
from kerneltest.trace.jax_compat.mosaic_gpu_lowering import lowering_for
from kerneltest.trace.local_kernels import mesh_size
from kerneltest.trace.runnable import runnable
from kerneltest.trace.tracing import Traced

# XLA compiles Mosaic GPU kernels in a process for the first target that it compiled one for, so each has its own.
COMPILERS = {
    target.id: Compiler("kerneltest.backends.codegen.xla_compiler", "XLA's CUDA compiler")
    for target in XLA_TARGETS.values()
}

# XLA's GpuTargetConfigProto, with NVIDIA's figures for A100 SXM 80 GB, H200 SXM 141 GB,
# B200 HGX and RTX PRO 6000 Blackwell. With its accelerated features, ptxas compiles for sm_120a, as Mosaic GPU asks.
_CONFIG = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: {threads}
  shared_memory_per_block: 49152 shared_memory_per_block_optin: {optin} shared_memory_per_core: {shared}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  {figures}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {extension} }}
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
    "sm_120": "core_count: 188 fpus_per_core: 128 clock_rate_ghz: 2.617 memory_bandwidth: 1792000000000 "
    "l2_cache_size: 134217728 device_memory_size: 96000000000",
}


def target_config(target: Target) -> str:
    """Returns the text of XLA's GpuTargetConfigProto for a GPU of a target."""
    major, minor = target.compute_capability.split(".")
    return _CONFIG.format(
        optin=target.shared_memory,
        shared=target.shared_memory + KIB,
        threads=1536 if major == "12" else 2048,
        figures=_FIGURES[target.id],
        major=major,
        minor=minor,
        extension="NONE" if int(major) < 9 else "ACCELERATED_FEATURES",
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
        return ""  # it compiles whole functions, for all devices of their mesh

    def prepare(self, traced: Traced) -> Artifact:
        if "mosaic_gpu" in traced.dialects:
            lowered, kernels = lower_mosaic_gpu(traced, self.target)
        else:
            lowered, kernels = _lower(runnable(traced, interpret=False), traced.inputs, self.target), ()
        devices = mesh_size(traced.sharded) if traced.sharded is not None and traced.not_local else 1
        hlo, reports = _compile(lowered, kernels, self.target, devices)
        facts = {
            name: {**kernel.facts, **report}
            for (name, kernel), report in zip(unique_names(kernels), reports, strict=True)
        }
        advice = tuple(f"{name}: {line}" for name, each in facts.items() for line in spill_advice(each))
        return Artifact(len(traced.calls), facts, advice, lambda: {"optimized.hlo.txt": hlo})

    def environment(self) -> dict[str, Any]:
        return {"jax-cuda13-plugin": metadata.version("jax-cuda13-plugin")}


# Returns why XLA cannot compile even a copy, or "".
@functools.cache
def _problem() -> str:
    try:
        copied = _lower(lambda x: [x], (ShapeDtype((1,), np.dtype(np.float32)),), TARGETS["sm_90"])
        _compile(copied, (), TARGETS["sm_90"])
    except Failure as failure:
        return str(failure).splitlines()[0]
    return ""


def _lower(function: Callable[..., Any], inputs: Sequence[ShapeDtype], target: Target) -> Any:
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in inputs]
    try:
        with lowering_for(target):
            return jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",))
    except Exception as error:
        raise compile_failure(error) from error


# Compiles what JAX has lowered, or takes it from the cache. Returns the optimised HLO, and ptxas' report of each of
# some Mosaic GPU kernels.
def _compile(
    lowered: Any, kernels: Sequence[LoweredKernel], target: Target, devices: int = 1
) -> tuple[str, list[dict[str, int]]]:
    request = {
        "module": base64.b64encode(module_bytes(lowered)).decode(),
        "target": target_config(target),
        "devices": devices,
        "kernels": [(kernel.name, Fingerprint.of(kernel.bytecode).text) for kernel in kernels],
    }
    answer = COMPILERS[target.id].ask(request)
    if "verdict" in answer:
        printed, message = answer["printed"], answer["message"]
        said = f"{message} ({printed})" if printed and printed not in message else message
        raise describe_compile_failure(answer["error"], said, user_place(printed))
    return answer["hlo"], answer["reports"]
