"""A finding made as small as can be, and where its wrong values come from."""

import itertools
from dataclasses import dataclass

from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Kind
from kerneltest.plan.drawn import AnyCase
from kerneltest.records.schema import Birth, Record
from kerneltest.run import birth as experiments
from kerneltest.run.cache import Cache
from kerneltest.run.item import Item, Outcome
from kerneltest.run.minimize import minimize

_SHARE = 0.6  # of the time that goes into the smallest case; the rest is for experiments on it
_ALSO = 6  # further cases that an experiment must make right, or leave right


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """The smallest case of a finding.

    Attributes:
      outcome: of that case.
      unusual: how many elements of its inputs are neither 0 nor 1.
      tries: how many cases were judged.
      complete: whether nothing was left to try.
      birth: where its wrong values come from; None where no experiment showed that.
    """

    outcome: Outcome
    unusual: int
    tries: int
    complete: bool
    birth: Birth | None


def reduced(item: Item, record: Record, cache: Cache, seconds: float) -> Reduced | None:
    """The smallest case that fails as a recorded one does; None where it does not fail again.

    Args:
      item: that the case belongs to.
      record: of the case.
      cache: what cases share.
      seconds: to spend.
    """
    cases = list(item.cases())
    case = next((each for each in cases if each.id == record.case), None)
    if case is None:
        return None
    found = minimize(item, case, record, cache, _SHARE * seconds)
    if found is None:
        return None
    born = None
    if record.verdict.kind is Kind.VALUES:
        also = _beside(case, cases)
        try:
            shown = experiments.birth(
                item.pairing, found.case, found.outcome, seconds=seconds - found.seconds, also=also
            )
        except Failure:
            shown = None
        if shown is not None:
            born = Birth(shown.place, shown.operation, shown.words, shown.certain, shown.others)
    return Reduced(found.outcome, found.unusual, found.tries, found.complete, born)


def _beside(case: AnyCase, cases: list[AnyCase]) -> list[AnyCase]:
    """A few other cases, of the shortest signatures and of several families."""
    families: dict[str, AnyCase] = {}
    for each in sorted(cases, key=lambda each: sum(length for _, length in each.signature.dims)):
        families.setdefault(each.family.name, each)
    return list(itertools.islice((each for each in families.values() if each.id != case.id), _ALSO))
