"""Mutation-based fault localisation: the line whose mutation makes a failing case right."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kerneltest.declare.pairing import Pairing
from kerneltest.execute.item import Outcome
from kerneltest.localize.case_replay import CaseReplay, replay_cases, replay_until
from kerneltest.localize.mutable_kernel import Patch
from kerneltest.localize.mutants import Mutant, generate_mutants
from kerneltest.localize.special_origin import SpecialOrigin, find_special_origin
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.records.schema import FaultLocation

_MOST_CANDIDATES = 8  # mutants that are tried on further cases
_LEAST_FIXED = 3  # wrong replays that a mutant must fix to be believed to repair one of two bugs


class MutationEffect(StrEnum):
    """The effect of a mutant on the replayed cases."""

    FIXES_ALL = "fixes all"
    FIXES_SOME = "fixes some"
    BREAKS_OTHERS = "breaks others"


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

    The kernel is lowered, run in the simulator, and run again with one thing changed at a time.

    Args:
      pairing: the kernel and its oracle.
      case: a failing case, as small as possible.
      outcome: its outcome.
      target: the GPU that the kernel is lowered for.
      seconds: the time to spend.
      also: further cases, failing and passing, preferably of other lengths, which a mutant must make right as well.
      more: failing cases on which the mutants that do so are tried.
    """
    deadline = time.monotonic() + seconds
    family = outcome.record.family
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
    location = _find_mutant(replays, deadline, lambda: replay_until(pairing, more, family, target, deadline))
    if special is not None and (location is None or (explains_all and not location.confirmed)):
        return _special_location(special, confirmed=False)
    return location


def _special_location(special: SpecialOrigin, *, confirmed: bool) -> FaultLocation:
    return FaultLocation(special.source.place, special.source.text, special.words, confirmed, special.others)


@dataclass(slots=True)
class _Candidates:
    """Mutants that make the first wrong replay right, by their effect on the others.

    Attributes:
      fixing_all: they make every replay right.
      breaking: they make every wrong replay right, and some right ones wrong.
      fixing_some: they make only some wrong replays right; with the number that stays wrong.
      complete: whether all mutants were tried in time.
    """

    fixing_all: list[Mutant]
    breaking: list[Mutant]
    fixing_some: list[tuple[Mutant, int]]
    complete: bool = True

    def best(self) -> list[Mutant]:
        """Returns the mutants that fix all replays, or else those that fix most and break none."""
        fewest = min((left for _, left in self.fixing_some), default=0)
        return self.fixing_all or [mutant for mutant, left in self.fixing_some if left == fewest]


def _find_mutant(
    replays: Sequence[CaseReplay], deadline: float, more: Callable[[], Iterator[CaseReplay]]
) -> FaultLocation | None:
    """Returns the location of the cheapest mutant that makes every replay right, or else of one that makes some right.

    If a mutant makes only some wrong replays right and breaks none, the others have another bug.
    """
    candidates = _try_mutants(replays, deadline)
    best = candidates.best()[:_MOST_CANDIDATES]
    if not best:
        breaking = candidates.breaking
        return _location(breaking, MutationEffect.BREAKS_OTHERS) if breaking else None
    wrong = [replay for replay in replays if replay.is_wrong]
    wrong += [replay for replay in more() if replay.is_wrong]
    still_wrong = {id(mutant): _unfixed_cases(wrong, mutant) for mutant in best}
    fewest = min(map(len, still_wrong.values()))
    best = [mutant for mutant in best if len(still_wrong[id(mutant)]) == fewest]
    if not fewest:
        location = _location(best, MutationEffect.FIXES_ALL)
        return replace(location, confirmed=location.confirmed and candidates.complete)
    unexplained = still_wrong[id(best[0])]
    location = _location(best, MutationEffect.FIXES_SOME, fixed=len(wrong) - fewest, wrong=len(wrong))
    explained = dict.fromkeys(replay.case.id for replay in wrong if replay.case.id not in unexplained)
    return replace(location, explained=tuple(explained), unexplained=tuple(unexplained))


def _try_mutants(replays: Sequence[CaseReplay], deadline: float) -> _Candidates:
    """Tries mutants on the first wrong replay, and on all others if they make that one right."""
    wrong = [replay for replay in replays if replay.is_wrong]
    right = [replay for replay in replays if not replay.is_wrong]
    candidates = _Candidates([], [], [])
    for mutant in generate_mutants(replays[0].kernel):
        if time.monotonic() > deadline:
            candidates.complete = False
            break
        patches: dict[int, list[Patch]] = {}
        if not _is_right(wrong[0], mutant, patches):
            continue
        left = sum(not _is_right(replay, mutant, patches) for replay in wrong[1:])
        breaks_none = all(_is_right(replay, mutant, patches) for replay in right)
        if not left:
            (candidates.fixing_all if breaks_none else candidates.breaking).append(mutant)
        elif breaks_none and len(wrong) - left >= _LEAST_FIXED:
            candidates.fixing_some.append((mutant, left))
    return candidates


def _unfixed_cases(wrong: Sequence[CaseReplay], mutant: Mutant) -> dict[str, None]:
    """Returns the ids of the cases that stay wrong."""
    patches: dict[int, list[Patch]] = {}
    return dict.fromkeys(replay.case.id for replay in wrong if not _is_right(replay, mutant, patches))


def _location(mutants: Sequence[Mutant], effect: MutationEffect, *, fixed: int = 0, wrong: int = 0) -> FaultLocation:
    """Returns the location of the cheapest mutant, which is confirmed if all mutants that fix everything agree on it.

    Args:
      mutants: mutants with this effect, in order of their cost.
      effect: their effect.
      fixed, wrong: the number of wrong replays that they make right, and of all; for `FIXES_SOME`.
    """
    cheapest = [mutant for mutant in mutants if mutant.cost == min(each.cost for each in mutants)]
    best = cheapest[-1 if cheapest[0].cost > 2 else 0]  # of two uses of a value, the later one is likelier the bug
    others = tuple(dict.fromkeys(mutant.place for mutant in mutants if mutant.place != best.place))
    # A named constant may be wrong at its definition; the same edit would repair it there.
    literal = all(mutant.literal for mutant in mutants)
    confirmed = effect is MutationEffect.FIXES_ALL and literal and not others
    result = {
        MutationEffect.FIXES_ALL: "fixes the result",
        MutationEffect.FIXES_SOME: f"fixes {fixed} of {wrong} wrong results",
        MutationEffect.BREAKS_OTHERS: "fixes the wrong results, but breaks correct ones",
    }[effect]
    return FaultLocation(best.place, best.operation, f"{best.phrase} {result}", confirmed, others)


def _is_right(replay: CaseReplay, mutant: Mutant, patches: dict[int, list[Patch]]) -> bool:
    """Tells whether a replay is right with a mutant, which is assumed if the mutation does not apply to its lengths.

    Args:
      replay: the replay.
      mutant: the mutant.
      patches: its patches, by the id of the kernel; those of further kernels are added.
    """
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
