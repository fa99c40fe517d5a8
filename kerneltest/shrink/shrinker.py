"""The search for the smallest case that fails as a finding does: first its signature, then its values, then both again.

The order of preference among cases, and why the search ends, are in the docstring of `kerneltest.shrink`.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.details import Mismatch
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.runner import run_case
from kerneltest.execute.value_groups import SignatureGroup
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.evidence import Element
from kerneltest.records.schema import Record
from kerneltest.shrink.smaller_cases import (
    SIMPLIFIERS,
    Arguments,
    Simplifier,
    candidate_arguments,
    candidate_lengths,
    count_nontrivial,
    middle_length,
    simplifiable,
    simplifiable_choices,
    simplify,
    simplify_choices,
    with_lengths,
)

# The test by which a smaller case shows the same failure as the original one.


def resembles(record: Record, other: Record) -> bool:
    """Checks whether two cases of a family fail in the same way.

    They do if their verdicts are equal, and, for wrong values, the output (or the argument of the gradient) and the
    kind of error of the worst element; for other failures, the essence of their details and the source line.
    """
    return record.verdict == other.verdict and _common_traits(record) == _common_traits(other)


def _common_traits(record: Record) -> tuple[object, ...]:
    evidence, detail = record.shown, record.detail
    if evidence.actual is not None and evidence.expected is not None:
        gradient_of = detail.gradient_of if isinstance(detail, Mismatch) else ""
        return evidence.output, gradient_of, _kind_of_error(evidence.actual, evidence.expected)
    return (detail.essence, detail.place) if detail is not None else ()


def _kind_of_error(actual: Element, expected: Element) -> str:
    got, wanted = float(actual), float(expected)
    if np.isfinite(got) and not np.isfinite(wanted):
        return f"finite, not {wanted}"
    if got == wanted == 0:
        return "wrong sign of zero"
    return "off" if np.isfinite(got) else str(got)


_SIGNATURE_SHARE = 0.6  # of the time, for signatures before values have had their turn
_MAX_FAILED_ATTEMPTS = 100  # consecutive failed attempts after which smaller chunks of elements are not tried
_ENDS_PROCESSES = (Verdict.HANG, Verdict.CRASH)


@dataclass(frozen=True, slots=True, eq=False)
class ShrinkResult:
    """The smallest case found.

    Attributes:
      case: the case, with the family and the target of the original one.
      outcome: the outcome when it was last judged.
      nontrivial: number of elements of its array arguments that are neither 0 nor 1.
      attempts: number of cases judged.
      complete: True if no candidate was left; False if the time was over first.
    """

    case: ExplicitCase
    outcome: Outcome
    nontrivial: int
    attempts: int
    complete: bool


class _TimeIsUp(Exception):  # noqa: N818 - not an error
    # The time of a step of the search is over.
    pass


def minimize(item: Item, case: AnyCase, record: Record, cache: Cache, seconds: float) -> ShrinkResult | None:
    """Searches for the smallest case that fails as a finding does, in signature and values.

    Candidates are tried in the same order each time. Nothing that the search compiles stays in the cache. The watchdog
    of the cache's journal ends a candidate that hangs, as in a run.

    Args:
      item, case: the case of the finding.
      record: the finding.
      cache: the run's cache.
      seconds: time limit, checked before each attempt.

    Returns:
      The smallest case. None if the case does not fail again, if it hung or crashed and so must not run again, or if
      there is nothing to shrink: neither values nor a planned signature.
    """
    try:
        arguments = item.group.arguments(item, case, cache)
    except Failure:
        return None
    if arguments is None and isinstance(item.group, SignatureGroup):
        arguments = {}
    if arguments is None or record.verdict in _ENDS_PROCESSES:
        return None
    search = _Search(item, case, record, cache, seconds)
    complete = False
    with suppress(_TimeIsUp):
        if not search.fails(case.signature, arguments):
            return None
        search.seconds = _SIGNATURE_SHARE * seconds
        with suppress(_TimeIsUp):
            search.shorten()
        search.seconds = seconds
        search.simplify()
        while search.shorten() or search.simplify():
            continue
        complete = True
    return search.result(complete)


class _Search:
    def __init__(self, item: Item, case: AnyCase, record: Record, cache: Cache, seconds: float) -> None:
        self._item, self._record = item, record
        # Shares the run's pool and journal, but adds to copies, so that nothing is left in the run's cache.
        self._cache = cache.branch()
        self._started = time.perf_counter()
        self.seconds = seconds  # until when the next step may go on, since the search began
        self._seen: set[str] = set()
        self._failing: list[tuple[ExplicitCase, Outcome]] = []
        draw = case.draw if isinstance(case, ExplicitCase) else case.entropy
        self._template = ExplicitCase(
            item.pairing_id, case.signature, {}, family=case.family, target=case.target, draw=draw
        )
        self.attempts = 0

    @property
    def case(self) -> ExplicitCase:
        return self._failing[-1][0]

    def fails(self, signature: Signature, arguments: Arguments) -> bool:
        # Such a case becomes the smallest so far.
        case = replace(self._template, signature=signature, arguments=arguments)
        if case.id in self._seen:
            return False
        if time.perf_counter() - self._started >= self.seconds:
            raise _TimeIsUp
        self._seen.add(case.id)
        outcome = self._judge(case)
        if is_same := resembles(self._record, outcome.record):
            self._failing.append((case, outcome))
        return is_same

    def _judge(self, case: ExplicitCase) -> Outcome:
        self.attempts += 1
        outcome = run_case(replace(self._item, dtype=case.signature.dtype), case, self._cache)
        self._cache.expectations.cases.clear()
        return outcome

    def result(self, complete: bool) -> ShrinkResult | None:
        # The smallest case that fails again when it is judged once more.
        while self._failing:
            case, _ = self._failing.pop()
            outcome = self._judge(case)
            if resembles(self._record, outcome.record):
                return ShrinkResult(case, outcome, count_nontrivial(case.arguments), self.attempts, complete)
        return None

    def shorten(self) -> bool:
        before = self.case
        pairing = self._item.pairing
        names = simplifiable_choices(pairing, self.case.signature)
        plainest = simplify_choices(pairing, self.case.signature, names)
        shorter = {
            name: lengths
            for name, length in self.case.signature.dims
            if (lengths := candidate_lengths(pairing.dims[name], length))
        }
        least = {name: lengths[0] for name, lengths in shorter.items()}
        if self._try_signature(with_lengths(pairing, plainest, least)):
            return True
        if not self._try_signature(plainest):
            for name in names:
                self._try_signature(simplify_choices(pairing, self.case.signature, [name]))
        if self._try_lengths(least):
            return True
        if not sum(map(self._shorten_dim, shorter)):
            # Some failures need several dims of equal length.
            steps = itertools.zip_longest(*shorter.values())
            together = ({name: n for name, n in zip(shorter, step, strict=True) if n} for step in steps)
            any(map(self._try_lengths, together))
        return self.case is not before

    def _shorten_dim(self, name: str) -> bool:
        dim, low = self._item.pairing.dims[name], 0
        before = self.case
        for length in candidate_lengths(dim, dict(before.signature.dims)[name]):
            if self._try_lengths({name: length}):
                break
            low = length
        while (middle := middle_length(dim, low, dict(self.case.signature.dims)[name])) is not None:
            if not self._try_lengths({name: middle}):
                low = middle
        return self.case is not before

    def _try_lengths(self, lengths: Mapping[str, int]) -> bool:
        return self._try_signature(with_lengths(self._item.pairing, self.case.signature, lengths))

    def _try_signature(self, signature: Signature) -> bool:
        invariant = INVARIANTS.get(self.case.family.name)
        pairing = self._item.pairing
        if signature == self.case.signature or (invariant and not invariant.applies(pairing, signature)):
            return False
        if not pairing.admits(dict(signature.dims), dict(signature.statics)):
            return False
        candidates = candidate_arguments(pairing, self.case, signature, self._worst_place(), self._item.seed)
        return any(self.fails(signature, arguments) for arguments in candidates)

    def _worst_place(self) -> dict[str, int]:
        _, outcome = self._failing[-1]
        evidence = outcome.record.shown
        shape = evidence.window.shape if evidence.window else ()
        places = list(zip(shape, evidence.index, strict=False))
        lengths = self.case.signature.dims
        return {name: index for name, length in lengths for other, index in reversed(places) if other == length}

    def simplify(self) -> bool:
        before = self.case
        for simplifiers in SIMPLIFIERS:
            self._reduce(simplifiers)
        return self.case is not before

    def _reduce(self, simplifiers: Sequence[Simplifier]) -> None:
        # Whole arguments first, then chunks of halving size.
        for number in range(len(self.case.arguments)):
            self._simplify_chunk(simplifiers, self._simplifiable(simplifiers)[number])
        size, in_vain = sum(map(len, self._simplifiable(simplifiers))), 0
        while size and in_vain < _MAX_FAILED_ATTEMPTS:
            left = np.concatenate(self._simplifiable(simplifiers))
            size = min(size, len(left))
            for start in range(0, len(left), max(size, 1)):
                in_vain = 0 if self._simplify_chunk(simplifiers, left[start : start + size]) else in_vain + 1
            size //= 2

    def _simplifiable(self, simplifiers: Sequence[Simplifier]) -> list[Array]:
        return simplifiable(self._item.pairing, self.case, simplifiers)

    def _simplify_chunk(self, simplifiers: Sequence[Simplifier], chunk: Array) -> bool:
        case = self.case
        return any(self.fails(case.signature, simplify(self._item.pairing, case, make, chunk)) for make in simplifiers)
