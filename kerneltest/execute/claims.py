"""The one place where outputs are held against what is expected of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.error_model import Tolerance
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.judge.compare import Comparison, compare
from kerneltest.judge.mismatch_evidence import mismatch
from kerneltest.numerics.error_budget import ErrorShare
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.error_budget_text import budget_parts, vacuous_bound_note
from kerneltest.records.journal import Phase
from kerneltest.records.schema import Record

BIT_FOR_BIT = "bit for bit"


class WrongError(Exception):
    """Some output is wrong, and nobody asked for more."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Outputs, and what they should be.

    Attributes:
      outputs: of the kernel.
      values: what they should be: float64, int64 or bool.
      bounds: how far each element may be off; zeros for not a bit.
      signed_zeros: whether -0 and +0 differ.
      tolerance: the error model, in words.
      label: the call that gave them, where it is not the plain one.
      gradient_of: the leaf that each output is a gradient with respect to, where they are gradients.
      others: for each output, what integers and booleans may be instead.
      asked: where the oracle asks something of each output; () for everywhere.
      shares: what makes the bound of an output; () where that is not known.
    """

    outputs: Sequence[Array]
    values: Sequence[Array]
    bounds: Sequence[Array]
    signed_zeros: bool
    tolerance: str
    label: str = ""
    gradient_of: tuple[str, ...] = ()
    asked: Sequence[Array] = ()
    others: Sequence[Sequence[Array]] = ()
    shares: Callable[[int], tuple[ErrorShare, ...]] = lambda output: ()

    @property
    def elements(self) -> tuple[int, int]:
        """Of how many elements the oracle asks something, and of how many nothing."""
        total = sum(output.size for output in self.outputs)
        unasked = sum(int((~where).sum()) for where in self.asked)
        return total - unasked, unasked

    def compare(self, noise: float) -> list[Comparison]:
        """Output by output; `noise` is what the oracle's own rounding may leave of a zero."""
        others = self.others or [()] * len(self.outputs)
        return [
            compare(actual, value, bound, signed_zeros=self.signed_zeros, noise=noise, others=other)
            for actual, value, bound, other in zip(self.outputs, self.values, self.bounds, others, strict=True)
        ]


def noted(tolerance: Tolerance, note: str) -> str:
    """An error model in words, and what it could not take into account."""
    return f"{tolerance}: {note}" if note else str(tolerance)


def judge_claims(
    item: Item,
    case: AnyCase,
    arguments: Mapping[str, Array],
    claims: Iterable[Claim],
    cache: Cache,
    *,
    explained: bool = True,
) -> Outcome:
    """A pass that counts what was compared, or the finding of the first output that is wrong.

    Raises:
      WrongError: an output is wrong, where that is not to be `explained`: evidence takes longer than all else.
    """
    record = item.record(case=case, verdict=Verdict.PASS)
    noise = cache.noise(case, arguments)
    why_not = ""

    def shares(claim: Claim, number: int) -> tuple[ErrorShare, ...]:
        cache.enter_phase(Phase.EXPECTING)  # the oracle is evaluated again
        return claim.shares(number)

    for claim in claims:
        cache.enter_phase(Phase.JUDGING)
        comparisons = claim.compare(noise)
        asked, unasked = claim.elements
        record = _counted(
            record,
            comparisons,
            tolerance=claim.tolerance,
            defined=record.defined + asked,
            undefined=record.undefined + unasked,
        )
        for number, comparison in enumerate(comparisons):
            if comparison.verdict.is_finding:
                if not explained:
                    raise WrongError
                finding = mismatch(
                    record,
                    item.pairing,
                    case.signature,
                    arguments,
                    number,
                    comparison,
                    depth=item.depth,
                    structural=case.family.structural,
                    models_operands=claim.tolerance == BIT_FOR_BIT
                    or getattr(item.pairing.tolerance, "models_operands", False),
                    call=claim.label,
                    gradient_of=claim.gradient_of[number] if claim.gradient_of else "",
                )
                return Outcome(replace(finding, error_budget=budget_parts(shares(claim, number))), arguments)
        used, number = max(((c.used, i) for i, c in enumerate(comparisons) if c.used is not None), default=(0.0, 0))
        if cache.exceeds_earlier_use(item.backend, case.family.name, used):
            record = replace(record, error_budget=budget_parts(shares(claim, number)))
        wide = [i for i, each in enumerate(comparisons) if each.vacuous or np.isinf(each.bound).any()]
        if wide and not record.compared:
            found = shares(claim, wide[0])
            record, why_not = (
                replace(record, error_budget=budget_parts(found)),
                vacuous_bound_note(found, claim.tolerance),
            )
    if record.undefined and not record.defined:
        why_not = "the oracle asks nothing: nothing was compared"
    return Outcome(record if record.compared else replace(record, message=why_not))


def _counted(record: Record, comparisons: Sequence[Comparison], **more: Any) -> Record:
    """`record` with what these comparisons add to it, and with further fields."""
    used = [u for u in (record.bound_fraction, *(c.used for c in comparisons)) if u is not None]
    ulps = zip_longest(record.ulps, *(c.ulps for c in comparisons), fillvalue=0)
    return replace(
        record,
        compared=record.compared + sum(c.compared for c in comparisons),
        bound_fraction=max(used, default=None),
        ulps=tuple(map(sum, ulps)),
        **more,
    )
