"""JAX's interpreters of Mosaic kernels, for GPUs and TPUs, on the CPU, with races and out-of-bounds reads detected."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.backends.jitted import interpreting_failure
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.precision import XLA_CPU, Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.batched_interpreter.run import InterpretedRows
from kerneltest.trace.batched_interpreter.values import UnknownError
from kerneltest.trace.cpu_options import quick
from kerneltest.trace.evaluator import evaluate
from kerneltest.trace.jax_compat import mosaic_interpreters as gpu
from kerneltest.trace.jax_compat import tpu_interpreter as tpu
from kerneltest.trace.jax_compat.mosaic_patches import patch_interpreters
from kerneltest.trace.jax_compat.mosaic_threads import Evaluate
from kerneltest.trace.jax_compat.patches import debugging_off_in_callbacks
from kerneltest.trace.jax_compat.tpu_layout import layout_of, overhanging_alias
from kerneltest.trace.jax_compat.tpu_memory import Fill as AnyFill
from kerneltest.trace.mosaic_rewrites import interpreted
from kerneltest.trace.platforms import INTERPRETED, on_a
from kerneltest.trace.rewrite import Fill
from kerneltest.trace.tracing import Call, Traced, device, device_problem
from kerneltest.trace.undefined import UNINITIALISED, UNWRITTEN, PartialArray, all_defined

# For TPUs, a kernel may leave its language open.
_FOREIGN = {"mosaic_gpu": {"triton", "mosaic_tpu", "any"}, "mosaic_tpu": {"triton", "mosaic_gpu"}}


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
        foreign = traced.written_for(_FOREIGN[self.dialect])
        return f"a kernel whose language is {foreign} is not one of {self.dialect}" if foreign else ""

    def prepare(self, traced: Traced) -> "Interpreted":
        return Interpreted(traced, self._calls(traced, self._compiled), XLA_CPU)

    def uncompiled(self, traced: Traced) -> "Uncompiled | None":
        if self.unsupported_reason(traced):
            return None
        try:
            return Uncompiled(traced, self._calls(traced, self._evaluated), XLA_CPU)
        except (Failure, UnknownError):
            return None

    def _calls(self, traced: Traced, prepared: Callable[[Call, Any], "_Run"]) -> dict[int, "_Run"]:
        try:
            with jax.default_device(device("cpu")), self._place(), patch_interpreters():
                return {id(call.equation): prepared(call, self._interpreted(call)) for call in traced.calls}
        except (Failure, UnknownError):
            raise
        except Exception as error:
            raise interpreting_failure(error, checks=True) from error

    def _interpreted(self, call: Call) -> Any:
        """A call's equation, which asks for the interpreter."""
        equation = call.equation
        if any(hasattr(v.aval, "inner_aval") for v in equation.invars):
            raise Failure(
                Verdict.UNAVAILABLE,
                f"{call.name or 'a kernel'} takes references from around it (pl.run_state), which are not followed: "
                "call it by pl.kernel, which takes arrays",
            )
        on_a_gpu = self.dialect == "mosaic_gpu"
        if not on_a_gpu and (name := overhanging_alias(equation)):
            raise Failure(
                Verdict.UNAVAILABLE,
                f"{call.name or 'a kernel'} writes {name} over an input, and {name} ends within a block, which JAX's "
                "interpreter cannot run: try lengths that are multiples of the block",
            )
        return interpreted(call, {"interpret": gpu.PARAMETERS} if on_a_gpu else tpu.parameters(equation))

    def _compiled(self, call: Call, interpreting: Any) -> "_Run":
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in interpreting.invars]
        traced = jax.jit(partial(interpreting.primitive.bind, **interpreting.params)).trace(*shapes)
        compiled = traced.lower().compile(compiler_options=quick(traced.jaxpr.jaxpr))
        return self._runs(call, compiled)

    def _evaluated(self, call: Call, interpreting: Any) -> "_Run":
        evaluated = InterpretedRows(interpreting)
        return self._runs(call, evaluated, evaluated.thread)

    def _runs(self, call: Call, runs: Callable[..., Any], thread: Evaluate | None = None) -> "_Run":
        if self.dialect == "mosaic_gpu":
            return lambda operands, fill: tpu.Ran(gpu.run(runs, operands, thread))
        layout = layout_of(call.equation)
        return lambda operands, fill: tpu.run(runs, layout, operands, fill, thread)

    def environment(self) -> dict[str, Any]:
        lacking = f"JAX {jax.__version__} detects those between copies into shared memory and reads, and no others"
        return {"races": "detected" if gpu.DETECTS_ALL_RACES or self.dialect == "mosaic_tpu" else lacking}

    def _place(self) -> Any:
        return on_a(INTERPRETED) if self.dialect == "mosaic_tpu" else nullcontext()


# Runs a call on its operands, with something of its own choice, or else this, where nobody wrote.
_Run = Callable[[Sequence[Any], AnyFill | None], tpu.Ran]


def _other(dtype: np.dtype[Any]) -> Any:
    """Not what JAX's interpreter puts where nobody wrote: that is NaN, or the largest integer."""
    return Fill(nan=not is_float(dtype))(dtype)


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A kernel whose Mosaic calls are interpreted, by compiled code or in NumPy.

    Attributes:
      traced: the kernel.
      calls: what runs each call, by the id of its equation.
      precision: of the numbers.
    """

    traced: Traced
    calls: dict[int, _Run]
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        try:
            with jax.default_device(device("cpu")), debugging_off_in_callbacks():
                outputs = evaluate(self.traced, leaves, lambda e, operands: _called(self.calls[id(e)], operands))
        except Failure:
            raise
        except Exception as error:
            raise Failure(Verdict.RUNTIME_ERROR, f"the kernel raised {type(error).__name__}: {error}") from error
        return all_defined(outputs)


class Uncompiled(Interpreted):
    """The same in NumPy. JAX's own interpreter is what runs there, so that it stands in for nothing but XLA."""

    def is_faithful(self, leaves: Sequence[Array]) -> bool:
        return True


def _called(run: _Run, operands: Sequence[PartialArray]) -> list[PartialArray]:
    """One call; where it read what nobody wrote, it is run again with something else there, to see what follows it."""
    ran = run([operand.values for operand in operands], None)
    sources = tuple(dict.fromkeys([*ran.reads, *(s for operand in operands for s in operand.sources)]))
    if not sources and not any(mask is not None for mask in ran.unwritten):
        return [PartialArray(output) for output in ran.outputs]
    others = run([_refilled(operand) for operand in operands], _other)
    results = []
    for number, (output, other) in enumerate(zip(ran.outputs, others.outputs, strict=True)):
        codes = np.where(_differ(output, other), np.uint8(UNINITIALISED), np.uint8(0))
        if ran.unwritten and (mask := ran.unwritten[number]) is not None:
            codes[mask] = UNWRITTEN
        results.append(PartialArray(output, codes, sources) if codes.any() else PartialArray(output))
    return results


def _refilled(operand: PartialArray) -> Any:
    if operand.undefined is None:
        return operand.values
    values = np.array(operand.values)
    values[operand.undefined != 0] = _other(values.dtype)
    return values


def _differ(one: Array, other: Array) -> Array:
    return np.asarray((one != other) & ~((one != one) & (other != other)))
