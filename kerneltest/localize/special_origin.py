"""The origin of a wrong NaN or infinity: the operation at which it appears, or at which an expected NaN is lost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np

from kerneltest.backends.base import Artifact
from kerneltest.backends.simulate.backend import input_contents
from kerneltest.backends.simulate.interpreter import BufferPointer, IRInterpreter
from kerneltest.backends.simulate.ir import Operation, Rule, Semantics, any_operand
from kerneltest.backends.simulate.memory import Launch, program_index
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import VerdictKind
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import InvariantGroup
from kerneltest.execute.item import Item
from kerneltest.judge.compare import Comparison
from kerneltest.judge.mismatch_evidence import format_number
from kerneltest.localize.case_replay import CaseReplay, MutableKernel, Patch
from kerneltest.localize.code_operators import Listing, SourceExpression
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.evidence import Evidence
from kerneltest.records.schema import FaultLocation, Record
from kerneltest.trace.partial_arrays import PartialArray
from kerneltest.trace.primitives import primitive_named
from kerneltest.trace.rewrite import Fill, fill_empty, fill_outputs, fill_padding, rewrite_jaxpr, run_in_order
from kerneltest.trace.rewrite import Rule as Rewrite
from kerneltest.trace.tracing import Traced, analyze

# The operations at which NaN and infinities appear or are lost during a run, and repairs of these operations.

# Operations that only move elements, or load them.
_MOVES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.load", "arith.constant", "scf.")


class SpecialKind(StrEnum):
    """The kinds of events."""

    NAN_APPEARS = "nan"
    INFINITY_APPEARS = "inf"
    NAN_LOST = "lost"


@dataclass(frozen=True, slots=True)
class SpecialEvent:
    """An operation in whose result NaN or an infinity appears that no operand has, or NaN is lost."""

    call: int  # the number of the Pallas call
    operation: int  # its number in the listing
    kind: SpecialKind
    program: int  # the linear id of the first program in which it occurs
    # the operands' values there; () if they do not correspond to the result's elements
    operands: tuple[np.generic, ...]
    result: np.generic  # the result's value there

    @property
    def is_overflow(self) -> bool:
        return self.kind is SpecialKind.INFINITY_APPEARS and not any(float(operand) == 0 for operand in self.operands)


class SpecialTracer(IRInterpreter):
    """An interpreter that notes the first event of each kind at each operation, by number and kind, as they occur."""

    def __init__(self, launch: Launch, call: int, listing: Listing) -> None:
        super().__init__(launch, {}, None)
        self._call = call
        self._numbers = {id(op): i for i, op in enumerate(listing.operations)}
        self.events: dict[tuple[int, SpecialKind], SpecialEvent] = {}

    def run(self, op: Operation) -> None:
        super().run(op)
        number = self._numbers.get(id(op))
        if number is None or not op.results or op.name.startswith(_MOVES):
            return
        operands = [self.environment[n] for n in op.operands]
        result = self.environment[op.results[0]]
        if any(isinstance(value, BufferPointer) for value in (result, *operands)):
            return
        for kind in SpecialKind:
            lanes = _find_events(op, kind, operands, result)
            if lanes is None or not lanes.any() or (number, kind) in self.events:
                continue
            at = tuple(int(i) for i in np.argwhere(lanes)[0])
            correspond = all(operand.ndim == lanes.ndim for operand in operands)
            values = tuple(np.broadcast_to(operand, lanes.shape)[at] for operand in operands) if correspond else ()
            program = int(self.launch.programs[at[0] if lanes.shape[0] > 1 else 0])
            shown = np.broadcast_to(result, lanes.shape)[at]
            self.events[number, kind] = SpecialEvent(self._call, number, kind, program, values, shown)


def _find_events(op: Operation, kind: SpecialKind, operands: Sequence[Array], result: Array) -> Array | None:
    # A mask of a result's elements at which an event occurs; None if that cannot be determined.
    is_lost = kind is SpecialKind.NAN_LOST
    if not is_float(result.dtype) or (op.name == "tt.dot" and is_lost):
        return None
    before = np.zeros((1,) * result.ndim, bool)
    for operand in operands:
        if is_float(operand.dtype):
            special = ~np.isfinite(operand) if kind is SpecialKind.INFINITY_APPEARS else np.isnan(operand)
            special = _by_result(op, special, result.ndim)
            if special.ndim != result.ndim:
                return None
            before = before | special
    after = np.isinf(result) if kind is SpecialKind.INFINITY_APPEARS else np.isnan(result)
    return np.asarray(before & ~after if is_lost else after & ~before)


def _by_result(op: Operation, special: Array, axes: int) -> Array:
    # A mask of the result's elements that depend on special elements of an operand.
    if op.name == "tt.reduce":
        return np.asarray(special.any(axis=op.attributes["axis"] + 1))
    if op.name in ("tt.dot", "tt.scan"):
        return special.reshape(special.shape[0], -1).any(axis=1).reshape(-1, *(1,) * (axes - 1))
    return special


def _repair(op: Operation, kind: SpecialKind, value: float) -> Sequence[Operation]:
    # An operation that gives `value` wherever an event of this kind occurs.
    original = op.semantics.rule(op)

    def compute(*operands: Array) -> Array | tuple[Array, ...]:
        results = original.compute(*operands)
        first, *rest = results if isinstance(results, tuple) else (results,)
        lanes = _find_events(op, kind, operands, first)
        assert lanes is not None
        first = np.where(lanes, np.asarray(value).astype(first.dtype), first)
        return (first, *rest) if rest else first

    rule = Rule(compute, any_operand)
    return [replace(op, semantics=Semantics(lambda _: rule))]


def _describe_event(op: Operation, primitive: str, event: SpecialEvent) -> tuple[str, str]:
    # `-inf - -inf`, `-inf - -inf is nan`: an operation with its operands' values, and the same with its result.
    values, result = [format_number(value) for value in event.operands], format_number(event.result)
    known = primitive_named(primitive)
    if known.sign and len(values) == 2:
        expression = f"{values[0]} {known.sign} {values[1]}"
    elif values:
        expression = f"{known.words}({', '.join(values)})"
    else:
        expression = f"{known.words} of {'NaN' if event.kind is SpecialKind.NAN_LOST else 'numbers other than NaN'}"
    if event.is_overflow:
        return expression, f"{expression} overflows {op.types[0].dtype.name} to {result}"
    lost = ": NaN is lost" if event.kind is SpecialKind.NAN_LOST else ""
    return expression, f"{expression} is {result}{lost}"


def _special_elements(comparison: Comparison, appears: bool) -> Array:
    # A mask of the wrong elements that are NaN or infinite and should not be, or that should be NaN and are not.
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    actual, expected = comparison.actual.astype(np.float64), comparison.expected
    appearing = np.isnan(actual) & ~np.isnan(expected) | np.isinf(actual) & np.isfinite(expected)
    return np.asarray(comparison.wrong & (appearing if appears else np.isnan(expected) & ~np.isnan(actual)))


def is_special(replay: CaseReplay) -> bool:
    """Returns whether every wrong element is so by a NaN or an infinity."""
    rest = (c.wrong & ~_special_elements(c, True) & ~_special_elements(c, False) for c in replay.comparisons)
    return not replay.original.faults and not any(mask.any() for mask in rest)


def _trace_events(replay: CaseReplay) -> list[SpecialEvent]:
    kernel = replay.kernel
    events: list[SpecialEvent] = []

    def run_call(number: int, operands: list[PartialArray]) -> list[PartialArray]:
        call, listing = kernel.prepared[number], kernel.calls[number].listing
        call.simulation.place(input_contents(operands))
        launch = call.simulation.launch
        for buffer in launch.buffers:
            buffer.reset()
        tracer = SpecialTracer(launch, number, listing)
        with np.errstate(all="ignore"):
            tracer.enter(listing.body, [BufferPointer(i, np.zeros(1, np.int64)) for i in range(len(launch.buffers))])
        events.extend(tracer.events.values())
        return call.results()

    kernel.evaluate(replay.leaves, run_call)
    return events


def find_special_origin(replay: CaseReplay) -> tuple[FaultLocation | None, bool]:
    """Returns the first operation that makes a case's wrong elements NaN or infinite, or loses their NaN.

    Also returns whether an infinity results from finite numbers there, which may be wrong themselves.

    An event by itself shows little, since NaN come and go in masked lanes. So the case is replayed with one operation
    repaired at a time: it gives a finite number wherever NaN or an infinity appears, and NaN wherever NaN is lost. If
    no single repair suffices, as few as possible are combined.
    """
    appears, lost = (any(_special_elements(c, how).any() for c in replay.comparisons) for how in (True, False))
    if not replay.original.is_defined or not (appears or lost):
        return None, False
    events = [
        event
        for event in _trace_events(replay)
        if (event.kind is SpecialKind.NAN_LOST) != appears and _source(replay.kernel, event).place
    ]
    origins = [event for event in events if _is_repaired(replay, [event], appears)]
    origins = origins or _combine(replay, events, appears)
    if not origins:
        return None, False
    return _location(replay, origins), origins[0].kind is SpecialKind.INFINITY_APPEARS


def find_overflow(replay: CaseReplay) -> FaultLocation | None:
    """Returns the first operation on finite numbers whose result is infinite in a case; None if there is none.

    No experiment shows that it makes finite elements wrong.
    """
    found = (e for e in _trace_events(replay) if e.is_overflow and _source(replay.kernel, e).place)
    return next((_location(replay, [event]) for event in found), None)


def _location(replay: CaseReplay, events: Sequence[SpecialEvent]) -> FaultLocation:
    event = events[0]
    call, source = replay.kernel.calls[event.call], _source(replay.kernel, event)
    expression, arithmetic = _describe_event(call.listing.operations[event.operation], source.primitive, event)
    program = ", ".join(map(str, program_index(call.kernel.grid, event.program)))
    places = dict.fromkeys(_source(replay.kernel, other).place for other in events)
    others = tuple(place for place in places if place != source.place)
    cause = "" if event.is_overflow else expression
    return FaultLocation(source.place, source.text, f"{arithmetic}, in program ({program})", False, others, cause=cause)


def _source(kernel: MutableKernel, event: SpecialEvent) -> SourceExpression:
    return kernel.calls[event.call].listing.sources[event.operation]


def _combine(replay: CaseReplay, events: Sequence[SpecialEvent], appears: bool) -> list[SpecialEvent]:
    # A minimal set of operations that must be repaired together; empty if repairing all does not suffice.
    needed = list(events)
    if not _is_repaired(replay, needed, appears):
        return []
    for event in reversed(events):
        fewer = [other for other in needed if other is not event]
        if _is_repaired(replay, fewer, appears):
            needed = fewer
    return needed


def _is_repaired(replay: CaseReplay, events: Sequence[SpecialEvent], appears: bool) -> bool:
    # Whether no element is wrong in the same way once the operations are repaired.
    calls = replay.kernel.calls
    wrong = partial(_special_elements, appears=appears)
    for value in (0.0, 1.0) if appears else (np.nan,):
        edits: dict[int, dict[int, Sequence[Operation]]] = {}
        for event in events:
            op = calls[event.call].listing.operations[event.operation]
            edits.setdefault(event.call, {})[event.operation] = _repair(op, event.kind, value)
        patch = Patch({n: calls[n].prepare(calls[n].listing.apply(each)) for n, each in edits.items()})
        if (run := replay.attempt(patch)) is not None:
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
        least = 0 if dtype.kind == "b" else None if is_float(dtype) else int(np.iinfo(dtype).min)
        if evidence.actual == evidence.actual and evidence.actual != least:
            return None
        for fill, cause in _FILLS:
            value = _rerun(item, case, traced, fill(Fill(nan=False)), evidence, cache)
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
        compiled = (getattr(call.equation, "params", {}).get("compiler_params") for call in traced.calls)
        if not any("parallel" in str(getattr(each, "dimension_semantics", None)).lower() for each in compiled):
            return None
        value = _rerun(item, case, traced, run_in_order(), evidence, cache)
    except Failure:
        return None
    is_right = abs(value - evidence.expected) <= evidence.bound or (math.isnan(value) and math.isnan(evidence.expected))
    return Cause.PROGRAM_ORDER if is_right else None


def _evidence(item: Item, record: Record) -> Evidence | None:
    # Evidence of a wrong value in an interpreter's plain call.
    is_plain_call = item.backend.tier is Tier.INTERPRET and not isinstance(item.group, InvariantGroup)
    return record.evidence if is_plain_call and record.verdict.kind is VerdictKind.VALUES else None


def _rerun(item: Item, case: AnyCase, traced: Traced, rule: Rewrite, evidence: Evidence, cache: Cache) -> float:
    changed = analyze(rewrite_jaxpr(traced.jaxpr, rule), traced.function, traced.inputs)
    executable = item.backend.prepare(changed)
    assert not isinstance(executable, Artifact)
    arguments = cache.expectations.arguments(item.pairing, case)
    outputs = executable.run([arguments[path] for path, _ in case.signature.dtypes])
    return float(outputs[evidence.output][evidence.index])
