"""The origin of a wrong NaN or infinity: the operation at which it appears, or at which an expected NaN is lost."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.simulate.ir import Operation
from kerneltest.localize.case_replay import CaseReplay, lost_nans, wrongly_special
from kerneltest.localize.listing import SourceExpression
from kerneltest.localize.mutable_kernel import MutableKernel, Patch
from kerneltest.localize.special_trace import SpecialEvent, SpecialKind, describe_event, repair


@dataclass(frozen=True, slots=True)
class SpecialOrigin:
    """The operation from which special values come.

    Attributes:
      source: its source.
      words: `-inf - -inf is nan, in program (5, 0)`.
      is_overflow: whether an infinity results from finite numbers, which may be wrong themselves.
      others: further lines that contribute.
    """

    source: SourceExpression
    words: str
    is_overflow: bool
    others: tuple[str, ...]


_CallEvent = tuple[int, SpecialEvent]  # with the number of the call


def find_special_origin(replay: CaseReplay) -> SpecialOrigin | None:
    """Returns the first operation that makes a case's wrong elements NaN or infinite, or loses their NaN.

    An event by itself shows little, since NaN come and go in masked lanes. So the case is replayed with one operation
    repaired at a time: it gives a finite number wherever NaN or an infinity appears, and NaN wherever NaN is lost. If
    no single repair suffices, as few as possible are combined.
    """
    undefined = any(mask is not None and mask.any() for mask in replay.original.undefined)
    appears = any(wrongly_special(c).any() for c in replay.comparisons)
    if replay.original.faults or undefined or not (appears or any(lost_nans(c).any() for c in replay.comparisons)):
        return None
    events = [
        (number, event)
        for number, event in replay.kernel.trace_specials(replay.leaves)
        if (event.kind is SpecialKind.NAN_LOST) != appears and _source(replay.kernel, (number, event)).place
    ]
    origins = [each for each in events if _is_repaired(replay, [each], appears)] or _combine(replay, events, appears)
    if not origins:
        return None
    return _origin(replay, origins)


def find_overflow(replay: CaseReplay) -> SpecialOrigin | None:
    """Returns the first operation on finite numbers whose result is infinite in a case; None if there is none.

    No experiment shows that it makes finite elements wrong.
    """
    for number, event in replay.kernel.trace_specials(replay.leaves):
        is_overflow = event.kind is SpecialKind.INFINITY_APPEARS and not any(
            float(each) == 0 for each in event.operands
        )
        if is_overflow and _source(replay.kernel, (number, event)).place:
            return _origin(replay, [(number, event)])
    return None


def _origin(replay: CaseReplay, events: Sequence[_CallEvent]) -> SpecialOrigin:
    number, event = events[0]
    call, source = replay.kernel.calls[number], _source(replay.kernel, events[0])
    arithmetic = describe_event(call.listing.operations[event.operation], source.primitive, event)
    program = ", ".join(map(str, call.program(event.program)))
    places = dict.fromkeys(_source(replay.kernel, each).place for each in events)
    others = tuple(place for place in places if place != source.place)
    is_overflow = event.kind is SpecialKind.INFINITY_APPEARS
    return SpecialOrigin(source, f"{arithmetic}, in program ({program})", is_overflow, others)


def _source(kernel: MutableKernel, event: _CallEvent) -> SourceExpression:
    number, seen = event
    return kernel.calls[number].listing.sources[seen.operation]


def _combine(replay: CaseReplay, events: Sequence[_CallEvent], appears: bool) -> list[_CallEvent]:
    """Returns a minimal set of operations that must be repaired together; empty if repairing all does not suffice."""
    needed = list(events)
    if not _is_repaired(replay, needed, appears):
        return []
    for each in reversed(events):
        fewer = [other for other in needed if other is not each]
        if _is_repaired(replay, fewer, appears):
            needed = fewer
    return needed


def _is_repaired(replay: CaseReplay, events: Sequence[_CallEvent], appears: bool) -> bool:
    """Tells whether no element is wrong in the same way once some operations are repaired."""
    calls = replay.kernel.calls
    wrong = wrongly_special if appears else lost_nans
    for value in (0.0, 1.0) if appears else (np.nan,):
        edits: dict[int, dict[int, Sequence[Operation]]] = {}
        for number, event in events:
            op = calls[number].listing.operations[event.operation]
            edits.setdefault(number, {})[event.operation] = repair(op, event.kind, value)
        patch = Patch({n: calls[n].prepare(calls[n].listing.apply(each)) for n, each in edits.items()})
        run = replay.attempt(patch)
        if run is not None:
            pairs = zip(replay.comparisons, replay.compare(run), strict=True)
            if not any((wrong(before) & wrong(after)).any() for before, after in pairs):
                return True
    return False
