"""JAX's interpreters of Mosaic kernels for GPUs and TPUs, on the CPU. They detect races and out-of-bounds reads."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax

from kerneltest.backends.base import Backend, Executable, Outputs
from kerneltest.backends.jitted import NumpyPath, interpreting_failure
from kerneltest.core.details import Raised
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.precision import XLA_CPU, Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.batched_interpreter.kernel_rules import NumpyInterpretedCall
from kerneltest.trace.jax_compat import mosaic_gpu_interpreter as gpu
from kerneltest.trace.jax_compat import tpu_interpreter as tpu
from kerneltest.trace.jax_compat.interpreter_threads import EvaluateThread, patch_interpreters
from kerneltest.trace.jax_compat.jaxprs import Equation, sparse_cores
from kerneltest.trace.jax_compat.patches import disable_debugging_in_callbacks
from kerneltest.trace.jax_compat.tpu_interpreter import layout_of, overhanging_alias
from kerneltest.trace.jax_environment import fast_compile_options
from kerneltest.trace.partial_arrays import FilledCall, FilledRun, PartialKernel, require_defined, run_filled
from kerneltest.trace.platform_dispatch import DIALECT_MODULES, INTERPRETED_TPU, abstract_platform
from kerneltest.trace.rewrite import rewrite_for_interpreter
from kerneltest.trace.runnable import refuse_outer_references
from kerneltest.trace.tracing import Call, Traced, kernel_device

# Languages that each dialect excludes. A kernel for TPUs may leave its language open.
_FOREIGN = {"mosaic_gpu": {"triton", "mosaic_tpu", "any"}, "mosaic_tpu": {"triton", "mosaic_gpu"}}


@dataclass(frozen=True, slots=True)
class InterpretMosaic(Backend):
    """Runs Mosaic kernels with their threads, on-chip memory, asynchronous copies, barriers and order in time."""

    id: str
    dialect: str  # of the kernels it runs, `mosaic_gpu` or `mosaic_tpu`
    tier = Tier.INTERPRET
    costly = True
    device_platform = "cpu"

    @property
    def platform(self) -> str:
        return INTERPRETED_TPU if self.dialect == "mosaic_tpu" else "cuda"

    def unsupported_reason(self, traced: Traced) -> str:
        foreign = traced.foreign_dialect(_FOREIGN[self.dialect])
        module = DIALECT_MODULES[self.dialect]
        if foreign == "any":
            needed = f"plgpu.kernel, or compiler_params=plgpu.CompilerParams() of {module},"
            return f"the kernel uses nothing of {module}; {needed} selects this interpreter"
        return f"the kernel is written for {foreign}, not for {self.dialect}" if foreign else ""

    def unavailable_for(self, traced: Traced) -> str:
        if (count := max((sparse_cores(call.equation) for call in traced.calls), default=0)) > 1:
            return f"JAX's interpreter of TPU kernels runs one of the {count} SparseCore subcores of the kernel"
        return Backend.unavailable_for(self, traced)

    def prepare(self, traced: Traced) -> "Interpreted":
        return Interpreted(traced, self._prepare_calls(traced, self._compile), traced.adapt_precision(XLA_CPU))

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> NumpyPath:
        return NumpyPath(self.evaluate, compiled, count)

    def evaluate(self, traced: Traced) -> "InterpretedInNumpy | None":
        """Returns the kernel with the operations of JAX's interpreter in NumPy; None if it needs a compiler."""
        if self.unsupported_reason(traced):
            return None
        return InterpretedInNumpy(traced, self._prepare_calls(traced, self._evaluate), traced.adapt_precision(XLA_CPU))

    def _prepare_calls(self, traced: Traced, prepare: Callable[[Call, Equation], FilledCall]) -> dict[int, FilledCall]:
        try:
            place = abstract_platform(INTERPRETED_TPU if self.dialect == "mosaic_tpu" else "")
            with jax.default_device(kernel_device("cpu")), place, patch_interpreters():
                return {id(call.equation): prepare(call, self._rewrite(call)) for call in traced.calls}
        except Failure:
            raise
        except Exception as error:
            raise interpreting_failure(error, checks=True) from error

    def _rewrite(self, call: Call) -> Equation:
        equation = call.equation
        refuse_outer_references(call)
        on_a_gpu = self.dialect == "mosaic_gpu"
        if not on_a_gpu and (name := overhanging_alias(equation)):
            raise Failure(
                Verdict.UNAVAILABLE,
                f"{call.name or 'a kernel'} writes {name} over an input, and {name} ends within a block, which JAX's "
                "interpreter cannot run: use lengths that are multiples of the block",
            )
        return rewrite_for_interpreter(
            equation, {"interpret": gpu.PARAMETERS} if on_a_gpu else tpu.interpret_parameters(equation)
        )

    def _compile(self, call: Call, equation: Equation) -> FilledCall:
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
        traced = jax.jit(partial(equation.primitive.bind, **equation.params)).trace(*shapes)
        return self._runner(call, traced.lower().compile(compiler_options=fast_compile_options(traced.jaxpr.jaxpr)))

    def _evaluate(self, call: Call, equation: Equation) -> FilledCall:
        evaluation = NumpyInterpretedCall(equation)
        return self._runner(call, evaluation, evaluation.run_thread)

    def _runner(self, call: Call, function: Callable[..., Any], thread: EvaluateThread | None = None) -> FilledCall:
        if self.dialect == "mosaic_gpu":
            return lambda operands, fill: FilledRun(gpu.run(function, operands, thread))
        layout = layout_of(call.equation)
        return lambda operands, fill: FilledRun(*tpu.run(function, layout, operands, fill, thread))

    def environment(self) -> dict[str, Any]:
        lacking = f"JAX {jax.__version__} detects only those between copies into shared memory and reads"
        return {"races": "detected" if gpu.DETECTS_ALL_RACES or self.dialect == "mosaic_tpu" else lacking}


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A kernel whose Mosaic calls are interpreted by functions, one for the id of each call's equation."""

    traced: Traced
    calls: dict[int, FilledCall]
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> Outputs:
        try:
            with jax.default_device(kernel_device("cpu")), disable_debugging_in_callbacks():
                kernel = PartialKernel(self.traced, lambda e, operands: run_filled(self.calls[id(e)], operands))
                outputs = kernel(leaves)
        except Failure:
            raise
        except Exception as error:
            detail = Raised("the kernel", type(error).__name__, exception_text(error))
            raise Failure(Verdict.RUNTIME_ERROR, detail) from error
        return require_defined(outputs)


class InterpretedInNumpy(Interpreted):
    """The same with NumPy in place of XLA. JAX's own interpreter runs there, so nothing else is substituted."""

    kinds: ClassVar[frozenset[Hashable]] = frozenset()

    run_jax_interpreter = Interpreted.run
