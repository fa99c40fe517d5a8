"""Pallas' own interpreter, on the CPU."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.base import Backend, Evaluation, Executable
from kerneltest.backends.jitted import compile_for
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.precision import XLA_CPU, Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.batched_interpreter.run import Rows
from kerneltest.trace.batched_interpreter.values import UnknownError
from kerneltest.trace.cpu_options import quick
from kerneltest.trace.index_maps import MappedCall, mapped_calls
from kerneltest.trace.tracing import Traced, device, device_problem


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
        calls = mapped_calls(traced)
        _check(calls)
        compiled = compile_for(traced, device("cpu"), XLA_CPU, interpret=True, options=quick(traced.jaxpr.jaxpr))
        prefetching = [call for call in calls if call.scalars]
        return Checked(compiled, prefetching) if prefetching else compiled

    def uncompiled(self, traced: Traced) -> Evaluation | None:
        if traced.eager:  # that is about JAX itself
            return None
        calls = mapped_calls(traced)
        try:
            _check(calls)
            return Evaluated(traced, _rows(traced), [call for call in calls if call.scalars])
        except (Failure, UnknownError):
            return None


def _rows(traced: Traced) -> Rows:
    """A kernel in NumPy, by JAX's own interpreter, which takes longer, where it does what is not known there."""
    try:
        return Rows(traced)
    except UnknownError:
        return Rows(traced, by_jax=True)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A kernel that runs in NumPy, whose functions are no less exact than XLA's.

    Attributes:
      traced: the kernel.
      rows: the same, for many inputs at once.
      calls: in it, with index maps that read prefetched scalars.
    """

    traced: Traced
    rows: Rows
    calls: Sequence[MappedCall]
    precision = XLA_CPU

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        _check(self.calls, leaves)
        return tuple(output[0] for output in self.rows([leaf[None] for leaf in leaves]))

    def run_all(self, cases: Sequence[Sequence[Array]]) -> Sequence[tuple[Array, ...]]:
        for leaves in cases:
            _check(self.calls, leaves)
        outputs = self.rows([np.stack(column) for column in zip(*cases, strict=True)])
        return [tuple(output[row] for output in outputs) for row in range(len(cases))]

    def is_faithful(self, leaves: Sequence[Array]) -> bool:
        """Whether JAX's own interpreter, its operations in NumPy as well, gives the same bits."""
        if self.rows.by_jax:
            return True
        whole = [leaf[None] for leaf in leaves]
        pairs = zip(self.rows(whole), Rows(self.traced, by_jax=True)(whole), strict=True)
        return all(one.tobytes() == other.tobytes() for one, other in pairs)


@dataclass(frozen=True, slots=True)
class Checked:
    """A kernel with calls whose index maps read prefetched scalars, which each case has others of."""

    compiled: Executable
    calls: Sequence[MappedCall]

    @property
    def precision(self) -> Precision:
        return self.compiled.precision

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        _check(self.calls, leaves)
        return self.compiled.run(leaves)


def _check(calls: Iterable[MappedCall], leaves: Sequence[Array] | None = None) -> None:
    """Pallas' interpreter moves a block that does not lie in its array to where it does.

    Raises:
      Failure: `out_of_bounds`, where a program takes such a block.
    """
    for call in calls:
        if outside := call.outside(leaves):
            raise Failure(Verdict.OUT_OF_BOUNDS, outside)
