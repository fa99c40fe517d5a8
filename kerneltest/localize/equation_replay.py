"""Replays of cases in NumPy, of the original kernel and of patched ones, with the results compared.

A formula is compared with the oracle without rounding, so that a small bound cannot hide what a change does. The
outputs with rounding must be right as well.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache as cached
from functools import cached_property, partial
from operator import attrgetter

import jax
import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, is_float, is_integer, is_promotable
from kerneltest.core.failures import convert_exceptions
from kerneltest.core.precision import XLA_CPU
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import Variation
from kerneltest.judge.compare import compare_outputs
from kerneltest.judge.formula import compare_closely
from kerneltest.localize.case_replay import distinctive_cases, replays
from kerneltest.localize.sites import LocatedJaxpr, SiteKey, locate_equations, site_key
from kerneltest.oracle.expectation import Expectation, ExpectedOutputs
from kerneltest.plan.explicit import AnyCase
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel, SampleArithmetic
from kerneltest.trace.jax_compat.jaxprs import ClosedJaxpr, Equation
from kerneltest.trace.machine import EquationFunction, Machine, UnknownError
from kerneltest.trace.primitives import primitive_of
from kerneltest.trace.tracing import Traced, trace_in_float64

# A kernel that NumPy evaluates as it is or with other equations, with and without rounding.

# Makes a mutated jaxpr; None if the mutation does not apply to it.
Mutate = Callable[[LocatedJaxpr], ClosedJaxpr | None]


@dataclass(frozen=True, slots=True)
class EquationPatch:
    """Other equations of a kernel."""

    mutate: Mutate | None = None  # mutates its jaxpr; None to leave it
    unrounded: SiteKey | None = None  # the place of the equations whose results are not rounded, or do not wrap

    def apply(self, jaxpr: LocatedJaxpr) -> ClosedJaxpr:
        changed = None if self.mutate is None else self.mutate(jaxpr)
        return jaxpr.jaxpr if changed is None else changed


_NO_PATCH = EquationPatch()


class EvaluatedRun:
    """The outputs of one evaluation, each computed when it is first asked for."""

    def __init__(self, kernel: "EvaluatedKernel", leaves: Sequence[Array], patch: EquationPatch) -> None:
        self._kernel, self._leaves, self._patch = kernel, leaves, patch

    @cached_property
    def rounded(self) -> tuple[Array, ...]:
        """The outputs in the kernel's dtypes, with each float rounded to its dtype."""
        kernel, patch = self._kernel, self._patch
        outputs = self._evaluate(kernel.rounded if patch == _NO_PATCH else kernel.with_rounding(patch))
        return tuple(x.astype(o.dtype, copy=False) for x, o in zip(outputs, self._kernel.traced.outputs, strict=True))

    @cached_property
    def formula(self) -> tuple[Array, ...]:
        """The outputs without rounding, float64 in place of floats of 16 bits or more."""
        kernel, patch = self._kernel, self._patch
        return self._evaluate(kernel.formula if patch == _NO_PATCH else kernel.without_rounding(patch))

    def _evaluate(self, kernel: BatchedKernel) -> tuple[Array, ...]:
        leaves = [x.astype(np.float64) if is_promotable(x.dtype) else x for x in self._leaves]
        with jax.enable_x64(True), np.errstate(all="ignore"):
            return tuple(output[0] for output in kernel([leaf[None] for leaf in leaves]))


class EvaluatedKernel:
    """A traced kernel that NumPy evaluates.

    Attributes:
      traced: the kernel.
      own: its jaxpr in its own dtypes.
      wide: the same, traced in float64 if it can be.
      promoted: evaluates it without rounding, also in samples.

    Raises:
      UnknownError: it contains an operation that NumPy does not evaluate.
    """

    def __init__(self, traced: Traced, wide: Traced | None, lengths: Mapping[str, int]) -> None:
        self.traced = traced
        self.own = LocatedJaxpr(locate_equations(traced.jaxpr), lengths)
        self.wide = LocatedJaxpr(locate_equations(wide.jaxpr), lengths) if wide is not None else self.own
        self.promoted = PromotedKernel(wide or traced)

    @cached_property
    def rounded(self) -> BatchedKernel:
        """It as it is, with roundings."""
        return self.with_rounding(_NO_PATCH)

    @cached_property
    def formula(self) -> BatchedKernel:
        """It as it is, without rounding."""
        return self.without_rounding(_NO_PATCH)

    def with_rounding(self, patch: EquationPatch) -> BatchedKernel:
        return BatchedKernel(replace(self.traced, jaxpr=patch.apply(self.own)), _RoundedRules(patch.unrounded))

    def without_rounding(self, patch: EquationPatch) -> BatchedKernel:
        return BatchedKernel(replace(self.traced, jaxpr=patch.apply(self.wide)), KernelRules(promotes=True))

    def run(self, leaves: Sequence[Array], patch: EquationPatch | None = None) -> EvaluatedRun:
        return EvaluatedRun(self, leaves, patch or _NO_PATCH)


class _RoundedRules(KernelRules):
    """Promoted numbers, rounded to the dtypes of the kernel but for the results of one place."""

    def __init__(self, unrounded: SiteKey | None) -> None:
        super().__init__(promotes=True)
        self._unrounded = unrounded

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        evaluate, primitive = super().rule(machine, equation), primitive_of(equation)
        if not primitive.may_round or len(equation.outvars) != 1 or not hasattr(equation.outvars[0].aval, "dtype"):
            return evaluate
        dtype = np.dtype(equation.outvars[0].aval.dtype)
        unrounded = self._unrounded
        if unrounded is not None and unrounded[1] == primitive.name and site_key(equation) == unrounded:
            return (lambda operands: operands) if is_integer(dtype) else evaluate
        if not is_float(dtype) or not is_promotable(dtype) or dtype == np.float64:
            return evaluate

        def rounded(operands: Sequence[Array]) -> Sequence[Array]:
            return [x.astype(dtype).astype(np.float64) if is_float(x.dtype) else x for x in evaluate(operands)]

        return rounded


class EquationReplay:
    """A call of a kernel with known results, evaluated in NumPy: as `CaseReplay`."""

    def __init__(
        self, case: AnyCase, variation: Variation, kernel: EvaluatedKernel, formulas: Sequence[Expectation | None]
    ) -> None:
        self.case, self.kernel = case, kernel
        self._leaves, self._checks, self._formulas = variation.leaves, variation.checks, formulas
        self._samples = cached(self._sample)
        self._original = kernel.run(self._leaves)
        self._precision = variation.traced.adapt_precision(XLA_CPU)

    @cached_property
    def _expected(self) -> list[ExpectedOutputs]:
        return [check.wanted(check.take(self._original.rounded), self._precision) for check in self._checks]

    @property
    def expects_numbers(self) -> bool:
        """True if some element of an output is to be finite."""
        wanted = [self._expected[i] if formula is None else formula for i, formula in enumerate(self._formulas)]
        return any(bool(np.isfinite(value).any()) for each in wanted for value in each.values)

    @cached_property
    def has_wrong_formula(self) -> bool:
        """True if an output of the original kernel is wrong without roundings."""
        return any(mask.any() for mask in self._wrong_without_rounding(self._original))

    @cached_property
    def is_wrong_as_rounded(self) -> bool:
        """True if an output of the original kernel is wrong with the roundings of its dtypes."""
        return any(mask.any() for mask in self._wrong_as_rounded(self._original))

    @property
    def is_wrong(self) -> bool:
        """True if an output of the original kernel is wrong, with or without rounding."""
        return self.has_wrong_formula or self.is_wrong_as_rounded

    def _sample(self, arithmetic: SampleArithmetic) -> tuple[Array, ...]:
        try:
            return tuple(self.kernel.promoted.sample(self._leaves, arithmetic))
        except UnknownError:
            return tuple(output[None] for output in self._original.formula)

    def attempt(self, patch: EquationPatch) -> EvaluatedRun:
        return self.kernel.run(self._leaves, patch)

    def is_right(self, run: EvaluatedRun) -> bool:
        """Tells whether no element is wrong, neither with rounding nor without; a patch that raises is not right."""
        try:
            masks = itertools.chain(self._wrong_without_rounding(run), self._wrong_as_rounded(run))
            return not any(mask.any() for mask in masks)
        except Exception:
            return False

    def _wrong_without_rounding(self, run: EvaluatedRun) -> Iterator[Array]:
        for check, formula in zip(self._checks, self._formulas, strict=True):
            if formula is not None:
                # Samples of the original kernel widen the bound of every repair.
                sample = partial(lambda part, arithmetic: part.take(self._samples(arithmetic)), check)
                for found in compare_closely(check.take(run.formula), formula, sample):
                    yield found.wrong

    def _wrong_as_rounded(self, run: EvaluatedRun) -> Iterator[Array]:
        for check, expected in zip(self._checks, self._expected, strict=True):
            for found in compare_outputs(check.take(run.rounded), expected, signed_zeros=expected.bitwise):
                yield found.wrong


def equation_replays(
    pairing: Pairing,
    cases: Iterable[AnyCase],
    family: str,
    *,
    distinctive: bool = True,
    deadline: float = np.inf,
    cache: Cache | None = None,
    kernels: dict[int, EvaluatedKernel] | None = None,
    judge: Callable[[EquationReplay], bool] = attrgetter("is_wrong"),
) -> Iterator[EquationReplay]:
    """Yields replays of cases, without those that NumPy cannot evaluate; see `replays`.

    Args:
      pairing: the kernel and its oracle.
      cases: the cases.
      family: the family that the first one was recorded under.
      distinctive: whether cases with distinctive values are added for the same lengths.
      deadline: when to stop, as a time of `time.monotonic`.
      cache, kernels: as for `replays`.
      judge: judges the original kernel; a case with which it raises cannot be evaluated.
    """

    def make(case: AnyCase, variation: Variation, cache: Cache, kernels: dict[int, EvaluatedKernel]) -> EquationReplay:
        traced, plain = variation.traced, cache.traces.of(pairing, case.signature, backend)
        if id(traced) not in kernels:
            wide = trace_in_float64(pairing, case.signature, traced) if traced is plain else None
            kernels[id(traced)] = EvaluatedKernel(traced, wide, dict(case.signature.dims))
        # Without rounding, the plain call is held to the oracle's own values.
        formulas = [
            cache.expectations.of(pairing, case, traced)[0]
            if check.formula is None and traced is plain
            else check.formula
            for check in variation.checks
        ]
        with convert_exceptions("the evaluation", Verdict.RUNTIME_ERROR):
            replay = EquationReplay(case, variation, kernels[id(traced)], formulas)
            judge(replay)
            return replay

    (backend,) = resolve(["interpret"])
    if distinctive:
        cases = list(cases)
        cases += distinctive_cases(pairing, cases)
    for replay in replays(pairing, cases, family, backend, make, deadline, cache, kernels):
        if replay is not None:
            yield replay
