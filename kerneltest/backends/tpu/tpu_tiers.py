"""The tiers of TPU code without a TPU: JAX's lowering, and XLA's TPU compiler."""

from dataclasses import dataclass
from typing import Any

from kerneltest.backends.base import Artifact, Backend
from kerneltest.backends.kernel_names import compile_each, unique_names
from kerneltest.backends.tpu.tpu_compile import compile_module, problem, version
from kerneltest.backends.tpu.tpu_lowering import MosaicModule, lower
from kerneltest.core.targets import Tier, Tpu
from kerneltest.trace.tracing import Traced


def unsupported_on(traced: Traced, tpu: Tpu) -> str:
    """Returns why kernels of this dialect are not lowered for a TPU, or ""."""
    foreign = traced.foreign_dialect({"triton", "mosaic_gpu"})
    return f"a kernel written for {foreign} cannot be lowered for {tpu}" if foreign else ""


@dataclass(frozen=True, slots=True)
class LowerTpu(Backend):
    """Lowering to Mosaic."""

    id: str
    target: Tpu
    tier = Tier.LOWER

    @property
    def platform(self) -> str:
        return self.target.id

    def unsupported_reason(self, traced: Traced) -> str:
        return unsupported_on(traced, self.target)

    def prepare(self, traced: Traced) -> Artifact:
        modules = lower(traced, self.target)
        return Artifact(len(modules), files=lambda: _files(modules))


@dataclass(frozen=True, slots=True)
class CompileTpu(Backend):
    """Compilation by libtpu."""

    id: str
    target: Tpu
    tier = Tier.COMPILE

    @property
    def platform(self) -> str:
        return self.target.id

    def unavailable(self) -> str:
        return Backend.unavailable(self) or problem(self.target)

    def lowering_backend(self) -> str:
        return f"{Tier.LOWER}:{self.target}"

    def unsupported_reason(self, traced: Traced) -> str:
        return unsupported_on(traced, self.target)

    def prepare(self, traced: Traced) -> Artifact:
        modules = lower(traced, self.target)
        compiled_calls = compile_each(modules, self.target, compile_module)
        advice = tuple(f"{name}: {line}" for name, compiled in compiled_calls.items() for line in compiled.advice)
        facts = {name: compiled.facts for name, compiled in compiled_calls.items()}
        return Artifact(len(modules), facts, advice, lambda: _files(modules))

    def environment(self) -> dict[str, Any]:
        return {"libtpu": version()}


def _files(modules: tuple[MosaicModule, ...]) -> dict[str, str]:
    return {f"{name}.mosaic.mlir": module.text for name, module in unique_names(modules)}
