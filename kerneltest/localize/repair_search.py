"""The search for the repairs that make failing cases right, and the line on which they agree."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kerneltest.core.details import ErrorCause, Mismatch
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.item import Outcome
from kerneltest.localize.case_replay import CaseReplay, replay_cases, replay_until
from kerneltest.localize.equation_replay import EquationReplay, equation_replays
from kerneltest.localize.repairs import Repair, code_repairs, equation_repairs
from kerneltest.localize.special_origin import SpecialOrigin, find_overflow, find_special_origin, is_special
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.records.schema import FaultLocation

_MOST_CANDIDATES = 8  # repairs that are tried on further cases
_LEAST_FIXED = 3  # wrong replays that a repair must fix to be believed to repair one of two bugs
_FIRST_SHARE = 0.7  # of the time, in which repairs are tried on the first wrong replay


Replay = CaseReplay | EquationReplay


@dataclass(slots=True)
class _Candidates:
    # Repairs that make the first wrong replay right, by their effect on the others.
    fixing_all: list[Repair]
    # they make only some wrong replays right, and no right one wrong; with the number that stays wrong
    fixing_some: list[tuple[Repair, int]]
    complete: bool = True  # whether all repairs were tried in time

    def best(self) -> list[Repair]:
        fewest = min((left for _, left in self.fixing_some), default=0)
        return self.fixing_all or [repair for repair, left in self.fixing_some if left == fewest]


def find_repair(
    first: Replay,
    rest: Callable[[], Sequence[Replay]],
    repairs: Iterable[Repair],
    deadline: float,
    more: Callable[[], Iterator[Replay]],
) -> FaultLocation | None:
    """Returns the location of the cheapest repair that makes every replay right, or else of one that makes some right.

    If a repair makes only some wrong replays right and breaks none, and all repairs were tried, the others have another
    bug.

    Args:
      first: a wrong replay.
      rest: returns further replays, wrong and right.
      repairs: the repairs of the kernel, those with the lowest cost first.
      deadline: when to stop, as a time of `time.monotonic`.
      more: yields replays on which the best repairs are tried to tell them apart, wrong and right.
    """
    candidates, replays = _try_repairs(first, rest, repairs, deadline)
    best = candidates.best()
    if not best:
        return None
    untried = {repair.place for repair in best[_MOST_CANDIDATES:]}
    best = best[:_MOST_CANDIDATES]
    wrong = [replay for replay in replays if replay.is_wrong]
    patches: list[dict[int, list[Any]]] = [{} for _ in best]
    for replay in more():
        if replay.is_wrong:
            wrong.append(replay)
        elif candidates.fixing_all:
            kept = [k for k, repair in enumerate(best) if _is_right(replay, repair, patches[k])]
            if not kept:
                return None
            best, patches = [best[k] for k in kept], [patches[k] for k in kept]
    still_wrong = {id(repair): _unfixed_cases(wrong, repair) for repair in best}
    fewest = min(map(len, still_wrong.values()))
    best = [repair for repair in best if len(still_wrong[id(repair)]) == fewest]
    location = _location(best)
    if not fewest:
        certain = candidates.complete and untried <= {location.place}
        return replace(location, confirmed=location.confirmed and certain)
    if not candidates.complete:  # a repair that was not tried may repair all, so that these are not two bugs
        return None
    unexplained = still_wrong[id(best[0])]
    explained = dict.fromkeys(replay.case.id for replay in wrong if replay.case.id not in unexplained)
    return replace(location, confirmed=False, explained=tuple(explained), unexplained=tuple(unexplained))


def _try_repairs(
    first: Replay, rest: Callable[[], Sequence[Replay]], repairs: Iterable[Repair], deadline: float
) -> tuple[_Candidates, list[Replay]]:
    candidates, fixing = _Candidates([], []), []
    started = time.monotonic()
    for repair in repairs:
        if time.monotonic() > started + _FIRST_SHARE * (deadline - started):
            candidates.complete = False
            break
        patches: dict[int, list[Any]] = {}
        if _is_right(first, repair, patches):
            fixing.append((repair, patches))
    replays = [first, *rest()] if fixing else [first]
    wrong = [replay for replay in replays if replay.is_wrong]
    right = [replay for replay in replays if not replay.is_wrong]
    for repair, patches in fixing:
        if time.monotonic() > deadline:
            candidates.complete = False
            break
        left = sum(not _is_right(replay, repair, patches) for replay in wrong[1:])
        breaks_none = all(_is_right(replay, repair, patches) for replay in right)
        if breaks_none and not left:
            candidates.fixing_all.append(repair)
        elif breaks_none and len(wrong) - left >= _LEAST_FIXED:
            candidates.fixing_some.append((repair, left))
    return candidates, replays


def _unfixed_cases(wrong: Sequence[Replay], repair: Repair) -> dict[str, None]:
    patches: dict[int, list[Any]] = {}
    return dict.fromkeys(replay.case.id for replay in wrong if not _is_right(replay, repair, patches))


def _location(repairs: Sequence[Repair]) -> FaultLocation:
    # The repairs make the same replays right, in order of their cost; the location is confirmed if all agree on it.
    cheapest = [repair for repair in repairs if repair.cost == min(other.cost for other in repairs)]
    best = cheapest[-1 if cheapest[0].cost > 2 else 0]  # of two uses of a value, the later one is likelier the bug
    others = tuple(dict.fromkeys(repair.place for repair in repairs if repair.place != best.place))
    # A named constant may be wrong at its definition; the same edit would repair it there.
    literal = all(repair.literal for repair in repairs)
    return FaultLocation(best.place, best.operation, f"{best.phrase} fixes the result", literal and not others, others)


def _is_right(replay: Replay, repair: Repair, patches: dict[int, list[Any]]) -> bool:
    # A mutation that does not apply to the lengths of a replay is assumed to be right. `patches` gets those of
    # further kernels.
    key = id(replay.kernel)
    if key not in patches:
        try:
            patches[key] = list(repair.patches(replay.kernel))
        except Exception:  # a repair may be invalid
            return False
    ways = patches[key]
    if not ways or (len(ways) > 1 and not replay.is_wrong):
        return True
    runs: Iterator[Any] = (replay.attempt(patch) for patch in ways)
    return any(run is not None and replay.is_right(run) for run in runs)


# Mutation-based fault localisation: the line whose mutation makes a failing case right.


def locate_fault(
    pairing: Pairing,
    case: ExplicitCase,
    outcome: Outcome,
    target: str = "sm_90",
    seconds: float = 5.0,
    also: Sequence[AnyCase] = (),
    more: Sequence[AnyCase] = (),
) -> FaultLocation | None:
    """Returns the location from which the wrong values of a failing case come; None if no experiment shows it.

    The kernel is run again with one thing changed at a time: its jaxpr, which NumPy evaluates, or its lowered code,
    which the simulator runs.

    Args:
      pairing: the kernel and its oracle.
      case: a failing case, as small as possible.
      outcome: its outcome.
      target: the GPU that the kernel is lowered for.
      seconds: the time to spend.
      also: further cases, failing and passing, preferably of other lengths, which a repair must make right as well.
      more: cases, failing and passing, on which the repairs that do so are tried.
    """
    record, started = outcome.record, time.monotonic()
    cases = _Cases(pairing, case, record.family, target, also, more)
    if _is_by_overflow(record.detail) and (found := cases.locate_overflow()):
        return found
    # What fails without lowering is sought without lowering first, but for the origins of NaN and infinities.
    is_interpreted = record.tier == Tier.INTERPRET and record.verdict is not Verdict.SPECIAL_MISMATCH
    searches = [cases.locate_in_equations, cases.locate_in_code]
    partly: FaultLocation | None = None
    for search, share in zip(searches if is_interpreted else searches[::-1], (_FIRST_SHARE, 1.0), strict=True):
        location = search(started + share * seconds)
        # What repairs only some cases in one way does not repair all of them in the other: those that it does not apply
        # to, since their code differs, count as repaired.
        is_same = partly is not None and location is not None and location.place == partly.place
        if location is not None and not location.unexplained and not is_same:
            return location
        partly = partly or location
    return partly


def _is_by_overflow(detail: object) -> bool:
    return isinstance(detail, Mismatch) and detail.cause is not None and detail.cause.what is ErrorCause.OVERFLOW


@dataclass(frozen=True, slots=True)
class _Cases:
    # The arguments of `locate_fault`.
    pairing: Pairing
    case: ExplicitCase
    family: str
    target: str
    also: Sequence[AnyCase]
    more: Sequence[AnyCase]

    def locate_overflow(self) -> FaultLocation | None:
        replays = replay_cases(self.pairing, [self.case], self.family, self.target)
        found = find_overflow(replays[0]) if replays and replays[0].is_wrong else None
        return _special_location(found, confirmed=False) if found is not None else None

    def locate_in_code(self, deadline: float) -> FaultLocation | None:
        replays = replay_cases(self.pairing, [self.case, *self.also], self.family, self.target)
        if not replays or not replays[0].is_wrong:
            return None
        special = find_special_origin(replays[0])
        # Overflowing values may have been wrong before, and a NaN need not be all that is wrong.
        explains_all = (
            special is not None
            and not special.is_overflow
            and all(is_special(replay) for replay in replays if replay.is_wrong)
        )
        if special is not None and explains_all and not special.others:
            return _special_location(special, confirmed=True)
        more = partial(replay_until, self.pairing, self.more, self.family, self.target, deadline)
        location = find_repair(replays[0], lambda: replays[1:], code_repairs(replays[0].kernel), deadline, more)
        if special is not None and (location is None or (explains_all and not location.confirmed)):
            return _special_location(special, confirmed=False)
        return location

    def locate_in_equations(self, deadline: float) -> FaultLocation | None:
        replays = partial(equation_replays, self.pairing, family=self.family)
        first = next(replays([self.case], distinctive=False), None)
        if first is None or not first.is_wrong:
            return None
        return find_repair(
            first,
            lambda: [*replays([self.case, *self.also], deadline=deadline)][1:],
            equation_repairs(first.kernel),
            deadline,
            lambda: replays(self.more, distinctive=False, deadline=deadline),
        )


def _special_location(special: SpecialOrigin, *, confirmed: bool) -> FaultLocation:
    return FaultLocation(special.source.place, special.source.text, special.words, confirmed, special.others)
