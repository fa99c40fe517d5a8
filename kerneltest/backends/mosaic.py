"""JAX's interpreters of Mosaic kernels, for GPUs and TPUs, on the CPU, with races and out-of-bounds reads detected."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.backends.jitted import interpreting_failure
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.precision import XLA_CPU, Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.jaxprs.compat.mosaic_interpreters import DETECTS_ALL_RACES, GPU, TPU, Interpreter, run
from kerneltest.jaxprs.compat.names import debugging_off_in_callbacks
from kerneltest.jaxprs.evaluate import PartialArray, evaluate
from kerneltest.jaxprs.mosaic import interpreted
from kerneltest.jaxprs.trace import INTERPRETED, Traced, device_problem, on_a


@dataclass(frozen=True, slots=True)
class InterpretMosaic(Backend):
    """Threads, on-chip memory, asynchronous copies and barriers of a Mosaic kernel, with their order in time.

    Attributes:
      dialect: of the kernels it is for, `mosaic_gpu` or `mosaic_tpu`.
    """

    id: str
    dialect: str
    tier = Tier.INTERPRET
    costly = True

    @property
    def platform(self) -> str:
        return INTERPRETED if self.dialect == "mosaic_tpu" else "cuda"

    def unavailable(self) -> str:
        return device_problem("cpu")

    def unsupported_reason(self, traced: Traced) -> str:
        others = sorted(traced.dialects - {self.dialect, *(("any",) if self.dialect == "mosaic_tpu" else ())})
        return f"a kernel whose language is {', '.join(others)} is not one of {self.dialect}" if others else ""

    def prepare(self, traced: Traced) -> "Interpreted":
        interpreter = GPU if self.dialect == "mosaic_gpu" else TPU
        compiled = {}
        try:
            with jax.default_device(jax.devices("cpu")[0]), self._place():
                for call in traced.calls:
                    function, shapes = interpreted(call, interpreter.parameters)
                    compiled[id(call.equation)] = jax.jit(function).lower(*shapes).compile()
        except Exception as error:
            raise interpreting_failure(error, checks=True) from error
        return Interpreted(traced, interpreter, compiled, XLA_CPU)

    def environment(self) -> dict[str, Any]:
        lacking = f"JAX {jax.__version__} detects those between copies into shared memory and reads, and no others"
        return {"races": "detected" if DETECTS_ALL_RACES or self.dialect == "mosaic_tpu" else lacking}

    def _place(self) -> Any:
        return on_a(INTERPRETED) if self.dialect == "mosaic_tpu" else nullcontext()


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A kernel whose Mosaic calls are compiled with the interpreter in them."""

    traced: Traced
    interpreter: Interpreter
    compiled: dict[int, Any]
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        def call(equation: Any, operands: list[PartialArray]) -> list[PartialArray]:
            arrays = [operand.values for operand in operands]
            return [PartialArray(each) for each in run(self.interpreter, self.compiled[id(equation)], arrays)]

        try:
            with jax.default_device(jax.devices("cpu")[0]), debugging_off_in_callbacks():
                outputs = evaluate(self.traced, leaves, call)
        except Failure:
            raise
        except Exception as error:
            raise Failure(Verdict.RUNTIME_ERROR, f"the kernel raised {type(error).__name__}: {error}") from error
        return tuple(np.asarray(output.values) for output in outputs)
