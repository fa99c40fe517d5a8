"""The reduction of a suspect to its smallest case, and the search for the cause of that case's failure."""

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from kerneltest.backends.codegen.reduction import reduce_program
from kerneltest.backends.codegen.tiers import lower
from kerneltest.core.details import MemoryFault, Race, Visit
from kerneltest.core.failures import Failure, Guard
from kerneltest.core.ids import BackendId
from kerneltest.core.processes import show_warnings_once
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import GroupName, Verdict, VerdictKind
from kerneltest.core.work_budget import WorkBudget
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import InvariantGroup
from kerneltest.execute.item import Item, Outcome
from kerneltest.judge.mismatch_evidence import format_array
from kerneltest.localize.case_replay import MutableKernel
from kerneltest.localize.code_operators import describe_offset
from kerneltest.localize.condition_experiments import find_condition
from kerneltest.localize.repair_search import LineSearch, locate_fault, repaired_replays
from kerneltest.localize.special_origin import Cause, depends_on_memory, depends_on_order
from kerneltest.localize.value_relations import find_relation
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.evidence import RelationKind, ValueRelation
from kerneltest.records.schema import ConfirmedRelation, FaultLocation, Record, Reproducer
from kerneltest.shrink.shrinker import minimize
from kerneltest.trace.tracing import without_debugging
from kerneltest.triage.symptoms import OF_ROUNDING, Effect, symptom

# Groups whose cases are reduced if there are no others: they have no sizes, or call the kernel in ways of their own.
_LEAST_TELLING = (GroupName.PROOFS, GroupName.INVARIANTS, GroupName.PRODUCTION)
REDUCTION_ROUNDS = 2  # of reduction: a smallest case may show that its suspect is two bugs
_MOST_PER_FAMILY = 4  # cases, failing and passing, on which the best repairs are tried again
_MOST_FAILING, _MOST_PASSING = 12, 4  # further cases that a repair must fix, and leave right


@dataclass(frozen=True, slots=True, eq=False)
class ReducedSuspect:
    """The result of a reduction."""

    reproducer: Reproducer
    outcome: Outcome  # the outcome of judging it, with its inputs
    reduced_script: str  # a script with only the operations that do not lower; "" if there is none


@without_debugging()
@show_warnings_once()
def reduce_suspect(
    items: Sequence[Item], findings: Sequence[Record], cache: Cache, seconds: float, known: Sequence[Reproducer] = ()
) -> ReducedSuspect | None:
    """Returns the smallest case that fails in the same way as one of some findings; None if that one passes now."""
    parts = {(item.name, item.group.name): item for item in items}
    # What the repair of a known smallest case leaves wrong, if anything, has another bug.
    left = {case: each.fault for each in known if each.fault is not None for case in each.fault.unexplained}

    def preference(finding: Record) -> tuple[bool, bool, int, bool]:
        follows = symptom(finding).effect not in {Effect.WRONG, *OF_ROUNDING}  # NaN may follow from wrong numbers
        length = sum(finding.dims.values())
        return finding.group in _LEAST_TELLING, follows, length, finding.group != GroupName.STRUCTURAL

    record = min([each for each in findings if each.case in left] or findings, key=preference)
    item = parts[record.item, record.group]
    cache.switch_to(item.pairing, item.dtype)

    def way(item: Item) -> tuple[str, bool, bool]:
        # An invariant calls the kernel in ways of its own, and proofs have no sizes.
        return item.name, isinstance(item.group, InvariantGroup), item.group.name == GroupName.PROOFS

    cases = [case for other in items if way(other) == way(item) for case in other.cases()]
    case = next((each for each in cases if each.id == record.case), None)
    if case is None:
        return None
    cache.process.begin_case(item.name, case)  # the watchdog then ends it if it hangs
    bad = {finding.case: finding.wrong for finding in findings}
    own = {each.id for each in cases}
    elsewhere = {
        each.id: each
        for other in items
        if not any(way(item)[1:]) and not any(way(other)[1:])
        for each in other.cases()
        if each.id in bad and each.id not in own
    }
    first = left.get(case.id)
    search = functools.partial(_reduce, item, case, record, cases, [*elsewhere.values()], bad, cache, seconds, first)
    try:
        return Guard(cache.process.internal_failures).collect("searching for the smallest case", search, None)
    finally:
        cache.process.journal.stop()


def _reduce(
    item: Item,
    case: AnyCase,
    record: Record,
    cases: Sequence[AnyCase],
    elsewhere: Sequence[AnyCase],
    wrong: Mapping[str, int],
    cache: Cache,
    seconds: float,
    first: FaultLocation | None,
) -> ReducedSuspect | None:
    findings = wrong.keys()
    budgets = shrinking, relating, locating = WorkBudget(seconds / 2), WorkBudget(seconds / 2), WorkBudget(seconds)
    own = record.shown.actual
    is_number = own == own and depends_on_memory(item, case, record, cache) is None
    replays = repaired_replays(first, item.pairing, family=record.family)

    def is_repaired(case: AnyCase) -> bool:
        return first is not None and not any(replay.is_wrong for replay in replays([case]))

    first = None if is_repaired(case) else first  # NumPy may not show it

    def is_another(case: AnyCase, record: Record) -> bool:
        # Wrong numbers are not to end as an element that was never written.
        return is_repaired(case) or (is_number and depends_on_memory(item, case, record, cache) is not None)

    found = minimize(item, case, record, cache, shrinking, is_another)
    if found is None:
        return None
    outcome, search, condition, relation = found.outcome, LineSearch(), None, None
    diagnoses = (diagnose(item, found.case, outcome.record, cache) for diagnose in _DIAGNOSES)
    if words := next(filter(None, diagnoses), ""):
        shown, said = replace(outcome.record.shown, diagnosis=words), f"{outcome.record.message}\n{words}"
        outcome = replace(outcome, record=replace(outcome.record, message=said, evidence=shown))
        if (kind := _RELATIONS.get(words)) is not None:
            relation = ConfirmedRelation(ValueRelation(kind), 1, 1)
    if outcome.record.evidence is not None and outcome.arguments is not None:
        arguments = {path: format_array(value) for path, value in outcome.arguments.items()}
        evidence = replace(outcome.record.evidence, arguments=arguments)
        outcome = replace(outcome, record=replace(outcome.record, evidence=evidence))
    if record.verdict.kind in (VerdictKind.VALUES, VerdictKind.MEMORY):
        guard = Guard(cache.process.internal_failures)
        experiment = functools.partial(
            find_condition, item, case, found.case, outcome.record, cases, findings, cache, elsewhere
        )
        condition = guard.collect("testing conditions", experiment, None)
        compare = functools.partial(find_relation, item, found.case, outcome, cases, wrong, cache, relating)
        relation = relation or guard.collect("comparing wrong values", compare, None)
        also = _similar_cases(case, cases, findings)
        known = {each.id for each in (case, *also)}
        failing, passing = ([c for c in cases if (c.id in findings) is fails] for fails in (True, False))
        pairs = itertools.zip_longest(_spread_over_families(failing, known), _spread_over_families(passing, known))
        more = [each for pair in pairs for each in pair if each is not None]
        locate = functools.partial(
            locate_fault, item.pairing, found.case, found.outcome, locating, also=also, more=more, repaired=first
        )
        search = guard.collect("locating the fault", locate, LineSearch())
        still_wrong = set(search.location.unexplained) if search.location is not None else set()
        if findings.isdisjoint(still_wrong) and not still_wrong <= {each.id for each in passing}:
            search = replace(search, location=None)  # it repairs every finding, and yet not the kernel
    smallest = Reproducer(
        record.case,
        outcome.record,
        found.nontrivial,
        found.attempts,
        found.complete,
        search.location,
        condition=condition,
        relation=relation,
        computed=search.computed,
        searched=not locating.is_cut,
        late=any(budget.is_late for budget in budgets),
    )
    script = _reduced_script(item, found.case, cache, locating) if record.verdict.kind is VerdictKind.BUILD else ""
    return ReducedSuspect(smallest, outcome, script)


def _reduced_script(item: Item, case: AnyCase, cache: Cache, budget: WorkBudget) -> str:
    lowering = item.backend.lowering_backend() or item.backend.id
    target = TARGETS.get(BackendId.parse(lowering).target)
    if target is None:
        return ""
    try:
        traced = cache.traces.of(item.pairing, case.signature, item.backend)
        lower(traced, target)
    except Failure as failure:
        found = reduce_program(traced, target, failure, budget) if failure.does_not_lower else None
        return found.script if found is not None else ""
    return ""


def _offset_expression(item: Item, case: AnyCase, record: Record, cache: Cache) -> str:
    visits: tuple[Visit, ...]
    match record.detail if record.verdict in (Verdict.OUT_OF_BOUNDS, Verdict.RACE) else None:
        case MemoryFault(visit=visit, buffer=buffer, overflow=None):
            visits = (visit,)
        case Race(visits=visits, buffer=buffer):
            pass
        case _:
            return ""
    target = TARGETS.get(BackendId.parse(item.backend.lowering_backend()).target)
    if target is None or isinstance(item.group, InvariantGroup):
        return ""
    try:
        traced = cache.traces.of(item.pairing, case.signature, item.backend)
        calls = MutableKernel(traced, target, dict(case.signature.dims)).calls
    except Failure:
        return ""
    offsets = (describe_offset(call.listing, visit.place, buffer) for visit in visits for call in calls)
    distinct = dict.fromkeys(each for each in offsets if each and len(each) <= _LONGEST_OFFSET)
    return f"{buffer} at offset {'; '.join(distinct)}" if distinct else ""


_LONGEST_OFFSET = 200  # characters of an offset, beyond which it says less than the line


# Each returns the cause of a failure in words, or nothing; the first that returns one is believed.
_DIAGNOSES = (depends_on_memory, depends_on_order, _offset_expression)
_RELATIONS: Mapping[str, RelationKind] = {
    Cause.PREVIOUS_OUTPUT: RelationKind.UNWRITTEN,
    Cause.EMPTY: RelationKind.UNFILLED,
    Cause.PADDING: RelationKind.PAST_END,
    Cause.PROGRAM_ORDER: RelationKind.UNORDERED,
}


def _similar_cases(case: AnyCase, cases: Sequence[AnyCase], findings: Collection[str]) -> list[AnyCase]:
    # The shortest cases of other families, and signatures up to the longest: short ones alone could hide that a
    # change repairs one of two bugs.
    families: dict[str, AnyCase] = {}
    signatures: dict[Signature, AnyCase] = {}
    passing: dict[str, AnyCase] = {}
    for other in sorted(cases, key=attrgetter("signature.total_length")):
        if other.id not in findings:
            passing.setdefault(other.family.name, other)
        elif other.id != case.id:
            families.setdefault(other.family.name, other)
            signatures.setdefault(other.signature, other)
    step = -(-len(signatures) // (_MOST_FAILING // 2)) or 1
    unique = {other.id: other for other in [*[*signatures.values()][::-step], *families.values()]}
    return [*list(unique.values())[:_MOST_FAILING], *list(passing.values())[:_MOST_PASSING]]


def _spread_over_families(chosen_from: Sequence[AnyCase], known: Collection[str]) -> list[AnyCase]:
    # A few cases of every family, with signatures from short to long.
    families: dict[str, list[AnyCase]] = {}
    for each in sorted(chosen_from, key=attrgetter("signature.total_length")):
        families.setdefault(each.family.name, []).append(each)
    chosen: dict[str, AnyCase] = {}
    for turn, (number, cases) in itertools.product(range(_MOST_PER_FAMILY), enumerate(families.values())):
        each = cases[(turn * len(cases) // _MOST_PER_FAMILY + number) % len(cases)]
        chosen[each.id] = each
    return [each for each in chosen.values() if each.id not in known]
