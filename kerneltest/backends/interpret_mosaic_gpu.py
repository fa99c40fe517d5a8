"""JAX's interpreter of Mosaic GPU kernels, on the CPU, with races and out-of-bounds reads detected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import BackendError
from kerneltest.backends.jitted import failure
from kerneltest.dtypes import Array
from kerneltest.evaluate import Held, evaluate
from kerneltest.mosaic_interpret import DETECTS_ALL_RACES, InterpretError, parameters, run
from kerneltest.mosaic_rewrite import interpreted
from kerneltest.tolerance import Precision
from kerneltest.trace import Traced


@dataclass(frozen=True, slots=True)
class InterpretMosaicGpu:
    """Threads, shared memory, asynchronous copies and barriers of a Mosaic GPU kernel, with their order in time.

    XLA's CPU code, which does the arithmetic, flushes subnormal float32 numbers to zero (jax issue 16200).
    """

    id: str = "interpret-mosaic-gpu"
    tier: str = "interpret"

    def unavailable(self) -> str:
        try:
            jax.devices("cpu")
        except RuntimeError as error:
            return f"JAX has no CPU device here: {error}"
        return ""

    def refuses(self, traced: Traced) -> str:
        others = sorted(traced.dialects - {"mosaic_gpu"})
        return f"a kernel whose language is {', '.join(others)} is not one of Mosaic GPU" if others else ""

    def prepare(self, traced: Traced) -> "Interpreted":
        compiled = {}
        try:
            for call in traced.calls:
                function, shapes = interpreted(call, parameters())
                compiled[id(call.equation)] = jax.jit(function).lower(*shapes).compile()
        except Exception as error:
            raise failure(error) from error
        return Interpreted(traced, compiled, Precision(flushes=True))

    def environment(self) -> dict[str, Any]:
        lacking = f"JAX {jax.__version__} detects those between copies into shared memory and reads, and no others"
        return {"races": "detected" if DETECTS_ALL_RACES else lacking}


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A kernel whose Mosaic GPU calls are compiled with the interpreter in them."""

    traced: Traced
    compiled: dict[int, Any]
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        def call(equation: Any, operands: list[Held]) -> list[Held]:
            return [Held(value) for value in run(self.compiled[id(equation)], [held.values for held in operands])]

        try:
            with jax.default_device(jax.devices("cpu")[0]):
                outputs = evaluate(self.traced, leaves, call)
        except InterpretError as error:
            raise BackendError(error.verdict, str(error)) from error
        except Exception as error:
            raise BackendError("runtime_error", f"the kernel raised {type(error).__name__}: {error}") from error
        return tuple(np.asarray(held.values) for held in outputs)
