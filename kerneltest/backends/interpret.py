"""Pallas' own interpreter, on the CPU."""

from dataclasses import dataclass

import jax

from kerneltest.backends.base import Backend, Executable
from kerneltest.backends.jitted import compile_for
from kerneltest.core.precision import XLA_CPU
from kerneltest.core.targets import Tier
from kerneltest.jaxprs.trace import Traced, device_problem

# The interpreter's loops gain nothing from LLVM's optimiser, and its compilation is most of the time.
OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@dataclass(frozen=True, slots=True)
class Interpret(Backend):
    """Any kernel, with no cooperation from it: its jaxpr is rewritten."""

    id: str
    tier = Tier.INTERPRET
    runs_jaxpr = True

    def unavailable(self) -> str:
        return device_problem("cpu")

    def unsupported_reason(self, traced: Traced) -> str:
        if "mosaic_gpu" in traced.dialects:
            return (
                "a Mosaic GPU kernel needs the Mosaic GPU interpreter (interpret-mosaic-gpu), not Pallas' general one"
            )
        return ""

    def prepare(self, traced: Traced) -> Executable:
        device = jax.devices("cpu")[0]
        return compile_for(traced, device, XLA_CPU, interpret=True, options=OPTIONS)
