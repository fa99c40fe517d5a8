"""The search for the repairs that make failing cases right, and the line on which they agree."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress, islice
from typing import Any, Protocol, TypeVar

from kerneltest.core.details import ErrorCause
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.item import Outcome
from kerneltest.localize.case_replay import CaseReplay, case_replays
from kerneltest.localize.equation_replay import EquationReplay, equation_replays
from kerneltest.localize.repairs import Repair, code_repairs, disturbances, equation_repairs
from kerneltest.localize.special_origin import find_overflow, find_special_origin, is_special
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.records.schema import FaultLocation
from kerneltest.triage.symptoms import cause_of

_MOST_FIXING = 200  # repairs that fix the first wrong replay and are tried on others
_MOST_CANDIDATES = 8  # repairs that are tried on further cases
_MOST_FURTHER = 32  # of these cases
# Wrong replays that a repair must fix to be believed to repair one of two bugs, their share, and its highest cost.
_LEAST_FIXED, _LEAST_SHARE, _MOST_COST = 3, 0.25, 2
_MOST_LINES = 4  # on which values are computed that are wrong


@dataclass(slots=True)
class Deadline:
    """The end of a search that would take far too long, in seconds of this thread's time."""

    seconds: float
    is_met: bool = False  # whether the search was cut short
    started: float = field(default_factory=time.thread_time)

    def is_over(self) -> bool:
        self.is_met |= time.thread_time() - self.started > self.seconds
        return self.is_met


@dataclass(frozen=True, slots=True)
class LineSearch:
    """The result of a search for the line at fault."""

    location: FaultLocation | None = None  # None if no experiment shows it
    computed: tuple[str, ...] = ()  # if there is none, the lines that only compute values that are wrong, if few
    complete: bool = True  # whether the time sufficed


class Replay(Protocol):
    """A call with known results on which repairs are tried: a `CaseReplay` or an `EquationReplay`."""

    @property
    def case(self) -> AnyCase: ...

    @property
    def kernel(self) -> Any: ...

    @property
    def is_wrong(self) -> bool: ...

    @property
    def together(self) -> int: ...

    @property
    def most_edits(self) -> int: ...

    def are_right(self, edits: Sequence[Any], /) -> list[bool]: ...


R = TypeVar("R", bound=Replay)


@dataclass(slots=True)
class _Candidates:
    # Repairs that make the first wrong replay right, by their effect on the others.
    fixing_all: list[Repair]
    # they make only some wrong replays right, and no right one wrong; with the number that stays wrong
    fixing_some: list[tuple[Repair, int]]
    complete: bool = True  # whether all repairs were tried

    def best(self) -> list[Repair]:
        fewest = min((left for _, left in self.fixing_some), default=0)
        return self.fixing_all or [repair for repair, left in self.fixing_some if left == fewest]


def find_repair(
    first: Replay,
    rest: Callable[[], Sequence[Replay]],
    repairs: Iterable[Repair],
    deadline: Deadline,
    more: Callable[[], Iterator[Replay]],
) -> FaultLocation | None:
    """Returns the location of the cheapest repair that makes every replay right, or else of one that makes some right.

    If a repair makes only some wrong replays right and breaks none, and all repairs were tried, the others have another
    bug.

    Args:
      first: a wrong replay.
      rest: returns further replays, wrong and right.
      repairs: the repairs of the kernel, those with the lowest cost first.
      deadline: when to give up. Ordinary searches end long before.
      more: yields replays on which the best repairs are tried to tell them apart, wrong and right.
    """
    candidates, replays = _try_repairs(first, rest, repairs, deadline)
    best = candidates.best()
    if not best:
        return None
    untried = {repair.place for repair in best[_MOST_CANDIDATES:]}
    best = best[:_MOST_CANDIDATES]
    wrong = [replay for replay in replays if replay.is_wrong]
    for replay in islice(more(), _MOST_FURTHER):
        if replay.is_wrong:
            wrong.append(replay)
        elif candidates.fixing_all:
            best = list(compress(best, _are_right(replay, best)))
            if not best:
                return None
    certain = candidates.complete and not deadline.is_over()  # else some replays may be missing
    still_wrong: list[dict[str, None]] = [{} for _ in best]
    for replay in wrong:
        for left, right in zip(still_wrong, _are_right(replay, best), strict=True):
            left.update({} if right else {replay.case.id: None})
    fewest = min(map(len, still_wrong))
    best = [repair for repair, left in zip(best, still_wrong, strict=True) if len(left) == fewest]
    location = _location(best)
    if not fewest:
        return replace(location, confirmed=location.confirmed and certain and untried <= {location.place})
    # A repair that was not tried may repair all, so that these are not two bugs.
    if not candidates.complete or not _explains_a_part(len(wrong), fewest):
        return None
    unexplained = next(left for left in still_wrong if len(left) == fewest)
    explained = dict.fromkeys(replay.case.id for replay in wrong if replay.case.id not in unexplained)
    return replace(location, confirmed=False, explained=tuple(explained), unexplained=tuple(unexplained))


def _try_repairs(
    first: Replay, rest: Callable[[], Sequence[Replay]], repairs: Iterable[Repair], deadline: Deadline
) -> tuple[_Candidates, list[Replay]]:
    untried, fixing, tried, complete = iter(repairs), list[Repair](), 0, True
    while chunk := list(islice(untried, first.together)):
        if tried >= first.most_edits or len(fixing) >= _MOST_FIXING or deadline.is_over():
            complete = False
            break
        fixing += compress(chunk, _are_right(first, chunk))
        tried += len(chunk)
    candidates = _Candidates([], [], complete)
    replays = [first, *rest()] if fixing else [first]
    wrong = [replay for replay in replays if replay.is_wrong]
    left, breaks = [0] * len(fixing), [False] * len(fixing)
    if deadline.is_over():  # some replays may be missing, and what fixes only the first one shows nothing
        return _Candidates([], [], False), replays
    for replay in replays[1:]:
        if deadline.is_over():
            return _Candidates([], [], False), replays
        for number, right in enumerate(_are_right(replay, fixing)):
            left[number] += replay.is_wrong and not right
            breaks[number] |= not replay.is_wrong and not right
    for repair, wrong_left, breaks_some in zip(fixing, left, breaks, strict=True):
        if not breaks_some and not wrong_left:
            candidates.fixing_all.append(repair)
        elif not breaks_some and repair.cost <= _MOST_COST and _explains_a_part(len(wrong), wrong_left):
            candidates.fixing_some.append((repair, wrong_left))
    return candidates, replays


def _explains_a_part(wrong: int, left: int) -> bool:
    return wrong - left >= max(_LEAST_FIXED, _LEAST_SHARE * wrong)


def _location(repairs: Sequence[Repair]) -> FaultLocation:
    # The repairs make the same replays right, in order of their cost; the location is confirmed if all agree on it.
    cheapest = [repair for repair in repairs if repair.cost == min(other.cost for other in repairs)]
    best = cheapest[-1 if cheapest[0].cost > 2 else 0]  # of two uses of a value, the later one is likelier the bug
    others = tuple(dict.fromkeys(repair.place for repair in repairs if repair.place != best.place))
    # A named constant may be wrong at its definition; the same edit would repair it there.
    literal = all(repair.literal for repair in repairs)
    return FaultLocation(best.place, best.operation, f"{best.phrase} fixes the result", literal and not others, others)


def _are_right(replay: Replay, repairs: Sequence[Repair]) -> list[bool]:
    # Whether a replay is right with each of some repairs. A mutation that does not apply to the lengths of a replay is
    # assumed to be right.
    ways = [_ways(replay, repair) for repair in repairs]
    runs: Iterator[bool] = iter(replay.are_right([way for each in ways for way in each or ()]))
    return [True if each is None else any(list(islice(runs, len(each)))) for each in ways]


def _ways(replay: Replay, repair: Repair) -> list[Any] | None:
    # The patches of a repair that are to be tried; None if it has none, or several for a replay that is right.
    try:
        ways = list(repair.patches(replay.kernel))
    except Exception:  # a repair may be invalid
        return []
    return None if not ways or (len(ways) > 1 and not replay.is_wrong) else ways


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
    target: str = "sm_90",
    seconds: float = 5.0,
    also: Sequence[AnyCase] = (),
    more: Sequence[AnyCase] = (),
) -> LineSearch:
    """Searches for the location from which the wrong values of a failing case come.

    The kernel is run again with one thing changed at a time: its jaxpr, which NumPy evaluates, or its lowered code,
    which the simulator runs. Budgets count changes and cases, so that each run finds the same.

    Args:
      pairing: the kernel and its oracle.
      case: a failing case, as small as possible.
      outcome: its outcome.
      target: the GPU that the kernel is lowered for.
      seconds: the time after which the search is cut short.
      also: further cases, failing and passing, preferably of other lengths, which a repair must make right as well.
      more: cases, failing and passing, on which the repairs that do so are tried.
    """
    record, deadline = outcome.record, Deadline(seconds)
    evaluated = partial(equation_replays, pairing, family=record.family)
    simulated = partial(case_replays, pairing, family=record.family, target=target)
    cause = cause_of(record.detail)
    first = _if_wrong(simulated, case) if cause is not None and cause.what is ErrorCause.OVERFLOW else None
    if first is not None and (found := find_overflow(first)) is not None:
        return LineSearch(found.location(confirmed=False), complete=not deadline.is_met)
    # What fails without lowering is sought without lowering first, but for the origins of NaN and infinities.
    is_interpreted = record.tier == Tier.INTERPRET and record.verdict is not Verdict.SPECIAL_MISMATCH
    searches = [partial(_locate_in_equations, evaluated), partial(_locate_in_code, simulated)]
    partly: FaultLocation | None = None
    for search in searches if is_interpreted else searches[::-1]:
        location = search(case, also, more, deadline)
        # What repairs only some cases in one way does not repair all of them in the other: those that it does not apply
        # to, since their code differs, count as repaired.
        is_same = partly is not None and location is not None and location.place == partly.place
        if location is not None and not location.unexplained and not is_same:
            return LineSearch(location, complete=not deadline.is_met)
        partly = partly or location
    wrong = _if_wrong(evaluated, case) if partly is None else None
    return LineSearch(partly, lines_of_wrong_values(wrong) if wrong else (), complete=not deadline.is_met)


def _if_wrong(replays: Callable[..., Iterator[R]], case: AnyCase) -> R | None:
    first = next(replays([case]), None)
    return first if first is not None and first.is_wrong else None


def _locate_in_code(
    replays: Callable[..., Iterator[CaseReplay]],
    case: ExplicitCase,
    also: Sequence[AnyCase],
    more: Sequence[AnyCase],
    deadline: Deadline,
) -> FaultLocation | None:
    if (first := _if_wrong(replays, case)) is None:
        return None
    rest = [*replays([case, *also], distinctive=True)][1:]
    special = find_special_origin(first)
    # Overflowing values may have been wrong before, and a NaN need not be all that is wrong.
    explains_all = (
        special is not None
        and not special.is_overflow
        and all(is_special(replay) for replay in (first, *rest) if replay.is_wrong)
    )
    if special is not None and explains_all and not special.others:
        return special.location(confirmed=True)
    further = partial(replays, more, is_over=deadline.is_over)
    location = find_repair(first, lambda: rest, code_repairs(first.kernel), deadline, further)
    if special is not None and (location is None or (explains_all and not location.confirmed)):
        return special.location(confirmed=False)
    return location


def _locate_in_equations(
    replays: Callable[..., Iterator[EquationReplay]],
    case: ExplicitCase,
    also: Sequence[AnyCase],
    more: Sequence[AnyCase],
    deadline: Deadline,
) -> FaultLocation | None:
    if (first := _if_wrong(replays, case)) is None:
        return None
    until = partial(replays, is_over=deadline.is_over)
    rest, further = lambda: [*until([case, *also], distinctive=True)][1:], partial(until, more)
    return find_repair(first, rest, equation_repairs(first.kernel), deadline, further)
