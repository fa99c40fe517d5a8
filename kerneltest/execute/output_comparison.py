"""The comparison of the outputs of a case with their expected values, and the record that results from it."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from kerneltest.core.details import MismatchCause
from kerneltest.core.dtypes import Array
from kerneltest.core.guard import Guard
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.error_model import Tolerance
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.judge.compare import Comparison, compare
from kerneltest.judge.mismatch_evidence import mismatch_record
from kerneltest.numerics.error_budget import ErrorShare
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.error_budget_text import budget_parts, vacuous_bound_note
from kerneltest.records.evidence import BudgetPart
from kerneltest.records.journal import Phase
from kerneltest.records.schema import Record

BIT_FOR_BIT = "bit for bit"


class WrongOutputError(Exception):
    """An output is wrong, and the caller does not want evidence."""


@dataclass(frozen=True, slots=True)
class CallOutputs:
    """Outputs with their expected values. All sequences have one entry for each output.

    Attributes:
      outputs: the kernel's outputs.
      values: the expected values: float64, int64 or bool, in the outputs' shapes.
      bounds: the absolute error allowed of each element; 0 admits only the rounded value.
      signed_zeros: whether -0 and +0 differ.
      tolerance: the error model in words, or `BIT_FOR_BIT`.
      label: the call that gave the outputs, in words; "" for a plain call.
      gradient_of: the leaf with respect to which each output is a gradient; () for outputs that are not gradients.
      alternatives: arrays whose integers and booleans are as right as `values`; () if there are none.
      defined: True for the elements whose value the oracle defines; () if it defines all.
      error_shares: returns the error budget of the output of a number, the largest share first; () if it is unknown.
      cause: of wrong values; None if it is unknown.
    """

    outputs: Sequence[Array]
    values: Sequence[Array]
    bounds: Sequence[Array]
    signed_zeros: bool
    tolerance: str
    label: str = ""
    gradient_of: tuple[str, ...] = ()
    defined: Sequence[Array] = ()
    alternatives: Sequence[Sequence[Array]] = ()
    error_shares: Callable[[int], tuple[ErrorShare, ...]] = lambda output: ()
    cause: MismatchCause | None = None

    @property
    def element_counts(self) -> tuple[int, int]:
        """Number of elements whose value the oracle defines, and number of the others."""
        total = sum(output.size for output in self.outputs)
        undefined = sum(int((~where).sum()) for where in self.defined)
        return total - undefined, undefined

    def compare(self, noise: float) -> list[Comparison]:
        """Compares each output; `noise` is the absolute error that the oracle's own rounding may leave in a zero."""
        alternatives = self.alternatives or [()] * len(self.outputs)
        return [
            compare(actual, value, bound, signed_zeros=self.signed_zeros, noise=noise, alternatives=others)
            for actual, value, bound, others in zip(self.outputs, self.values, self.bounds, alternatives, strict=True)
        ]


def format_tolerance(tolerance: Tolerance, note: str) -> str:
    """Returns an error model in words, with a note about its limits if there is one."""
    return f"{tolerance}: {note}" if note else str(tolerance)


def judge_outputs(
    item: Item,
    case: AnyCase,
    arguments: Mapping[str, Array],
    calls: Iterable[CallOutputs],
    cache: Cache,
    *,
    with_evidence: bool = True,
) -> Outcome:
    """Compares the outputs of a case.

    Args:
      item, case: whose outputs they are.
      arguments: the case's array arguments by path.
      calls: the outputs of each call with their expected values, made one at a time.
      cache: the cache of the pairing.
      with_evidence: whether to collect evidence of a wrong output, which takes longer than everything else.

    Returns:
      A pass with the number of elements compared, or the finding of the first wrong output.

    Raises:
      WrongOutputError: an output is wrong, without `with_evidence`.
    """
    record = item.record(case=case, verdict=Verdict.PASS)
    noise = cache.noise(case, arguments)
    why_not = ""
    unlimited = Guard(cache.process.internal_failures)

    def budget(claim: CallOutputs, number: int, guard: Guard) -> tuple[BudgetPart, ...]:
        cache.enter_phase(Phase.EXPECTING)  # evaluates the oracle again
        return guard.collect("dividing the error bound", lambda: budget_parts(claim.error_shares(number)), ())

    for claim in calls:
        cache.enter_phase(Phase.JUDGING)
        comparisons = claim.compare(noise)
        defined, undefined = claim.element_counts
        record = _add_comparisons(record, comparisons)
        record = replace(
            record,
            tolerance=claim.tolerance,
            defined=record.defined + defined,
            undefined=record.undefined + undefined,
        )
        for number, comparison in enumerate(comparisons):
            if comparison.verdict.is_finding:
                if not with_evidence:
                    raise WrongOutputError
                with cache.guard_evidence() as guard:
                    finding = mismatch_record(
                        record,
                        item.pairing,
                        case.signature,
                        arguments,
                        number,
                        comparison,
                        depth=item.depth,
                        structural=case.family.structural,
                        guard=guard,
                        models_operands=claim.tolerance == BIT_FOR_BIT
                        or getattr(item.pairing.tolerance, "models_operands", False),
                        call=claim.label,
                        cause=claim.cause,
                        gradient_of=claim.gradient_of[number] if claim.gradient_of else "",
                    )
                    finding = replace(finding, error_budget=budget(claim, number, guard))
                return Outcome(finding, arguments, comparison=comparison)
        used, number = max(
            ((c.bound_fraction, i) for i, c in enumerate(comparisons) if c.bound_fraction is not None), default=(0.0, 0)
        )
        if cache.exceeds_earlier_use(item.backend, case.family.name, used):
            record = replace(record, error_budget=budget(claim, number, unlimited))
        too_wide = [i for i, each in enumerate(comparisons) if each.vacuous or np.isinf(each.bound).any()]
        if too_wide and not record.compared:
            record = replace(record, error_budget=budget(claim, too_wide[0], unlimited))
            note = functools.partial(_vacuous_bound_note, claim, too_wide[0])
            why_not = unlimited.collect("explaining a bound", note, "")
    if record.undefined and not record.defined:
        why_not = "nothing was compared: the oracle leaves all elements undefined"
    return Outcome(record if record.compared else replace(record, message=why_not))


def _vacuous_bound_note(claim: CallOutputs, number: int) -> str:
    return vacuous_bound_note(claim.error_shares(number), claim.tolerance)


def _add_comparisons(record: Record, comparisons: Sequence[Comparison]) -> Record:
    """Returns a record with the counts, the bound fraction and the ulps of comparisons added to its own."""
    used = [u for u in (record.bound_fraction, *(c.bound_fraction for c in comparisons)) if u is not None]
    ulps = zip_longest(record.ulps, *(c.ulps for c in comparisons), fillvalue=0)
    return replace(
        record,
        compared=record.compared + sum(c.compared for c in comparisons),
        bound_fraction=max(used, default=None),
        ulps=tuple(map(sum, ulps)),
    )
