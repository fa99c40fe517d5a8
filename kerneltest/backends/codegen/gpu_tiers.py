"""The tiers of GPU code without a GPU: JAX's lowering, and Triton's compiler."""

import importlib.util
from dataclasses import dataclass
from typing import Any

from kerneltest.backends.base import Artifact, Backend
from kerneltest.backends.codegen.gpu_lowering import LoweredKernel, lower
from kerneltest.backends.codegen.triton_compile import compile_kernel, triton_version
from kerneltest.backends.kernel_names import compile_each, unique_names
from kerneltest.core.targets import Target, Tier
from kerneltest.trace.tracing import Traced


def unsupported_on(traced: Traced, target: Target) -> str:
    """Returns why kernels of this dialect are not lowered for `target`, or ""."""
    if foreign := traced.foreign_dialect({"mosaic_tpu"}):
        return f"a kernel written for {foreign} cannot be lowered for {target}"
    if "mosaic_gpu" in traced.dialects and (target.platform != "cuda" or int(target.arch) < 90):
        return f"Mosaic GPU lowers for Hopper (sm_90) and newer, not for {target}"
    return ""


@dataclass(frozen=True, slots=True)
class LowerGpu(Backend):
    """Lowering to Triton IR, or to Mosaic GPU's for kernels written in it."""

    id: str
    target: Target
    tier = Tier.LOWER

    @property
    def platform(self) -> str:
        return self.target.platform

    def unsupported_reason(self, traced: Traced) -> str:
        return unsupported_on(traced, self.target)

    def unavailable_for(self, traced: Traced) -> str:
        # Mosaic GPU kernels are lowered together with the function around them.
        return traced.not_local if "mosaic_gpu" in traced.dialects else Backend.unavailable_for(self, traced)

    def prepare(self, traced: Traced) -> Artifact:
        kernels = lower(traced, self.target)
        return Artifact(len(kernels), files=lambda: _files(kernels))


@dataclass(frozen=True, slots=True)
class CompileGpu(Backend):
    """Compilation by the `triton` package to PTX and machine code, or to AMDGCN."""

    id: str
    target: Target
    tier = Tier.COMPILE

    @property
    def platform(self) -> str:
        return self.target.platform

    def unavailable(self) -> str:
        if importlib.util.find_spec("triton") is None:
            return "the triton package is not installed (pip install kerneltest[compile]); lower:* works without it"
        return Backend.unavailable(self)

    def lowering_backend(self) -> str:
        return f"{Tier.LOWER}:{self.target}"

    def unsupported_reason(self, traced: Traced) -> str:
        if "mosaic_gpu" in traced.dialects:
            return "Mosaic GPU code is compiled by XLA, not by Triton"
        return unsupported_on(traced, self.target)

    def prepare(self, traced: Traced) -> Artifact:
        kernels = lower(traced, self.target)
        compiled_calls = compile_each(kernels, self.target, compile_kernel)
        advice = tuple(f"{name}: {line}" for name, compiled in compiled_calls.items() for line in compiled.advice)
        ending = "ptx" if self.target.platform == "cuda" else "amdgcn"
        assembly = {f"{name}.{ending}": compiled.assembly for name, compiled in compiled_calls.items()}
        facts = {name: compiled.facts for name, compiled in compiled_calls.items()}
        return Artifact(len(kernels), facts, advice, lambda: {**_files(kernels), **assembly})

    def environment(self) -> dict[str, Any]:
        return {"triton": triton_version()}


def _files(kernels: tuple[LoweredKernel, ...]) -> dict[str, str]:
    return {f"{name}.ttir": kernel.text for name, kernel in unique_names(kernels) if kernel.language == "triton"}
