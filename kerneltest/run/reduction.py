"""A suspect's smallest case, and where its wrong values come from."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kerneltest.backends.codegen.cut import cut
from kerneltest.backends.codegen.lower import lower
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import Kind
from kerneltest.plan.drawn import AnyCase
from kerneltest.records.schema import Birth, Record, Smallest
from kerneltest.run import birth as experiments
from kerneltest.run.cache import Cache
from kerneltest.run.fills import unwritten
from kerneltest.run.item import Item, Outcome
from kerneltest.run.minimize import minimize

_SHARE = 0.6  # of the time that goes into the smallest case; the rest is for experiments on it
_ALSO = 6  # further cases that an experiment must make right, or leave right


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A suspect's smallest case.

    Attributes:
      smallest: it, without files.
      outcome: of judging it, with its inputs.
      cut: a script of the few operations that do not lower; "" if there is none.
    """

    smallest: Smallest
    outcome: Outcome
    cut: str


def smallest_case(items: Sequence[Item], findings: Sequence[Record], cache: Cache, seconds: float) -> Reduced | None:
    """The smallest case that fails as one of some findings does; None where none fails again.

    Args:
      items: of which the findings are.
      findings: that are thought to have one cause.
      cache: what cases share.
      seconds: to spend.
    """
    parts = {(item.name, item.group.name): item for item in items}
    record = min(findings, key=lambda each: (sum(each.dims.values()), each.group != "structural"))
    item = parts[record.item, record.group]
    cache.turn_to(item.pairing, item.dtype)
    cases = list(item.cases())
    case = next((each for each in cases if each.id == record.case), None)
    if case is None:
        return None
    cache.journal.start(item.name, case.id, case.family.name, str(case.signature))  # for who watches that it ends
    try:
        return _smallest(item, case, record, cases, cache, seconds)
    finally:
        cache.journal.stop()


def _smallest(
    item: Item, case: AnyCase, record: Record, cases: Sequence[AnyCase], cache: Cache, seconds: float
) -> Reduced | None:
    started = time.monotonic()
    found = minimize(item, case, record, cache, _SHARE * seconds)
    if found is None:
        return None
    outcome, born = found.outcome, None
    if words := unwritten(item, found.case, outcome.record, cache):
        outcome = replace(outcome, record=_with_diagnosis(outcome.record, words))
    if record.verdict.kind is Kind.VALUES:
        left = seconds - (time.monotonic() - started)
        try:
            shown = experiments.birth(item.pairing, found.case, found.outcome, seconds=left, also=_beside(case, cases))
        except Failure:
            shown = None
        if shown is not None:
            born = Birth(shown.place, shown.operation, shown.words, shown.certain, shown.others)
    smallest = Smallest(record.case, outcome.record, found.unusual, found.tries, found.complete, born)
    left = seconds - (time.monotonic() - started)
    return Reduced(smallest, outcome, _cut(item, found.case, cache, left) if record.verdict.kind is Kind.BUILD else "")


def _cut(item: Item, case: AnyCase, cache: Cache, seconds: float) -> str:
    """The script of the few operations that do not lower; "" where it is not the lowering that fails."""
    lowering = item.backend.lowered_by() or item.backend.id
    target = TARGETS.get(lowering.partition(":")[2])
    if target is None:
        return ""
    try:
        traced = cache.traced(item.pairing, case.signature)
        lower(traced, target)
    except Failure as failure:
        found = cut(traced, target, failure, seconds) if failure.lowering else None
        return found.script if found is not None else ""
    return ""


def _beside(case: AnyCase, cases: Sequence[AnyCase]) -> list[AnyCase]:
    """A few other cases, of the shortest signatures and of several families."""
    families: dict[str, AnyCase] = {}
    for each in sorted(cases, key=lambda each: sum(length for _, length in each.signature.dims)):
        families.setdefault(each.family.name, each)
    return [each for each in families.values() if each.id != case.id][:_ALSO]


def _with_diagnosis(record: Record, words: str) -> Record:
    assert record.evidence is not None
    return replace(record, message=f"{record.message}\n{words}", evidence=replace(record.evidence, diagnosis=words))
