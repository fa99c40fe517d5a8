"""The repairs of a kernel, the search for those that make failing cases right, and the line on which they agree."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, compress, islice
from operator import attrgetter
from typing import Any, TypeVar

import jax

from kerneltest.core.details import ErrorCause
from kerneltest.core.dtypes import is_float
from kerneltest.core.source_location import source_line
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict, VerdictKind
from kerneltest.core.work_budget import WorkBudget
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.item import Outcome
from kerneltest.localize.call_operators import call_repairs
from kerneltest.localize.case_replay import CaseReplay, MutableCall, MutableKernel, Patch, case_replays
from kerneltest.localize.code_operators import CodeChange, code_changes
from kerneltest.localize.edited_evaluation import Edit, Replacement, wraps
from kerneltest.localize.edits import (
    EquationChange,
    Function,
    after,
    dtype_of,
    is_array,
    is_boolean_array,
    is_float_array,
    is_integer_array,
)
from kerneltest.localize.equation_replay import EquationReplay, EvaluatedKernel, MakeEdit, equation_replays
from kerneltest.localize.operators import OPERATORS
from kerneltest.localize.sites import Changes, LocatedJaxpr, Site, SiteKey
from kerneltest.localize.special_origin import find_overflow, find_special_origin, is_special
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.records.schema import FaultLocation
from kerneltest.trace.jax_compat.jaxprs import Literal
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.partial_arrays import KernelValue, list_values
from kerneltest.trace.primitives import Kind, kind_of, primitive_of
from kerneltest.trace.walk import primitive_name
from kerneltest.triage.symptoms import OVERFLOWS, cause_of


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of a kernel in one place."""

    place: str  # FILE:LINE of what is changed
    operation: str  # the source there
    phrase: str  # `changing <= to <`
    cost: int
    literal: bool  # whether the source spells out at this place what is changed, rather than naming it
    # returns the patches that apply it to a kernel, perhaps of other lengths: one for each way, none if it does not fit
    patches: Callable[[Any], Iterable[Any]]
    undone: str = ""  # what it undoes: `a rounding to bfloat16`, `a missing mask`; or ""


def code_repairs(kernel: MutableKernel) -> list[Repair]:
    """Returns all repairs of the lowered code and of its calls, those with the lowest cost first."""
    repairs = [*_around_calls(kernel)]
    for number, call in enumerate(kernel.calls):
        repairs += [*_of_frame(number, call), *_of_body(number, call)]
    return _in_order(repairs)


def _in_order(repairs: Iterable[Repair]) -> list[Repair]:
    return sorted((repair for repair in repairs if repair.place), key=attrgetter("cost"))


def _of_body(number: int, call: MutableCall) -> Iterator[Repair]:
    for change in code_changes(call.listing):
        source = call.listing.sources[change.operation]
        caller = f", called at {source.callers[0]}" if source.callers else ""

        def patches(kernel: MutableKernel, change: CodeChange = change) -> Iterator[Patch]:
            for other in kernel.calls[number : number + 1]:
                if other.listing.structure == call.listing.structure:  # of a kernel for other lengths
                    yield Patch({number: other.prepare(other.listing.apply(change.edits(other.listing)))})

        yield Repair(source.place, f"{source.text}{caller}", change.phrase, change.cost, change.literal, patches)


def _of_frame(number: int, call: MutableCall) -> Iterator[Repair]:
    for turn, change in enumerate(call_repairs(call.call.equation)):

        @cache  # many cases have one kernel, which is lowered with each change
        def patches(kernel: MutableKernel, turn: int = turn) -> list[Patch]:
            return [
                Patch({number: MutableCall(replace(old.call, equation=new), kernel.target, kernel.lengths).prepare()})
                for old in kernel.calls[number : number + 1]
                for new in list(call_repairs(old.call.equation))[turn].equations
            ]

        yield Repair(change.place, source_line(change.place), change.phrase, 0, True, patches)


def _around_calls(kernel: MutableKernel) -> Iterator[Repair]:
    # A value of the function around the calls is replaced by an earlier one of the same shape.
    known = list_values(kernel.traced)
    names = _names(known)
    for turn, variable in enumerate(known):
        if variable.equation is None or kind_of(variable.equation) is Kind.KERNEL:
            continue
        place, params = line_of(variable.equation.source_info), variable.equation.params
        name = f"`{params['name']}`" if "name" in params else primitive_name(variable.equation)
        for choice in variable.candidates:

            def patches(kernel: MutableKernel, turn: int = turn, choice: int = choice) -> Iterator[Patch]:
                others = list_values(kernel.traced)
                if _names(others) == names and choice in others[turn].candidates:
                    yield Patch(substitutions={others[turn].variable: others[choice].variable})

            # Another value than an operand may be right in these cases by chance.
            removes = any(known[choice].variable is operand for operand in variable.equation.invars)
            phrase = f"removing {name}" if removes else f"replacing {name} by another array"
            yield Repair(place, source_line(place), phrase, 1 if removes else 2, removes, patches)


def _names(known: Sequence[KernelValue]) -> list[str]:
    return [primitive_name(value.equation) if value.equation is not None else "" for value in known]


# Repairs of a kernel's jaxpr, which need no lowering: any kernel that NumPy evaluates has them.


def equation_repairs(kernel: EvaluatedKernel) -> list[Repair]:
    """Returns the repairs of a kernel's equations, those with the lowest cost first."""
    sites = kernel.own.sites()
    places = _places([site.key for site in sites])
    found: dict[object, Repair] = {}

    def add(key: object, change: EquationChange, edit: MakeEdit, place: str) -> None:
        made = Repair(place, source_line(place), change.phrase, change.cost, change.literal, lambda _: iter([edit]))
        found.setdefault(key, replace(made, undone=change.undone))

    for site in sites:
        for repair in filter(None, (operator.repair for operator in OPERATORS)):
            for change in repair(site):
                key = change.key or change.phrase
                edit = partial(_changed, site.key, repair, key)
                add((site.key, key, change.phrase), change, edit, places[site.key])
        for turn, frame in enumerate(call_repairs(site.equation)):
            patches = partial(_frame_edits, site.key, turn)
            made = Repair(frame.place, source_line(frame.place), frame.phrase, 0, True, patches)
            found.setdefault((site.key, turn), made)
    for place, keys, change in _unrounded_results(sites, places):
        add((place, keys), change, partial(_unrounded, keys), place)
    return _in_order(found.values())


def _unrounded_results(
    sites: Sequence[Site], places: Mapping[SiteKey, str]
) -> Iterator[tuple[str, tuple[SiteKey, ...], EquationChange]]:
    # Results that are not rounded to a narrow dtype, or do not wrap: each by itself, those of a line, whoever calls it
    # or by way of one call, and all that are computed from a cast in its dtype.
    narrow = {id(site): dtype for site in sites if (dtype := _rounded_to(site)) is not None}
    for site in sites:
        if (dtype := narrow.get(id(site))) is None:
            continue
        place, innermost = places[site.key], site.frames[0][0]
        phrase, undone = f"not rounding the result of {site.name} to {dtype}", f"a rounding to {dtype}"
        if wraps(site.equation):
            what = f"{dtype} {'product' if primitive_of(site.equation).multiplies else 'sum'} {OVERFLOWS}"
            phrase, undone = f"computing {site.name} in 64 bits", f"a{'n' * what.startswith('i')} {what}"
        # What one of several calls of a helper rounds, the helper may round.
        yield place, (site.key,), EquationChange(phrase, list, literal=place == innermost, undone=undone)
        if is_float_array(site.equation.outvars[0]):
            near = [each for each in sites if narrow.get(id(each)) == dtype]
            groups = (
                (innermost, [each for each in near if each.frames[0][0] == innermost], "in this line"),
                (place, [each for each in near if places[each.key] == place], "in this line"),
                (place, _computed_from(site, near) if site.name == "convert_element_type" else [], "from this cast on"),
            )
            for line, together, where in groups:
                keys = tuple(dict.fromkeys(each.key for each in together))
                if len(keys) > 1:
                    phrase = f"not rounding to {dtype} {where}"
                    yield line, keys, EquationChange(phrase, list, "", 1, line == innermost, undone)


def _computed_from(site: Site, later: Sequence[Site]) -> list[Site]:
    # A site and those that depend on it by way of each other, in order.
    found, known = [site], set(site.equation.outvars)
    for each in later:
        if not known.isdisjoint(v for v in each.operands if not isinstance(v, Literal)):
            found.append(each)
            known.update(each.equation.outvars)
    return found


def disturbances(kernel: EvaluatedKernel) -> list[tuple[str, MakeEdit]]:
    """Returns an edit for each place of a kernel that computes floats or booleans, which changes all of them."""
    sites = [site for site in kernel.own.sites() if len(site.equation.outvars) == 1]
    places = _places([site.key for site in sites])
    kinds = ((is_float_array, lambda x: 2 * x + 1), (is_boolean_array, lambda x: ~x))
    edits = {
        site.key: partial(_disturbed, site.key, change)
        for site in sites
        for has_type, change in kinds
        if has_type(site.equation.outvars[0])
    }
    return [(places[key], edit) for key, edit in edits.items()]


def _disturbed(key: SiteKey, function: Function, jaxpr: LocatedJaxpr) -> Edit:
    return [Replacement(site.equation, after(site.equation, function)) for site in jaxpr.sites_at(key)]


def _changed(key: SiteKey, operator: Changes, change: str, jaxpr: LocatedJaxpr) -> Edit:
    with jax.enable_x64(True):
        changes = ((site, jaxpr.change_of(site, operator, change)) for site in jaxpr.sites_at(key))
        return [Replacement(site.equation, found.equations()) for site, found in changes if found is not None]


def _unrounded(keys: Sequence[SiteKey], jaxpr: LocatedJaxpr) -> Edit:
    return [Replacement(site.equation) for key in keys for site in jaxpr.sites_at(key)]


def _frame_edits(key: SiteKey, turn: int, kernel: EvaluatedKernel) -> Iterator[MakeEdit]:
    # An edit for each value that the line of a call's grid or index map could have.
    ways = [list(call_repairs(site.equation))[turn].equations for site in kernel.own.sites_at(key)]
    for way in range(max(map(len, ways), default=0)):

        def make(jaxpr: LocatedJaxpr, way: int = way) -> Edit:
            calls = [site.equation for site in jaxpr.sites_at(key)]
            return [Replacement(call, [list(call_repairs(call))[turn].equations[way]]) for call in calls]

        yield make


def _places(keys: Sequence[SiteKey]) -> dict[SiteKey, str]:
    # The line of each place: the innermost that only one call leads to, since a helper itself may be right.
    callers: dict[str, set[tuple[tuple[str, int], ...]]] = {}
    for frames, _ in keys:
        for depth, (line, _) in enumerate(frames):
            callers.setdefault(line, set()).add(frames[depth + 1 :])
    return {
        key: next((line for line, _ in key[0] if len(callers[line]) == 1), key[0][0][0] if key[0] else "")
        for key in keys
    }


def _rounded_to(site: Site) -> str | None:
    # The narrow dtype to which an equation rounds, or at which it wraps.
    if len(site.equation.outvars) != 1 or not is_array(site.equation.outvars[0]):
        return None
    (result,) = site.equation.outvars
    dtype = dtype_of(result)
    if is_float(dtype) and dtype.itemsize <= 2 and primitive_of(site.equation).may_round:
        return str(dtype.name)
    if wraps(site.equation):
        return str(dtype.name)
    is_cast = site.name == "convert_element_type" and is_integer_array(result) and is_integer_array(site.operands[0])
    return str(dtype.name) if is_cast and dtype_of(site.operands[0]).itemsize > dtype.itemsize else None


_MOST_FIXING = 200  # repairs that fix the first wrong replay and are tried on others
_MOST_CANDIDATES = 8  # repairs that are tried on further cases
_MOST_FURTHER = 32  # of these cases
# Wrong replays that a repair must fix to be believed to repair one of two bugs, their share, and its highest cost.
_LEAST_FIXED, _LEAST_SHARE, _MOST_COST = 3, 0.25, 2
_FIRST_SHARE = 0.75  # of the work, that one way to search may do before the other
_OF_FACTORS = {"a missing factor", "a missing divisor"}  # causes that say less than any other
_MOST_LINES = 4  # on which values are computed that are wrong


@dataclass(frozen=True, slots=True)
class LineSearch:
    """The result of a search for the line at fault."""

    location: FaultLocation | None = None  # None if no experiment shows it
    computed: tuple[str, ...] = ()  # if there is none, the lines that only compute values that are wrong, if few


Replay = CaseReplay | EquationReplay  # a call with known results on which repairs are tried
R = TypeVar("R", bound=Replay)
Cases = Sequence[AnyCase]


def find_repair(
    first: Replay, rest: Iterable[Replay], repairs: Iterable[Repair], budget: WorkBudget, more: Iterable[Replay]
) -> FaultLocation | None:
    """Returns the location of the cheapest repair that makes every replay right, or else of one that makes some right.

    If a repair makes only some wrong replays right and breaks none, and all repairs were tried, the others have another
    bug.

    Args:
      first: a wrong replay.
      rest: further replays, wrong and right.
      repairs: the repairs of the kernel, those with the lowest cost first.
      budget: the work that is left. Ordinary searches do far less.
      more: replays on which the best repairs are tried to tell them apart, wrong and right.
    """
    candidates, replays, complete = _try_repairs(first, rest, repairs, budget)
    least = min((left for _, left in candidates), default=0)
    best = [repair for repair, left in candidates if left == least]
    if not best:
        return None
    untried = {repair.place for repair in best[_MOST_CANDIDATES:]}
    best = best[:_MOST_CANDIDATES]
    wrong = [replay for replay in replays if replay.is_wrong]
    for replay in islice(more, _MOST_FURTHER):
        if replay.is_wrong:
            wrong.append(replay)
        elif not least:
            best = list(compress(best, _are_right(replay, best, budget)))
            if not best:
                return None
    certain = complete and not budget.is_over()  # else some replays may be missing
    still_wrong: list[dict[str, None]] = [{} for _ in best]
    for replay in wrong:
        for left, right in zip(still_wrong, _are_right(replay, best, budget), strict=True):
            left.update({} if right else {replay.case.id: None})
    fewest = min(map(len, still_wrong))
    best = [repair for repair, left in zip(best, still_wrong, strict=True) if len(left) == fewest]
    location = _location(best)
    if not fewest:
        is_sure = location.confirmed and certain and _has_several_lengths(wrong, replays)
        return replace(location, confirmed=is_sure and untried <= {location.place})
    # A repair that was not tried may repair all, so that these are not two bugs.
    if not complete or not _explains_a_part(len(wrong), fewest):
        return None
    unexplained = next(left for left in still_wrong if len(left) == fewest)
    explained = dict.fromkeys(replay.case.id for replay in wrong if replay.case.id not in unexplained)
    return replace(location, confirmed=False, explained=tuple(explained), unexplained=tuple(unexplained))


def _has_several_lengths(wrong: Iterable[Replay], replays: Iterable[Replay]) -> bool:
    # Whether wrong replays have several lengths of each dim of which replays do, beside 1: any number fits one length.
    failing, tried = ({pair for each in some for pair in each.case.signature.dims} for some in (wrong, replays))
    failed, several = (Counter(name for name, length in pairs if length != 1) for pairs in (failing, tried))
    return all(failed[name] != 1 for name, count in several.items() if count > 1)


def _try_repairs(
    first: Replay, rest: Iterable[Replay], repairs: Iterable[Repair], budget: WorkBudget
) -> tuple[list[tuple[Repair, int]], list[Replay], bool]:
    # The repairs that make the first wrong replay right, and of the others all or some, and no right one wrong: each
    # with the number that stays wrong. Then all replays, and whether all repairs were tried.
    untried, fixing, tried, complete = iter(repairs), list[Repair](), 0, True
    while chunk := list(islice(untried, first.together)):
        if tried >= first.most_edits or len(fixing) >= _MOST_FIXING or budget.is_over():
            complete = False
            break
        fixing += compress(chunk, _are_right(first, chunk, budget))
        tried += len(chunk)
    replays = [first, *sorted(rest, key=lambda replay: replay.work(1))] if fixing else [first]
    count = sum(replay.is_wrong for replay in replays)
    left, following = [0] * len(fixing), [1] * len(fixing)  # wrong replays, and the next one that is tried
    found: list[tuple[Repair, int]] = []
    # First those are tried that repair all so far. Only if none does, the others go on: the work may suffice for few.
    for most in (0, count - max(_LEAST_FIXED, _LEAST_SHARE * count)):
        for number, replay in enumerate(replays):
            if budget.is_over():  # some replays may be missing, and what fixes only the first one shows nothing
                return [], replays, False
            trying = [i for i, at in enumerate(following) if at == number and left[i] <= most]
            rights = _are_right(replay, [fixing[i] for i in trying], budget) if trying else ()
            for i, right in zip(trying, rights, strict=True):
                left[i] += not right
                following[i] += right or (replay.is_wrong and fixing[i].cost <= _MOST_COST)
        ends = zip(fixing, left, following, strict=True)
        if found := [(repair, n) for repair, n, at in ends if at == len(replays) and n <= most]:
            break
    return found, replays, complete


def _explains_a_part(wrong: int, left: int) -> bool:
    return wrong - left >= max(_LEAST_FIXED, _LEAST_SHARE * wrong)


def _location(repairs: Sequence[Repair]) -> FaultLocation:
    # The repairs make the same replays right, in order of their cost; the location is confirmed if all agree on it.
    cheapest = [repair for repair in repairs if repair.cost == min(other.cost for other in repairs)]
    best = cheapest[-1 if cheapest[0].cost > 2 else 0]  # of two uses of a value, the later one is likelier the bug
    others = tuple(dict.fromkeys(repair.place for repair in repairs if repair.place != best.place))
    # A named constant may be wrong at its definition; the same edit would repair it there. The dearest fit by chance.
    literal = all(repair.literal for repair in repairs if repair.cost <= max(best.cost, _MOST_COST))
    words = f"{best.phrase} fixes the result"
    # A repair that costs more, such as another value that fits, is no other explanation.
    undone = {repair.undone for repair in cheapest}
    causes = undone - _OF_FACTORS or undone  # the right factor may be in scope
    overflows = all(cause.endswith(OVERFLOWS) for cause in causes)  # what the first one makes wide stays so: the last
    cause = cheapest[-1].undone if overflows else "".join(causes) if len(causes) == 1 else ""
    return FaultLocation(best.place, best.operation, words, literal and not others, others, cause=cause)


def _are_right(replay: Replay, repairs: Sequence[Repair], budget: WorkBudget) -> list[bool]:
    # Whether a replay is right with each of some repairs. A mutation that does not apply to the lengths of a replay is
    # assumed to be right.
    ways = [_ways(replay, repair) for repair in repairs]
    patches = [way for each in ways for way in each or ()]
    budget.spend(replay.work(len(patches)))
    runs: Iterator[bool] = iter(replay.are_right(patches))
    return [True if each is None else any(list(islice(runs, len(each)))) for each in ways]


def _ways(replay: Replay, repair: Repair) -> list[Any] | None:
    # The patches of a repair that are to be tried; None if it has none, or several for a replay that is right.
    try:
        ways = list(repair.patches(replay.kernel))
    except Exception:  # a repair may be invalid
        return []
    return None if not ways or (len(ways) > 1 and not replay.is_wrong) else ways


def repaired_replays(location: FaultLocation | None, pairing: Pairing, **options: Any) -> Callable[..., Any]:
    """Returns `equation_replays` of a kernel that is repaired at a location: what is still wrong has another bug."""

    def judge(replay: EquationReplay) -> bool:
        kernel = replay.kernel
        if location is not None and kernel.first is None:
            at_place = (repair for repair in equation_repairs(kernel) if repair.place == location.place)
            edits = (repair.patches(kernel) for repair in at_place if _location([repair]).words == location.words)
            kernel.first = next(chain.from_iterable(edits), lambda jaxpr: ())
        return replay.is_wrong

    return partial(equation_replays, pairing, judge=judge, cache=Cache(), kernels={}, **options)


def lines_of_wrong_values(replay: EquationReplay) -> tuple[str, ...]:
    """Returns the lines on which a wrong replay computes nothing but values that are wrong; () if these are many."""
    places = disturbances(replay.kernel)
    disturbed = replay.disturbed([edit for _, edit in places])
    of_right = {place for (place, _), (_, right) in zip(places, disturbed, strict=True) if right}
    of_wrong = {place for (place, _), (wrong, _) in zip(places, disturbed, strict=True) if wrong}
    found = tuple(place for place in dict.fromkeys(place for place, _ in places) if place in of_wrong - of_right)
    return found if len(found) <= min(_MOST_LINES, len(of_wrong | of_right) // 2) else ()


# Mutation-based fault localisation: the line whose mutation makes a failing case right.


def locate_fault(
    pairing: Pairing,
    case: ExplicitCase,
    outcome: Outcome,
    budget: WorkBudget,
    target: str = "sm_90",
    also: Cases = (),
    more: Cases = (),
    repaired: FaultLocation | None = None,
) -> LineSearch:
    """Searches for the location from which the wrong values of a failing case come.

    The kernel is run again with one thing changed at a time: its jaxpr, which NumPy evaluates, or its lowered code,
    which the simulator runs.

    Args:
      pairing: the kernel and its oracle.
      case: a failing case, as small as possible.
      outcome: its outcome.
      budget: the work that the search may do.
      target: the GPU that the kernel is lowered for.
      also: further cases, failing and passing, preferably of other lengths, which a repair must make right as well.
      more: cases, failing and passing, on which the repairs that do so are tried.
      repaired: the location of another bug. Changes are also tried in addition to its repair.
    """
    record, family, whole = outcome.record, outcome.record.family, budget.work
    evaluated = partial(equation_replays, pairing, family=family, budget=budget, cache=Cache(), kernels={})
    simulated = partial(case_replays, pairing, family=family, target=target, budget=budget, cache=Cache(), kernels={})
    of_values = record.verdict.kind is VerdictKind.VALUES if record.family not in INVARIANTS else None
    if repaired is not None:
        second = repaired_replays(repaired, pairing, family=family, budget=budget)
        location = _locate_in_equations(second, [case, *also], more, budget)
        alone = repaired_replays(location, pairing, family=family, budget=budget)
        left = (replay.case for replay in second([case, *also]) if replay.is_wrong)  # one change does not repair these
        is_new = location is not None and not location.unexplained and location.place != repaired.place
        if location is not None and is_new and any(replay.is_wrong for replay in alone(left)):
            words = f"{location.words}, after the change at {repaired.place}"
            return LineSearch(replace(location, words=words, confirmed=False))
    cause = cause_of(record.detail)
    first = _if_wrong(simulated, case) if cause is not None and cause.what is ErrorCause.OVERFLOW else None
    if first is not None and (found := find_overflow(first)) is not None:
        return LineSearch(found)
    # What fails without lowering is sought without lowering first, but for the origins of NaN and infinities.
    is_interpreted = record.tier == Tier.INTERPRET and record.verdict is not Verdict.SPECIAL_MISMATCH
    searches = [partial(_locate_in_equations, evaluated), partial(_locate_in_code, simulated, of_values=of_values)]
    if record.verdict is Verdict.RACE:  # NumPy runs programs one after another: right values there show no race is gone
        searches = searches[1:]
    partly: FaultLocation | None = None
    for waiting, search in enumerate(searches if is_interpreted else searches[::-1], 1 - len(searches)):
        budget.work = _FIRST_SHARE * whole if waiting else whole
        location = search([case, *also], more, budget)
        # What repairs only some cases in one way does not repair all of them in the other: those that it does not apply
        # to, since their code differs, count as repaired.
        is_same = partly is not None and location is not None and location.place == partly.place
        if location is not None and not location.unexplained and not is_same:
            return LineSearch(location)
        partly = partly or location
    wrong = _if_wrong(evaluated, case) if partly is None and record.verdict is not Verdict.RACE else None
    return LineSearch(partly, lines_of_wrong_values(wrong) if wrong else ())


def _if_wrong(replays: Callable[..., Iterator[R]], case: AnyCase) -> R | None:
    first = next(replays([case]), None)
    return first if first is not None and first.is_wrong else None


def _locate_in_code(
    replays: Callable[..., Iterator[CaseReplay]], cases: Cases, more: Cases, budget: WorkBudget, of_values: bool | None
) -> FaultLocation | None:
    if (first := _if_wrong(replays, cases[0])) is None:
        return None
    rest = [*replays(cases, distinctive=True)][1:]
    special, is_overflow = find_special_origin(first)
    # Overflowing values may have been wrong before, and a NaN need not be all that is wrong.
    explains_all = (
        special is not None
        and not is_overflow
        and all(is_special(replay) for replay in (first, *rest) if replay.is_wrong)
    )
    if special is not None and explains_all and not special.alternatives:
        return replace(special, confirmed=True)
    further, repairs = replays(more), code_repairs(first.kernel)
    location = find_repair(first, rest, repairs, budget, further)
    if location is None and of_values is not None:
        location = _locate_two([first, *rest], repairs, budget, of_values)
    if special is not None and (location is None or (explains_all and not location.confirmed)):
        return replace(special, cause="")
    return location


def _locate_two(
    replays: Sequence[CaseReplay], repairs: Sequence[Repair], budget: WorkBudget, of_values: bool
) -> FaultLocation | None:
    # Memory is misused, and other values are wrong: two bugs if one edit lets every case use memory correctly, and one
    # at another line corrects these values in every case.
    if all(replay.original.is_defined for replay in replays):
        return None
    parts = [[replay.part(of_values=judged) for replay in replays] for judged in (False, True)]
    found: list[FaultLocation] = []
    for sides in parts:
        sides.sort(key=lambda part: not part.is_wrong)
        location = find_repair(sides[0], sides[1:], repairs, budget, ()) if sides[0].is_wrong else None
        if location is None or location.unexplained:
            return None
        found.append(location)
    memory, values = found
    if memory.place == values.place:
        return None
    tried = tuple(dict.fromkeys(replay.case.id for replay in replays))
    left = tuple(dict.fromkeys(part.case.id for part in parts[1] if part.is_wrong))
    return values if of_values else replace(memory, explained=tried, unexplained=left)


def _locate_in_equations(
    replays: Callable[..., Iterator[EquationReplay]], cases: Cases, more: Cases, budget: WorkBudget
) -> FaultLocation | None:
    if (first := _if_wrong(replays, cases[0])) is None:
        return None
    rest = islice(replays(cases, distinctive=True), 1, None)
    return find_repair(first, rest, equation_repairs(first.kernel), budget, replays(more))
