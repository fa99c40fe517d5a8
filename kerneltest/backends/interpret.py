"""Pallas' own interpreter, on the CPU."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from kerneltest.backends.base import Backend, Executable, Outputs
from kerneltest.backends.jitted import NumpyExecutable, NumpyPath, compile_for, mesh_problem
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, warn_of_recovery
from kerneltest.core.precision import XLA_CPU, Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, InterpreterRules
from kerneltest.trace.index_maps import IndexMappedCall, calls_with_index_maps
from kerneltest.trace.jax_compat.jaxprs import asks_for_core
from kerneltest.trace.jax_environment import fast_compile_options
from kerneltest.trace.jaxpr_digest import equation_kinds
from kerneltest.trace.local_kernels import exchange_in
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.runnable import uses_outer_references
from kerneltest.trace.tracing import Traced, kernel_device

LOSES_OUTER_WRITES = jax.__version_info__ < (0, 12)


@dataclass(frozen=True, slots=True)
class Interpret(Backend):
    """Runs any kernel but Mosaic GPU's: its jaxpr is rewritten, so the kernel need not cooperate."""

    id: str
    tier = Tier.INTERPRET
    runs_jaxpr = True
    device_platform = "cpu"

    def unsupported_reason(self, traced: Traced) -> str:
        if "mosaic_gpu" in traced.dialects:
            return (
                "a Mosaic GPU kernel needs the Mosaic GPU interpreter (interpret-mosaic-gpu), not Pallas' general one"
            )
        if traced.in_triton:
            return f"{traced.in_triton} is written in Triton, which Pallas' interpreter does not run"
        return ""

    def unavailable_for(self, traced: Traced) -> str:
        if LOSES_OUTER_WRITES and (name := next((c.name for c in traced.calls if uses_outer_references(c)), "")):
            return (
                f"the interpreter of JAX {jax.__version__} loses what {name} writes to references from outside "
                "(pl.run_state): call it by pl.kernel, which takes arrays"
            )
        if any(asks_for_core(call.equation) for call in traced.calls):
            return "Pallas' general interpreter cannot run kernels that read their core's index"
        # Devices that exchange values around the calls can be interpreted together, on as many devices.
        calls = (call.equation for call in traced.calls)
        return traced.not_local and (exchange_in(calls) or mesh_problem(traced, "cpu"))

    def prepare(self, traced: Traced) -> Executable:
        prefetching = _check_calls(traced)
        compiled = compile_for(
            traced,
            kernel_device("cpu"),
            traced.adapt_precision(XLA_CPU),
            interpret=True,
            options=fast_compile_options(traced.jaxpr.jaxpr),
        )
        return PrefetchChecked(compiled, prefetching) if prefetching else compiled

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> NumpyPath:
        return NumpyPath(evaluate, compiled, count)


def evaluate(traced: Traced) -> NumpyExecutable | None:
    """Returns the evaluation of a kernel in NumPy; None if it needs a compiler. Raises what an evaluation cannot do."""
    if traced.eager or traced.not_local:  # an eager call tests JAX itself
        return None
    prefetching = _check_calls(traced)
    return NumpyEvaluation(traced, _rows(traced), prefetching)


# Returns a kernel in NumPy, by JAX's own interpreter, which is slower, if the batched one lacks an operation.
def _rows(traced: Traced) -> BatchedKernel:
    try:
        return BatchedKernel(traced)
    except Failure:  # a hang
        raise
    except Exception as error:
        warn_of_recovery(error, "preparing to evaluate a kernel in NumPy", UnknownError)
        return BatchedKernel(traced, InterpreterRules())


@dataclass(frozen=True, slots=True)
class NumpyEvaluation:
    """A kernel that runs in NumPy, whose functions are at least as accurate as XLA's."""

    traced: Traced
    rows: BatchedKernel
    prefetching: Sequence[IndexMappedCall]

    @property
    def precision(self) -> Precision:
        return self.traced.adapt_precision(XLA_CPU)

    @property
    def kinds(self) -> frozenset[Hashable]:
        return frozenset() if isinstance(self.rows.rules, InterpreterRules) else equation_kinds(self.traced.jaxpr)

    def check_blocks(self, leaves: Sequence[Array]) -> None:
        _check_blocks(self.prefetching, leaves)

    def run(self, leaves: Sequence[Array]) -> Outputs:
        (outputs,) = self.run_batch([leaves])
        return outputs

    def run_batch(self, cases: Sequence[Sequence[Array]]) -> Sequence[Outputs]:
        for leaves in cases:
            self.check_blocks(leaves)
        outputs = self.rows([np.stack(column) for column in zip(*cases, strict=True)])
        return [tuple(output[row] for output in outputs) for row in range(len(cases))]

    def run_jax_interpreter(self, leaves: Sequence[Array]) -> Outputs:
        """Returns the outputs of JAX's own interpreter, with its operations in NumPy as well."""
        kernel = BatchedKernel(self.traced, InterpreterRules())
        return tuple(output[0] for output in kernel([leaf[None] for leaf in leaves]))


@dataclass(frozen=True, slots=True)
class PrefetchChecked:
    """A compiled kernel whose index maps read prefetched scalars, so that its blocks are checked for each case."""

    compiled: Executable
    prefetching: Sequence[IndexMappedCall]

    @property
    def precision(self) -> Precision:
        return self.compiled.precision

    def run(self, leaves: Sequence[Array]) -> Outputs:
        _check_blocks(self.prefetching, leaves)
        return self.compiled.run(leaves)


# Checks the blocks of a kernel, and returns the calls whose blocks depend on a case.
def _check_calls(traced: Traced) -> list[IndexMappedCall]:
    calls = calls_with_index_maps(traced)
    _check_blocks(calls)
    return [call for call in calls if call.scalars]


# Checks that all blocks lie inside their arrays; Pallas' interpreter silently moves those that do not.
def _check_blocks(calls: Iterable[IndexMappedCall], leaves: Sequence[Array] | None = None) -> None:
    for call in calls:
        if fault := call.find_outside_block(leaves):
            raise Failure(Verdict.OUT_OF_BOUNDS, fault)
