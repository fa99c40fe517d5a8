"""The origin of a wrong NaN or infinity: the operation at which it appears, or at which an expected NaN is lost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kerneltest.backends.base import Artifact
from kerneltest.backends.simulate.ir import Operation
from kerneltest.core.dtypes import is_float
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import VerdictKind
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import InvariantGroup
from kerneltest.execute.item import Item
from kerneltest.localize.case_replay import (
    CaseReplay,
    MutableKernel,
    Patch,
    SpecialEvent,
    SpecialKind,
    describe_event,
    lost_nans,
    repair,
    wrongly_special,
)
from kerneltest.localize.listing import SourceExpression
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.evidence import Evidence
from kerneltest.records.schema import Record
from kerneltest.trace.grid_rewrites import run_in_order
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.rewrite import Fill, fill_empty, fill_outputs, fill_padding, rewrite_jaxpr
from kerneltest.trace.tracing import Traced, analyze


@dataclass(frozen=True, slots=True)
class SpecialOrigin:
    """The operation from which special values come."""

    source: SourceExpression
    words: str  # `-inf - -inf is nan, in program (5, 0)`
    is_overflow: bool  # whether an infinity results from finite numbers, which may be wrong themselves
    others: tuple[str, ...]  # further lines that contribute


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
    # A minimal set of operations that must be repaired together; empty if repairing all does not suffice.
    needed = list(events)
    if not _is_repaired(replay, needed, appears):
        return []
    for each in reversed(events):
        fewer = [other for other in needed if other is not each]
        if _is_repaired(replay, fewer, appears):
            needed = fewer
    return needed


def _is_repaired(replay: CaseReplay, events: Sequence[_CallEvent], appears: bool) -> bool:
    # Whether no element is wrong in the same way once the operations are repaired.
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


# Reruns of a case in its interpreter with unwritten memory filled differently, or with the programs in order.


class Cause(StrEnum):
    """The causes of a wrong element that a rerun can show, in words."""

    PREVIOUS_OUTPUT = "never written: the value depends on the previous content of the output's memory"
    EMPTY = "never written: the value depends on the content of jax.lax.empty"
    PADDING = "read past the end of an array: the value depends on what lies there"
    PROGRAM_ORDER = "right if programs run in order: the kernel relies on the order of a dimension declared parallel"


_FILLS = ((fill_outputs, Cause.PREVIOUS_OUTPUT), (fill_empty, Cause.EMPTY), (fill_padding, Cause.PADDING))


def depends_on_memory(item: Item, case: AnyCase, record: Record, cache: Cache) -> Cause | None:
    """Returns the undefined memory that a wrong element depends on, if other contents of it change the element.

    Interpreters fill unwritten memory and padding with NaN or the least integer. A wrong element with such a value may
    come from there or from the kernel's own arithmetic, which reruns with other fills tell apart.
    """
    evidence = _evidence(item, record)
    if evidence is None or evidence.actual is None:
        return None
    try:
        traced = cache.traces.of(item.pairing, case.signature, item.backend)
        dtype = traced.outputs[evidence.output].dtype
        if evidence.actual == evidence.actual and (is_float(dtype) or evidence.actual != _least(dtype)):
            return None
        for fill, cause in _FILLS:
            changed = analyze(rewrite_jaxpr(traced.jaxpr, fill(Fill(nan=False))), traced.function, traced.inputs)
            value = _rerun(item, case, changed, evidence, cache)
            if value != evidence.actual and not np.isnan(value):
                return cause
    except Failure:
        return None
    return None


def depends_on_order(item: Item, case: AnyCase, record: Record, cache: Cache) -> Cause | None:
    """Returns the order of the programs as the cause of a wrong element, if it is right when they run in order.

    An interpreter shuffles the dimensions of the grid that a kernel calls parallel, as a device may.
    """
    evidence = _evidence(item, record)
    if evidence is None or evidence.expected is None:
        return None
    try:
        traced = cache.traces.of(item.pairing, case.signature, item.backend)
        if not any("parallel" in str(_dimension_semantics(call.equation)).lower() for call in traced.calls):
            return None
        ordered = analyze(rewrite_jaxpr(traced.jaxpr, run_in_order()), traced.function, traced.inputs)
        value = _rerun(item, case, ordered, evidence, cache)
    except Failure:
        return None
    is_right = abs(value - evidence.expected) <= evidence.bound or (math.isnan(value) and math.isnan(evidence.expected))
    return Cause.PROGRAM_ORDER if is_right else None


def _evidence(item: Item, record: Record) -> Evidence | None:
    # Evidence of a wrong value in an interpreter's plain call.
    is_plain_call = item.backend.tier is Tier.INTERPRET and not isinstance(item.group, InvariantGroup)
    return record.evidence if is_plain_call and record.verdict.kind is VerdictKind.VALUES else None


def _rerun(item: Item, case: AnyCase, traced: Traced, evidence: Evidence, cache: Cache) -> float:
    executable = item.backend.prepare(traced)
    assert not isinstance(executable, Artifact)
    arguments = cache.expectations.arguments(item.pairing, case)
    outputs = executable.run([arguments[path] for path, _ in case.signature.dtypes])
    return float(outputs[evidence.output][evidence.index])


def _least(dtype: np.dtype) -> int:
    return 0 if dtype.kind == "b" else int(np.iinfo(dtype).min)


def _dimension_semantics(equation: Equation) -> object:
    return getattr(getattr(equation, "params", {}).get("compiler_params"), "dimension_semantics", None)
