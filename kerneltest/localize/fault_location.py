"""Mutation-based fault localisation: the line whose mutation makes a failing case right."""

import time
from collections.abc import Sequence

from kerneltest.core.details import ErrorCause, Mismatch
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.item import Outcome
from kerneltest.localize.case_replay import replay_cases, replay_until
from kerneltest.localize.equation_mutants import equation_mutants
from kerneltest.localize.equation_replay import equation_replays
from kerneltest.localize.mutant_search import find_mutant
from kerneltest.localize.mutants import generate_mutants
from kerneltest.localize.special_origin import SpecialOrigin, find_overflow, find_special_origin
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.records.schema import FaultLocation

_FIRST_SHARE = 0.7  # of the time, for the way that is tried first


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
    """Traces the lowered code, which runs in the simulator, to the first result that is too large."""
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
    """Mutates the lowered code, which runs in the simulator."""
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
    """Mutates the jaxpr, which NumPy evaluates."""
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
