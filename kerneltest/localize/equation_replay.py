"""Replays of cases in NumPy, of the original kernel and of patched ones, with the results compared.

A formula is compared with the oracle without rounding, so that a small bound cannot hide what a change does. The
outputs with rounding must be right as well.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache as cached
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, is_float, is_promotable
from kerneltest.core.failures import Failure, convert_exceptions
from kerneltest.core.precision import XLA_CPU
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import EDITED, JUDGED, WorkBudget
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import Variation
from kerneltest.judge.compare import Comparison, compare_outputs, is_wrong
from kerneltest.judge.formula import compare_closely
from kerneltest.localize.case_replay import replays
from kerneltest.localize.edited_evaluation import Compared, Edit, EditableJaxpr, EditableRules
from kerneltest.localize.sites import LocatedJaxpr, locate_equations
from kerneltest.oracle.expectation import Expectation, ExpectedOutputs, Outputs
from kerneltest.plan.explicit import AnyCase
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel, SampleArithmetic
from kerneltest.trace.cost_model import estimate_work
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.machine import EquationFunction, Machine, UnknownError
from kerneltest.trace.primitives import primitive_of
from kerneltest.trace.tracing import Traced, trace_in_float64

# A kernel that NumPy evaluates as it is or with other equations, with and without rounding.

# An edit of a located jaxpr; nothing if it does not apply to it.
MakeEdit = Callable[[LocatedJaxpr], Edit]


class EvaluatedKernel:
    """A traced kernel that NumPy evaluates; UnknownError if that does not know one of its operations.

    Attributes:
      own, wide: its jaxpr in its own dtypes, and traced in float64 if it can be.
      promoted: evaluates it without rounding, also in samples.
      work: that of a run.
      first: an edit that comes before every other one, such as the repair of another bug; None for none.
    """

    def __init__(
        self, traced: Traced, wide: Traced | None, lengths: Mapping[str, int], fixed: Collection[str] = ()
    ) -> None:
        self.traced = traced
        self.own = LocatedJaxpr(locate_equations(traced.jaxpr), lengths, fixed)
        self.wide = LocatedJaxpr(locate_equations(wide.jaxpr), lengths, fixed) if wide is not None else self.own
        self.promoted = PromotedKernel(wide or traced)
        self.work = estimate_work(traced)
        self.first: MakeEdit | None = None
        self._rounded = EditableJaxpr(self.own, _RoundedRules())
        self._formula = EditableJaxpr(self.wide, EditableRules())

    def run(self, leaves: Sequence[Array], make: MakeEdit = lambda jaxpr: (), *, rounded: bool) -> Outputs:
        """Returns the outputs: with each float rounded to its dtype, or in float64 in place of 16 bits or more."""
        if rounded:
            return self._narrow(self._rounded.evaluate(leaves, self._edit(make, self.own)))
        return self._formula.evaluate(leaves, self._edit(make, self.wide))

    def run_all(
        self, leaves: Sequence[Array], edits: Sequence[MakeEdit], *, rounded: bool
    ) -> Iterator[Compared | None]:
        """Yields the outputs with each of some edits and without it; None for one that raises."""
        evaluated, located = (self._rounded, self.own) if rounded else (self._formula, self.wide)
        for found in evaluated.evaluate_all(leaves, (partial(self._edit, make, located) for make in edits)):
            yield (self._narrow(found[0]), self._narrow(found[1])) if rounded and found is not None else found

    def _edit(self, make: MakeEdit, jaxpr: LocatedJaxpr) -> Edit:
        return [*(self.first(jaxpr) if self.first is not None else ()), *make(jaxpr)]

    def _narrow(self, outputs: Outputs) -> Outputs:
        return tuple(x.astype(o.dtype, copy=False) for x, o in zip(outputs, self.traced.outputs, strict=True))


class _RoundedRules(EditableRules):
    """Promoted numbers, rounded to the dtypes of the kernel."""

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        evaluate = super().rule(machine, equation)
        one = len(equation.outvars) == 1 and hasattr(equation.outvars[0].aval, "dtype")
        if not (one and primitive_of(equation).may_round):
            return evaluate
        dtype = np.dtype(equation.outvars[0].aval.dtype)
        if not is_float(dtype) or not is_promotable(dtype) or dtype == np.float64:
            return evaluate

        def rounded(operands: Sequence[Array]) -> Sequence[Array]:
            return [x.astype(dtype).astype(np.float64) if is_float(x.dtype) else x for x in evaluate(operands)]

        return rounded


class EquationReplay:
    """A call of a kernel with known results, evaluated in NumPy: as `CaseReplay`.

    An element of the original kernel's outputs may be wrong with rounding or without.
    """

    together, most_edits = 256, 2**13

    def __init__(
        self, case: AnyCase, variation: Variation, kernel: EvaluatedKernel, formulas: Sequence[Expectation | None]
    ) -> None:
        self.case, self.kernel, self.making = case, kernel, JUDGED + 2 * kernel.work.numpy_seconds(_SAMPLES)
        self._leaves, self._checks, self._formulas = variation.leaves, variation.checks, formulas
        self._samples = cached(self._sample)
        self._original = cached(lambda rounded: kernel.run(variation.leaves, rounded=rounded))
        self._found = cached(lambda check, rounded: self._compare(check, rounded, self._original(rounded)))
        self._precision = variation.traced.adapt_precision(XLA_CPU)

    @cached_property
    def _expected(self) -> list[ExpectedOutputs]:
        return [check.wanted(check.take(self._original(True)), self._precision) for check in self._checks]

    @property
    def expects_numbers(self) -> bool:
        """True if some element of an output is to be finite."""
        wanted = [self._expected[i] if formula is None else formula for i, formula in enumerate(self._formulas)]
        return any(bool(np.isfinite(value).any()) for each in wanted for value in each.values)

    @cached_property
    def has_wrong_formula(self) -> bool:
        """True if an output of the original kernel is wrong without roundings."""
        return any(is_wrong(self._found(check, False)) for check in self._asked(rounded=False))

    @cached_property
    def is_wrong_as_rounded(self) -> bool:
        """True if an output of the original kernel is wrong with the roundings of its dtypes."""
        return any(is_wrong(self._found(check, True)) for check in self._asked(rounded=True))

    @cached_property
    def is_wrong(self) -> bool:
        """True if an output of the original kernel is wrong, with or without rounding."""
        return self.has_wrong_formula or self.is_wrong_as_rounded

    def _asked(self, *, rounded: bool) -> list[int]:
        # The numbers of the checks that are made with rounding, or without it.
        return [number for number, formula in enumerate(self._formulas) if rounded or formula is not None]

    def _compare(self, check: int, rounded: bool, outputs: Outputs) -> list[Comparison]:
        part, formula = self._checks[check].take(outputs), self._formulas[check]
        if rounded:
            return compare_outputs(part, self._expected[check], signed_zeros=self._expected[check].bitwise)
        assert formula is not None
        # Samples of the original kernel widen the bound of every repair.
        return compare_closely(part, formula, lambda arithmetic: self._checks[check].take(self._samples(arithmetic)))

    def _sample(self, arithmetic: SampleArithmetic) -> Outputs:
        try:
            return tuple(self.kernel.promoted.sample(self._leaves, arithmetic))
        except UnknownError:
            return tuple(output[None] for output in self._original(False))

    def work(self, edits: int) -> float:
        """The work of judging the kernel with some edits, which share most of what does not depend on them."""
        return EDITED * edits + 2 * self.kernel.work.numpy_seconds(edits)  # with rounding and without

    def are_right(self, edits: Sequence[MakeEdit]) -> list[bool]:
        """Tells for each edit whether it leaves no element wrong, neither with rounding nor without."""
        found = [True] * len(edits)
        for rounded in (False, True):
            checks = self._asked(rounded=rounded)
            left = [number for number, right in enumerate(found) if right and checks]
            runs = self.kernel.run_all(self._leaves, [edits[number] for number in left], rounded=rounded)
            for number, run in zip(left, runs, strict=True):
                found[number] = run is not None and self._is_right(run[0], checks, rounded)
        return found

    def disturbed(self, edits: Sequence[MakeEdit]) -> list[tuple[bool, bool]]:
        """Tells for each edit whether it changes an element that is wrong, and one that is right."""
        rounded = not self.has_wrong_formula
        checks = self._asked(rounded=rounded)
        found = []
        for run in self.kernel.run_all(self._leaves, edits, rounded=rounded):
            if run is None:
                found.append((False, False))
                continue
            changed = [
                (before.wrong, ~_same(new, old))
                for check in checks
                for before, new, old in zip(
                    self._found(check, rounded), *map(self._checks[check].take, run), strict=True
                )
            ]
            found.append((any((c & w).any() for w, c in changed), any((c & ~w).any() for w, c in changed)))
        return found

    def _is_right(self, outputs: Outputs, checks: Sequence[int], rounded: bool) -> bool:
        try:
            for check in checks:
                before, part = self._found(check, rounded), self._checks[check].take(outputs)
                if not all(map(_may_be_right, before, part)):
                    return False
            return not any(is_wrong(self._compare(check, rounded, outputs)) for check in checks)
        except Exception:  # in samples, for example
            return False


def _same(one: Array, other: Array) -> Array:
    return np.asarray((one == other) | ((one != one) & (other != other)))


def _may_be_right(before: Comparison, got: Array) -> bool:
    # Whether an edit may have corrected all elements that were wrong: its cheapest test, before they are compared.
    if not before.wrong.any():
        return True
    new, old, rounded = (x[before.wrong] for x in (got, before.actual, before.rounded))
    with np.errstate(all="ignore"):
        if _same(new, old).any():
            return False
        if not is_float(got.dtype):
            return True
        number, expected, bound = new.astype(np.float64), before.wanted[before.wrong], before.bound[before.wrong]
        is_near = (np.abs(number - expected) <= bound) | (new == rounded)
        return bool((is_near | ~np.isfinite(number) | ~np.isfinite(expected)).all())


Judge = Callable[[EquationReplay], bool]
_SHARE = 0.05  # of the budget, that making one replay may take
_SAMPLES = 24  # of the original kernel, about, with which a replay is judged


def equation_replays(
    pairing: Pairing, cases: Iterable[AnyCase], family: str, *, judge: Judge = attrgetter("is_wrong"), **options: Any
) -> Iterator[EquationReplay]:
    """Yields replays of the cases that NumPy can evaluate; other arguments than `judge` are those of `replays`.

    A case is left out if `judge`, which judges the original kernel, raises with it, or if a budget is too small for it.
    """

    def make(case: AnyCase, variation: Variation, cache: Cache, kernels: dict[int, EvaluatedKernel]) -> EquationReplay:
        traced, plain = variation.traced, cache.traces.of(pairing, case.signature, backend)
        if id(traced) not in kernels:
            wide = trace_in_float64(pairing, case.signature, traced) if traced is plain else None
            fixed = {name for name, dim in pairing.dims.items() if len(dim.values) == 1}
            kernels[id(traced)] = EvaluatedKernel(traced, wide, dict(case.signature.dims), fixed)
        # Without rounding, the plain call is held to the oracle's own values.
        formulas = [
            cache.expectations.of(pairing, case, traced)[0]
            if check.formula is None and traced is plain
            else check.formula
            for check in variation.checks
        ]
        with convert_exceptions("the evaluation", Verdict.RUNTIME_ERROR):
            replay = EquationReplay(case, variation, kernels[id(traced)], formulas)
            if id(traced) != next(iter(kernels)) and replay.making > _SHARE * options.get("budget", WorkBudget()).work:
                raise Failure(Verdict.UNAVAILABLE, "too large to be replayed with many edits")
            judge(replay)
            return replay

    (backend,) = resolve(["interpret"])
    return replays(pairing, cases, family, backend, make, **options)
