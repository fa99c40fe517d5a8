"""A suspect's smallest case, and where its wrong values come from."""

import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kerneltest.backends.codegen.lower import lower
from kerneltest.backends.codegen.program_reduction import cut
from kerneltest.core.failures import Failure
from kerneltest.core.group_names import PROOFS
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import Kind, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.variations import Varied
from kerneltest.judge.evidence import excerpt
from kerneltest.localize.address import address
from kerneltest.localize.fault import birth
from kerneltest.localize.grid_order import unordered
from kerneltest.localize.mutation_test import Experiment
from kerneltest.localize.uninitialised import unwritten
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.schema import Record, Smallest
from kerneltest.shrink.engine import minimize
from kerneltest.trace.tracing import without_debugging

ROUNDS = 2  # a smallest case may show that its suspect is two
_SHARE = 0.6  # of the time that goes into the smallest case; the rest is for experiments on it
_OF_A_FAMILY = 4  # failing cases on which a change is tried again
_FAILING, _PASSING = 12, 4  # further cases that an experiment must make right, and leave right


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


@without_debugging()
def smallest_case(items: Sequence[Item], findings: Sequence[Record], cache: Cache, seconds: float) -> Reduced | None:
    """The smallest case that fails as one of some findings does; None where none fails again.

    Args:
      items: of which the findings are.
      findings: that are thought to have one cause.
      cache: what cases share.
      seconds: to spend.
    """
    parts = {(item.name, item.group.name): item for item in items}
    record = min(findings, key=lambda each: (each.group == PROOFS, sum(each.dims.values()), each.group != "structural"))
    item = parts[record.item, record.group]
    cache.turn_to(item.pairing, item.dtype)
    varied = isinstance(item.group, Varied)  # an invariant calls the kernel in ways of its own
    alike = [each for each in items if each.name == item.name and isinstance(each.group, Varied) is varied]
    alike = [each for each in alike if (each.group.name == PROOFS) is (record.group == PROOFS)]  # proofs have no sizes
    cases = [case for each in alike for case in each.cases()]
    case = next((each for each in cases if each.id == record.case), None)
    if case is None:
        return None
    cache.turn_to_case(item.name, case)  # for who watches that it ends
    try:
        return _smallest(item, case, record, cases, {each.case for each in findings}, cache, seconds)
    finally:
        cache.process.journal.stop()


def _smallest(
    item: Item,
    case: AnyCase,
    record: Record,
    cases: Sequence[AnyCase],
    findings: Collection[str],
    cache: Cache,
    seconds: float,
) -> Reduced | None:
    started = time.monotonic()
    found = minimize(item, case, record, cache, _SHARE * seconds)
    if found is None:
        return None
    outcome, born = found.outcome, None
    if words := next(filter(None, (why(item, found.case, outcome.record, cache) for why in _WHY)), ""):
        outcome = replace(outcome, record=_with_diagnosis(outcome.record, words))
    if outcome.record.evidence is not None and outcome.arguments is not None:
        shown = {path: excerpt(value) for path, value in outcome.arguments.items()}
        evidence = replace(outcome.record.evidence, arguments=shown)
        outcome = replace(outcome, record=replace(outcome.record, evidence=evidence))
    if record.verdict.kind in (Kind.VALUES, Kind.MEMORY):
        left = seconds - (time.monotonic() - started)
        try:
            also = _beside(case, cases, findings)
            more = _all_kinds([each for each in cases if each.id in findings], {each.id for each in (case, *also)})
            born = birth(item.pairing, found.case, found.outcome, seconds=left, also=also, more=more)
        except Failure:
            born = None
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
        traced = cache.traced(item.pairing, case.signature, item.backend)
        lower(traced, target)
    except Failure as failure:
        found = cut(traced, target, failure, seconds) if failure.does_not_lower else None
        return found.script if found is not None else ""
    return ""


def _address(item: Item, case: AnyCase, record: Record, cache: Cache) -> str:
    """The offsets of bad accesses, as the lowered code computes them; "" where the record is of none."""
    first = record.message.partition("\n")[0]
    array = _ARRAY.search(first) if record.verdict in (Verdict.OUT_OF_BOUNDS, Verdict.RACE) else None
    target = TARGETS.get(item.backend.lowered_by().partition(":")[2])
    if array is None or target is None or isinstance(item.group, Varied):
        return ""
    try:
        specimens = Experiment(
            cache.traced(item.pairing, case.signature, item.backend), target, dict(case.signature.dims)
        ).specimens
    except Failure:
        return ""
    found: dict[str, None] = {}
    for place in _PLACE.findall(first):
        offsets = (address(specimen.listing, place, array[1]) for specimen in specimens)
        found |= dict.fromkeys(offset for offset in offsets if offset)
    return f"{array[1]} at offset {'; '.join(found)}" if found else ""


_ARRAY = re.compile(r"(?:\b(?:load|store|atomic) at |: )([^\s\[:]+)(?: offset |\[)")
_PLACE = re.compile(r" at (\S+\.py:\d+)")


# Each says why an element is wrong, or ""; the first that does is believed.
_WHY = (unwritten, unordered, _address)


def _beside(case: AnyCase, cases: Sequence[AnyCase], findings: Collection[str]) -> list[AnyCase]:
    """A few other cases of the shortest signatures, failing and passing ones, each of another family or signature."""
    rest = sorted(cases, key=lambda each: sum(length for _, length in each.signature.dims))
    failing = [each for each in rest if each.id in findings and each.id != case.id]
    chosen: dict[object, AnyCase] = {}
    for each in failing:
        chosen.setdefault(each.family.name, each)
        chosen.setdefault(each.signature, each)
    passing: dict[str, AnyCase] = {}
    for each in rest:
        if each.id not in findings:
            passing.setdefault(each.family.name, each)
    unique = {each.id: each for each in chosen.values()}
    return [*list(unique.values())[:_FAILING], *list(passing.values())[:_PASSING]]


def _all_kinds(failing: Sequence[AnyCase], known: Collection[str]) -> list[AnyCase]:
    """Of failing cases, a few of every family: each time other signatures, short ones and long ones."""
    families: dict[str, list[AnyCase]] = {}
    for each in sorted(failing, key=lambda each: sum(length for _, length in each.signature.dims)):
        families.setdefault(each.family.name, []).append(each)
    chosen: dict[str, AnyCase] = {}
    for turn in range(_OF_A_FAMILY):
        for number, mine in enumerate(families.values()):
            each = mine[(turn * len(mine) // _OF_A_FAMILY + number) % len(mine)]
            chosen[each.id] = each
    return [each for each in chosen.values() if each.id not in known]


def _with_diagnosis(record: Record, words: str) -> Record:
    assert record.evidence is not None
    return replace(record, message=f"{record.message}\n{words}", evidence=replace(record.evidence, diagnosis=words))
