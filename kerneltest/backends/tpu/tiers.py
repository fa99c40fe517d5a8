"""Tiers that take a kernel to TPU code with no TPU: JAX's lowering, and XLA's TPU compiler after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerneltest.backends.base import Artifact, Backend
from kerneltest.backends.named import named
from kerneltest.backends.tpu.compile import compile_module, problem, version
from kerneltest.backends.tpu.lower import lower
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier, Tpu
from kerneltest.jaxprs.trace import Traced


def unsupported_on(traced: Traced, tpu: Tpu) -> str:
    """Why no kernel of this dialect is lowered for a TPU, or ""."""
    others = sorted(traced.dialects - {"any", "mosaic_tpu"})
    return f"a kernel written for {', '.join(others)} cannot be lowered for {tpu}" if others else ""


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
        return Artifact(len(modules), files=lambda: {f"{name}.mosaic.mlir": m.text for name, m in named(modules)})


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

    def lowered_by(self) -> str:
        return f"{Tier.LOWER}:{self.target}"

    def unsupported_reason(self, traced: Traced) -> str:
        return unsupported_on(traced, self.target)

    def prepare(self, traced: Traced) -> Artifact:
        modules = lower(traced, self.target)
        facts: dict[str, Mapping[str, int]] = {}
        advice: list[str] = []
        for name, module in named(modules):
            try:
                compiled = compile_module(module, self.target)
            except Failure as failure:
                message = f"kernel {name} for {self.target}: {failure}"
                raise Failure(failure.verdict, message, failure.stderr) from failure
            facts[name] = compiled.facts
            advice += [f"{name}: {line}" for line in compiled.advice]
        return Artifact(
            len(modules), facts, tuple(advice), lambda: {f"{name}.mosaic.mlir": m.text for name, m in named(modules)}
        )

    def environment(self) -> dict[str, Any]:
        return {"libtpu": version()}
