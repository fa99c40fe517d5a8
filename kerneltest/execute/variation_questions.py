"""The two questions about variations of a call: the rounding that a kernel's own formula needs, and its formula."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.precision import Precision
from kerneltest.execute.formula_check import FORMULA_ARITHMETIC, answer_from, claim_formula, compare_closely
from kerneltest.execute.invariant_context import InvariantContext, OutputCheck, Variation
from kerneltest.execute.output_comparison import BIT_FOR_BIT, CallOutputs
from kerneltest.execute.own_rounding import own_format, own_rounding
from kerneltest.execute.promoted_outputs import NotPromotedError, own_kernel, run_promoted, sample_kernel
from kerneltest.judge.compare import Comparison
from kerneltest.oracle.expectation import Expectation
from kerneltest.records.journal import Phase
from kerneltest.records.schema import FormulaAnswer
from kerneltest.trace.batched_interpreter.sampling_rule import SampleArithmetic


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
