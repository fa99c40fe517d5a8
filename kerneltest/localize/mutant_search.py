"""The search for the mutants that make failing cases right, and the line on which they agree."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kerneltest.core.details import ErrorCause, Mismatch
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.item import Outcome
from kerneltest.localize.case_replay import replay_cases, replay_until
from kerneltest.localize.equation_replay import equation_replays
from kerneltest.localize.mutants import Mutant, equation_mutants, generate_mutants
from kerneltest.localize.special_origin import SpecialOrigin, find_overflow, find_special_origin
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.records.schema import FaultLocation

_MOST_CANDIDATES = 8  # mutants that are tried on further cases
_LEAST_FIXED = 3  # wrong replays that a mutant must fix to be believed to repair one of two bugs
_FIRST_SHARE = 0.7  # of the time, in which mutants are tried on the first wrong replay


class Replay(Protocol):
    """A call of a kernel with known results, repeated with patches that depend on the kernel."""

    @property
    def case(self) -> AnyCase: ...
    @property
    def kernel(self) -> Any: ...
    @property
    def is_wrong(self) -> bool: ...
    def attempt(self, patch: Any) -> Any: ...
    def is_right(self, run: Any) -> bool: ...


@dataclass(slots=True)
class _Candidates:
    """Mutants that make the first wrong replay right, by their effect on the others."""

    fixing_all: list[Mutant]  # they make every replay right
    # they make only some wrong replays right, and no right one wrong; with the number that stays wrong
    fixing_some: list[tuple[Mutant, int]]
    complete: bool = True  # whether all mutants were tried in time

    def best(self) -> list[Mutant]:
        """Returns the mutants that fix all replays, or else those that fix most and break none."""
        fewest = min((left for _, left in self.fixing_some), default=0)
        return self.fixing_all or [mutant for mutant, left in self.fixing_some if left == fewest]


def find_mutant(
    first: Replay,
    rest: Callable[[], Sequence[Replay]],
    mutants: Iterable[Mutant],
    deadline: float,
    more: Callable[[], Iterator[Replay]],
) -> FaultLocation | None:
    """Returns the location of the cheapest mutant that makes every replay right, or else of one that makes some right.

    If a mutant makes only some wrong replays right and breaks none, and all mutants were tried, the others have another
    bug.

    Args:
      first: a wrong replay.
      rest: returns further replays, wrong and right.
      mutants: the mutants of the kernel, those with the lowest cost first.
      deadline: when to stop, as a time of `time.monotonic`.
      more: yields replays on which the best mutants are tried to tell them apart, wrong and right.
    """
    candidates, replays = _try_mutants(first, rest, mutants, deadline)
    best = candidates.best()
    if not best:
        return None
    untried = {mutant.place for mutant in best[_MOST_CANDIDATES:]}
    best = best[:_MOST_CANDIDATES]
    wrong = [replay for replay in replays if replay.is_wrong]
    patches: list[dict[int, list[Any]]] = [{} for _ in best]
    for replay in more():
        if replay.is_wrong:
            wrong.append(replay)
        elif candidates.fixing_all:
            kept = [k for k, mutant in enumerate(best) if _is_right(replay, mutant, patches[k])]
            if not kept:
                return None
            best, patches = [best[k] for k in kept], [patches[k] for k in kept]
    still_wrong = {id(mutant): _unfixed_cases(wrong, mutant) for mutant in best}
    fewest = min(map(len, still_wrong.values()))
    best = [mutant for mutant in best if len(still_wrong[id(mutant)]) == fewest]
    location = _location(best)
    if not fewest:
        certain = candidates.complete and untried <= {location.place}
        return replace(location, confirmed=location.confirmed and certain)
    if not candidates.complete:  # a mutant that was not tried may repair all, so that these are not two bugs
        return None
    unexplained = still_wrong[id(best[0])]
    explained = dict.fromkeys(replay.case.id for replay in wrong if replay.case.id not in unexplained)
    return replace(location, confirmed=False, explained=tuple(explained), unexplained=tuple(unexplained))


def _try_mutants(
    first: Replay, rest: Callable[[], Sequence[Replay]], mutants: Iterable[Mutant], deadline: float
) -> tuple[_Candidates, list[Replay]]:
    candidates, fixing = _Candidates([], []), []
    started = time.monotonic()
    for mutant in mutants:
        if time.monotonic() > started + _FIRST_SHARE * (deadline - started):
            candidates.complete = False
            break
        patches: dict[int, list[Any]] = {}
        if _is_right(first, mutant, patches):
            fixing.append((mutant, patches))
    replays = [first, *rest()] if fixing else [first]
    wrong = [replay for replay in replays if replay.is_wrong]
    right = [replay for replay in replays if not replay.is_wrong]
    for mutant, patches in fixing:
        if time.monotonic() > deadline:
            candidates.complete = False
            break
        left = sum(not _is_right(replay, mutant, patches) for replay in wrong[1:])
        breaks_none = all(_is_right(replay, mutant, patches) for replay in right)
        if breaks_none and not left:
            candidates.fixing_all.append(mutant)
        elif breaks_none and len(wrong) - left >= _LEAST_FIXED:
            candidates.fixing_some.append((mutant, left))
    return candidates, replays


def _unfixed_cases(wrong: Sequence[Replay], mutant: Mutant) -> dict[str, None]:
    patches: dict[int, list[Any]] = {}
    return dict.fromkeys(replay.case.id for replay in wrong if not _is_right(replay, mutant, patches))


def _location(mutants: Sequence[Mutant]) -> FaultLocation:
    # The mutants make the same replays right, in order of their cost; the location is confirmed if all agree on it.
    cheapest = [mutant for mutant in mutants if mutant.cost == min(each.cost for each in mutants)]
    best = cheapest[-1 if cheapest[0].cost > 2 else 0]  # of two uses of a value, the later one is likelier the bug
    others = tuple(dict.fromkeys(mutant.place for mutant in mutants if mutant.place != best.place))
    # A named constant may be wrong at its definition; the same edit would repair it there.
    literal = all(mutant.literal for mutant in mutants)
    return FaultLocation(best.place, best.operation, f"{best.phrase} fixes the result", literal and not others, others)


def _is_right(replay: Replay, mutant: Mutant, patches: dict[int, list[Any]]) -> bool:
    # A mutation that does not apply to the lengths of a replay is assumed to be right. `patches` gets those of
    # further kernels.
    key = id(replay.kernel)
    if key not in patches:
        try:
            patches[key] = list(mutant.patches(replay.kernel))
        except Exception:  # a mutant may be invalid
            return False
    ways = patches[key]
    if not ways or (len(ways) > 1 and not replay.is_wrong):
        return True
    runs = (replay.attempt(patch) for patch in ways)
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
      also: further cases, failing and passing, preferably of other lengths, which a mutant must make right as well.
      more: cases, failing and passing, on which the mutants that do so are tried.
    """
    record, started = outcome.record, time.monotonic()
    if _is_by_overflow(record.detail) and (found := _locate_overflow(pairing, case, record.family, target)):
        return found
    # What fails without lowering is sought without lowering first, but for the origins of NaN and infinities.
    is_interpreted = record.tier == Tier.INTERPRET and record.verdict is not Verdict.SPECIAL_MISMATCH
    searches = (_locate_in_equations, _locate_in_code) if is_interpreted else (_locate_in_code, _locate_in_equations)
    partial: FaultLocation | None = None
    for search, share in zip(searches, (_FIRST_SHARE, 1.0), strict=True):
        location = search(pairing, case, record.family, target, started + share * seconds, also, more)
        # What repairs only some cases in one way does not repair all of them in the other: those that it does not apply
        # to, since their code differs, count as repaired.
        is_same = partial is not None and location is not None and location.place == partial.place
        if location is not None and not location.unexplained and not is_same:
            return location
        partial = partial or location
    return partial


def _is_by_overflow(detail: object) -> bool:
    return isinstance(detail, Mismatch) and detail.cause is not None and detail.cause.what is ErrorCause.OVERFLOW


def _locate_overflow(pairing: Pairing, case: ExplicitCase, family: str, target: str) -> FaultLocation | None:
    replays = replay_cases(pairing, [case], family, target)
    found = find_overflow(replays[0]) if replays and replays[0].is_wrong else None
    return _special_location(found, confirmed=False) if found is not None else None


def _locate_in_code(
    pairing: Pairing,
    case: ExplicitCase,
    family: str,
    target: str,
    deadline: float,
    also: Sequence[AnyCase],
    more: Sequence[AnyCase],
) -> FaultLocation | None:
    replays = replay_cases(pairing, [case, *also], family, target)
    if not replays or not replays[0].is_wrong:
        return None
    special = find_special_origin(replays[0])
    # Overflowing values may have been wrong before, and a NaN need not be all that is wrong.
    explains_all = (
        special is not None
        and not special.is_overflow
        and all(replay.is_special for replay in replays if replay.is_wrong)
    )
    if special is not None and explains_all and not special.others:
        return _special_location(special, confirmed=True)
    location = find_mutant(
        replays[0],
        lambda: replays[1:],
        generate_mutants(replays[0].kernel),
        deadline,
        lambda: replay_until(pairing, more, family, target, deadline),
    )
    if special is not None and (location is None or (explains_all and not location.confirmed)):
        return _special_location(special, confirmed=False)
    return location


def _locate_in_equations(
    pairing: Pairing,
    case: ExplicitCase,
    family: str,
    target: str,
    deadline: float,
    also: Sequence[AnyCase],
    more: Sequence[AnyCase],
) -> FaultLocation | None:
    first = next(equation_replays(pairing, [case], family, distinctive=False), None)
    if first is None or not first.is_wrong:
        return None
    return find_mutant(
        first,
        lambda: [*equation_replays(pairing, [case, *also], family, deadline=deadline)][1:],
        equation_mutants(first.kernel),
        deadline,
        lambda: equation_replays(pairing, more, family, distinctive=False, deadline=deadline),
    )


def _special_location(special: SpecialOrigin, *, confirmed: bool) -> FaultLocation:
    return FaultLocation(special.source.place, special.source.text, special.words, confirmed, special.others)
