"""The two questions about the values of a case: is the formula right, and is the rounding?"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.details import ErrorCause, MismatchCause
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.precision import Precision
from kerneltest.execute.batching import evaluate_apart, kernel_inputs
from kerneltest.execute.cache import Cache
from kerneltest.execute.formula_check import (
    FORMULA_ARITHMETIC,
    NotPromotedError,
    OwnRounding,
    answer_from,
    ask_formula,
    claim_formula,
    compare_closely,
    compare_formula,
    formula_cause,
    is_lost,
    is_right_unrounded,
    overflows_own_dtypes,
    own_format,
    own_kernel,
    own_rounding,
    rounding_cause,
    run_promoted,
    sample_kernel,
)
from kerneltest.execute.invariant_context import InvariantContext, OutputCheck, Variation
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.output_comparison import BIT_FOR_BIT, CallOutputs, WrongOutputError, judge_outputs
from kerneltest.judge.compare import Comparison, compare
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.records.schema import FormulaAnswer
from kerneltest.trace.batched_interpreter.promoted_kernel import SampleArithmetic
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import computes_floats

_BY_BACKEND = MismatchCause(ErrorCause.BACKEND, None)
_BY_OVERFLOW = MismatchCause(ErrorCause.OVERFLOW, None)


@dataclass(frozen=True, slots=True)
class TwoQuestions:
    """The questions about one case on one backend.

    Attributes:
      item, case: of which they are asked.
      cache: of the pairing.
      traced: the kernel.
      expectation: the oracle's values and bounds.
      precision: the backend's arithmetic.
      arguments: the case's array arguments by path.
    """

    item: Item
    case: AnyCase
    cache: Cache
    traced: Traced
    expectation: Expectation
    precision: Precision
    arguments: Mapping[str, Array]

    def judge(self, claim: CallOutputs, *, with_evidence: bool) -> Outcome:
        """Judges the kernel's outputs, and then its formula.

        Args:
          claim: the outputs, with the bounds of the oracle's rounding.
          with_evidence: whether to collect evidence of a finding.

        Raises:
          WrongOutputError: an output is wrong, without `with_evidence`.
        """
        try:
            outcome = self._compare(claim, with_evidence=False)
        except WrongOutputError:
            outcome = self._judge_wrong(claim, with_evidence)
            if outcome.record.verdict.is_finding:
                return outcome
        if claim.tolerance == BIT_FOR_BIT or not getattr(self.item.pairing.tolerance, "asks_formula", False):
            return outcome
        answer, found = ask_formula(self.item, self.case, self.cache, self.traced, self.expectation)
        if found and not _follows_formula(claim, found):
            answer, found = FormulaAnswer(unanswered="its results are not those of its formula without rounding"), ()
        if found:
            outcome = self._compare(claim_formula(claim, found), with_evidence=with_evidence)
        return replace(outcome, record=replace(outcome.record, formula=answer))

    def _judge_wrong(self, claim: CallOutputs, with_evidence: bool) -> Outcome:
        """Judges outputs that exceed the oracle's bounds: they may be as good as the kernel's own formula allows.

        Raises:
          WrongOutputError: as `judge` does.
        """
        formula = self.cache.formulas.comparisons.compute_once((self.traced, self.case.id), self._compare_formula)
        own = None
        if formula and not any(each.wrong.any() for each in formula):
            own = self._own_rounding(claim)
            if own is not None:
                with suppress(WrongOutputError):
                    return self._compare(own.admit(claim), with_evidence=False)
        if not with_evidence:  # the cause is evidence, too
            raise WrongOutputError
        cause = self._find_cause(claim, formula, own)
        return self._compare(replace(claim, cause=cause), with_evidence=with_evidence)

    def _find_cause(
        self, claim: CallOutputs, formula: Sequence[Comparison], own: OwnRounding | None
    ) -> MismatchCause | None:
        """Returns the cause of wrong outputs; None if it is unknown.

        Args:
          claim: the outputs.
          formula: what comparing the formula has found; () if it cannot be evaluated.
          own: the rounding of the formula, if it is right and this is known.
        """
        if self._evaluates_right(claim):
            return _BY_BACKEND
        if any(each.wrong.any() for each in formula):
            if not _explains(claim, formula):
                return None
            if not is_right_unrounded(self.item, self.case, self.cache, self.traced, self.expectation):
                return formula_cause(formula)
        elif not formula:
            return None
        elif not computes_floats(self.traced.jaxpr.jaxpr):
            return _BY_BACKEND
        compared = claim.compare(self.cache.noise(self.case, self.arguments))
        cause = rounding_cause(compared, own)
        by_rounding = cause is not None and cause.what is ErrorCause.ROUNDING
        return _BY_OVERFLOW if by_rounding and any(map(is_lost, compared)) and self._overflows() else cause

    def _overflows(self) -> bool:
        """Returns whether an intermediate result is too large for the dtype that it has in the kernel."""
        leaves = kernel_inputs(self.item, self.case, self.cache)
        try:
            return overflows_own_dtypes(own_kernel(self.cache, self.traced), leaves)
        except NotPromotedError:
            return False

    def _evaluates_right(self, claim: CallOutputs) -> bool:
        """Returns whether NumPy, in the kernel's own dtypes, gives what is expected where the compiled code does not.

        It is asked only where compiled code has been seen to compute something else than the kernel says.
        """
        outputs = evaluate_apart(self.item, self.case, self.cache, self.traced)
        if outputs is None:
            return False
        evaluated = replace(claim, outputs=outputs).compare(self.cache.noise(self.case, self.arguments))
        return not any(each.wrong.any() for each in evaluated)

    def _compare_formula(self) -> Sequence[Comparison]:
        """Returns the comparison of each output without rounding; () if that cannot be asked."""
        try:
            return compare_formula(self.item, self.case, self.cache, self.traced, self.expectation, specials=True)
        except NotPromotedError:
            return ()

    def _own_rounding(self, claim: CallOutputs) -> OwnRounding | None:
        fmt = own_format(self.item.pairing.tolerance, self.traced)
        if fmt is None or claim.tolerance == BIT_FOR_BIT:
            return None
        loose = self.expectation.all_bounds(claim.outputs, self.precision.never_exact())
        return own_rounding(self._sample, SampleArithmetic(fmt, self.precision), claim, loose)

    def _sample(self, arithmetic: SampleArithmetic) -> Sequence[Array]:
        """Returns the outputs of the kernel's own formula in samples; () if it cannot be evaluated so."""
        key = self.traced, self.case.id, arithmetic
        return self.cache.formulas.own_samples.compute_once(key, lambda: self._evaluate_samples(arithmetic))

    def _evaluate_samples(self, arithmetic: SampleArithmetic) -> Sequence[Array]:
        leaves = kernel_inputs(self.item, self.case, self.cache)
        self.cache.enter_phase(Phase.EXPECTING)
        try:
            return sample_kernel(own_kernel(self.cache, self.traced), leaves, arithmetic)
        except NotPromotedError:
            return ()

    def _compare(self, claim: CallOutputs, *, with_evidence: bool) -> Outcome:
        return judge_outputs(self.item, self.case, self.arguments, [claim], self.cache, with_evidence=with_evidence)


def _follows_formula(claim: CallOutputs, found: Sequence[Comparison]) -> bool:
    """Returns whether the outputs are those of the formula up to rounding, where the formula is wrong.

    They are not if the kernel rounds on purpose, for example by adding and subtracting a large number.
    """
    pairs = zip(claim.outputs, claim.bounds, found, strict=True)
    return all(
        not (compare(output, widen(each.actual), bound, signed_zeros=False).wrong & each.wrong).any()
        for output, bound, each in pairs
    )


def _explains(claim: CallOutputs, found: Sequence[Comparison]) -> bool:
    """Returns whether most wrong outputs are nearer to those of the formula than to the oracle's, up to rounding."""
    nearer = farther = 0
    for output, value, bound, each in zip(claim.outputs, claim.values, claim.bounds, found, strict=True):
        got, wide, formula = (np.asarray(array, np.float64) for array in (output, value, each.actual))
        with np.errstate(all="ignore"):
            near = np.abs(got - formula) <= np.maximum(bound, np.abs(got - wide) / 2)
        near |= (np.isnan(got) & np.isnan(formula)) | (got == formula)
        nearer += int((near & each.wrong).sum())
        farther += int((~near & each.wrong).sum())
    return nearer > farther


# The two questions about variations of a call: the rounding that a kernel's own formula needs, and its formula.


@dataclass(frozen=True, slots=True)
class VariationQuestions:
    """The questions about a share of the outputs of a variation.

    Attributes:
      asked: the plain call.
      variation: the call that gave the outputs.
      share: which of its outputs they are.
      answers: gets the answer, if the formula is asked and not wrong.
    """

    asked: InvariantContext
    variation: Variation
    share: OutputCheck
    answers: list[FormulaAnswer]

    def judge(self, claim: CallOutputs, precision: Precision) -> Iterator[CallOutputs]:
        """Yields what is to be compared: the outputs, then those without rounding if the formula is wrong.

        Args:
          claim: the outputs with the bounds of the oracle's rounding.
          precision: the backend's arithmetic.
        """
        yield self._admit_own_rounding(claim, precision)
        asks = getattr(self.asked.pairing.tolerance, "asks_formula", False)
        if self.share.formula is None or claim.tolerance == BIT_FOR_BIT or not asks:
            return
        known = self.asked.cache.formulas.right
        key = self.variation.traced, f"{self.asked.case.id} {self.share.label}"
        if key not in known:
            answer, found = self._ask_formula(self.share.formula)
            if any(each.wrong.any() for each in found):
                yield claim_formula(claim, found)
                return
            known[key] = answer
        self.answers.append(known[key])

    def _ask_formula(self, expectation: Expectation) -> tuple[FormulaAnswer, list[Comparison]]:
        """Returns the answer to the question whether the formula is right, and the comparison of each output."""
        cache = self.asked.cache
        try:
            kernel = own_kernel(cache, self.variation.traced)
            cache.enter_phase(Phase.RUNNING)
            outputs = self.share.take(run_promoted(kernel, self.variation.leaves))
            cache.enter_phase(Phase.EXPECTING)
            found = self._compare(outputs, expectation)
        except NotPromotedError as error:
            return FormulaAnswer(unanswered=str(error)), []
        return answer_from(found), found

    def _admit_own_rounding(self, claim: CallOutputs, precision: Precision) -> CallOutputs:
        """Returns a claim, with wider bounds if only the kernel's own formula explains how far off the outputs are."""
        fmt = own_format(self.asked.pairing.tolerance, self.variation.traced)
        noise = self.asked.cache.noise(self.asked.case, self.asked.arguments)
        if fmt is None or claim.tolerance == BIT_FOR_BIT or not any(c.wrong.any() for c in claim.compare(noise)):
            return claim
        try:
            exact = [each[0] for each in self._samples(FORMULA_ARITHMETIC)]
            found = self._compare(exact, Expectation(tuple(claim.values), None, None), specials=True)
            if any(each.wrong.any() for each in found):
                return claim
        except NotPromotedError:
            return claim
        loose = self.share.wanted(tuple(claim.outputs), precision.never_exact()).bounds
        own = own_rounding(self._samples_if_possible, SampleArithmetic(fmt, precision), claim, loose)
        return own.admit(claim) if own is not None else claim

    def _compare(
        self, outputs: Sequence[Array], expectation: Expectation, *, specials: bool = False
    ) -> list[Comparison]:
        functions = own_kernel(self.asked.cache, self.variation.traced).functions
        sample = functools.partial(self._samples, FORMULA_ARITHMETIC)
        return compare_closely(outputs, expectation, functions, sample, specials=specials)

    def _samples_if_possible(self, arithmetic: SampleArithmetic) -> Sequence[Array]:
        with suppress(NotPromotedError):
            return self._samples(arithmetic)
        return ()

    def _samples(self, arithmetic: SampleArithmetic) -> list[Array]:
        kernel = own_kernel(self.asked.cache, self.variation.traced)
        outputs = sample_kernel(kernel, self.variation.leaves, arithmetic)
        rows = [self.share.take(tuple(output[row] for output in outputs)) for row in range(arithmetic.rows)]
        return [np.stack(column) for column in zip(*rows, strict=True)]
