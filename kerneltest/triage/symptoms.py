"""Symptoms: what a finding shows, in terms that stay the same from case to case."""

import math
from dataclasses import dataclass
from enum import StrEnum

from kerneltest.core.details import (
    SLIGHT,
    ErrorCause,
    MemoryFault,
    Mismatch,
    MismatchCause,
    Nondeterministic,
    NotBuilt,
    Race,
    ResourceExceeded,
    WrongDtype,
)
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, Verdict, VerdictKind
from kerneltest.records.schema import Record


class Level(StrEnum):
    """The kind of question that a finding answers wrongly, from the most to the least elementary."""

    BUILD = "build"
    STRUCTURE = "structure"
    PRECISION = "precision"
    SPECIAL = "special"
    INVARIANT = "invariant"
    BROKEN = "broken"


class Effect(StrEnum):
    """A symptom of a bug, in the words of a suspect's title."""

    NOT_LOWERED = "does not lower"
    NOT_COMPILED = "does not compile"
    TOO_LARGE = "needs more than the target has"
    IMPRECISE = "insufficient precision"
    UNSTABLE = "an unstable formula"
    WRONG = "wrong values"
    WRONG_GRADIENT = "a wrong gradient"
    NAN = "NaN"
    INFINITY = "an infinity"
    OVERFLOW = "an overflow"
    NUMBER_FOR_NAN = "a number in place of NaN"
    NUMBER_FOR_INFINITY = "a number in place of an infinity"
    SIGN_OF_ZERO = "a zero of the wrong sign"
    UNWRITTEN = "unwritten elements"
    UNINITIALISED = "values from uninitialised memory"
    RACE = "a race"
    NONDETERMINISTIC = "results that change from run to run"
    DEPENDENT_BITS = "bits that depend on"
    OUT_OF_BOUNDS = "an access out of bounds"
    OTHER = "other"


OF_ROUNDING = frozenset({Effect.IMPRECISE, Effect.UNSTABLE})
"""Symptoms that rounding alone explains."""

OVERFLOWS = "that overflows"
"""How a cause ends if integers are too large for their dtype: `an int32 sum that overflows`."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """The symptom that one finding shows."""

    level: Level
    effect: Effect
    subject: str = ""  # the argument, the memory or the failure that the effect is about; "" for the output
    place: str = ""  # FILE:LINE of the user's source that the failure points at, or ""
    cause: str = ""  # the same for failures of one cause, if they end a case before values are compared; else ""

    @property
    def kind(self) -> tuple[Effect, str]:
        return self.effect, self.subject


# Symptoms of NaN, infinities and zeros that are lost, or are in the wrong places, or come from an overflow.
OF_SPECIAL_VALUES = frozenset(
    {Effect.NAN, Effect.INFINITY, Effect.OVERFLOW, Effect.SIGN_OF_ZERO}
    | {Effect.NUMBER_FOR_NAN, Effect.NUMBER_FOR_INFINITY}
)

UNORDERED = frozenset({Effect.RACE, Effect.NONDETERMINISTIC})
"""Symptoms of accesses that nothing orders: any values may come out."""


def symptom(record: Record) -> Symptom:
    """Returns the symptom of a finding."""
    detail = record.detail
    place = detail.place if detail is not None else ""
    essence = detail.essence if detail is not None else record.verdict.value
    if record.verdict.kind is VerdictKind.BUILD:
        # A device's compiler names no line, or another one than lowering for the same target does.
        cause = essence if record.tier is Tier.DEVICE or not isinstance(detail, NotBuilt) else f"{essence} {place}"
        effect, subject = _not_built(record)
        return Symptom(Level.BUILD, effect, subject, place, cause)
    if isinstance(detail, WrongDtype):
        return Symptom(Level.BROKEN, Effect.OTHER, essence, cause=essence)
    if isinstance(detail, Nondeterministic) and detail.depends_on:
        return Symptom(Level.INVARIANT, Effect.DEPENDENT_BITS, detail.depends_on, place)
    if record.verdict is Verdict.NONDETERMINISTIC:
        return Symptom(Level.STRUCTURE, Effect.NONDETERMINISTIC)
    if record.verdict in (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH):
        effect, subject = _wrong_value(record)
        return Symptom(_level(record, effect), effect, subject)
    if record.verdict.kind is VerdictKind.MEMORY:
        level = Level.INVARIANT if record.group == GroupName.INVARIANTS else Level.STRUCTURE
        subject = essence if isinstance(detail, MemoryFault | Race) and detail.buffer else ""
        return Symptom(level, _MEMORY.get(record.verdict, Effect.OTHER), subject, place)
    return Symptom(Level.BROKEN, Effect.OTHER, f"{record.verdict}: {essence}", place, f"{record.verdict}: {essence}")


_MEMORY = {
    Verdict.UNWRITTEN: Effect.UNWRITTEN,
    Verdict.UNINITIALISED: Effect.UNINITIALISED,
    Verdict.RACE: Effect.RACE,
    Verdict.OUT_OF_BOUNDS: Effect.OUT_OF_BOUNDS,
}


def _not_built(record: Record) -> tuple[Effect, str]:
    if record.verdict is Verdict.RESOURCE_EXCEEDED:
        return Effect.TOO_LARGE, record.detail.resource if isinstance(record.detail, ResourceExceeded) else ""
    if record.tier in (Tier.COMPILE, Tier.DEVICE):
        return Effect.NOT_COMPILED, ""
    detail = record.detail if record.verdict is Verdict.UNIMPLEMENTED else None
    return Effect.NOT_LOWERED, detail.primitive if isinstance(detail, NotBuilt) else ""


def _level(record: Record, effect: Effect) -> Level:
    if record.group == GroupName.INVARIANTS:
        return Level.INVARIANT
    if record.group in (GroupName.STRUCTURAL, GroupName.NUMERIC) and effect is not Effect.OVERFLOW:
        return Level.PRECISION if effect in OF_ROUNDING else Level.STRUCTURE
    return Level.SPECIAL


def _wrong_value(record: Record) -> tuple[Effect, str]:
    evidence, detail = record.shown, record.detail
    if evidence.actual is None or evidence.expected is None:
        return Effect.WRONG, ""
    got, wanted = float(evidence.actual), float(evidence.expected)
    finite = math.isfinite(got) and math.isfinite(wanted)
    if finite and isinstance(detail, Mismatch) and detail.gradient_of:
        return Effect.WRONG_GRADIENT, detail.gradient_of
    if got == wanted == 0:
        return Effect.SIGN_OF_ZERO, ""
    if finite:
        return _wrong_number(got, wanted, detail), ""
    if math.isnan(got):
        return Effect.NAN, ""
    if math.isnan(wanted):
        return Effect.NUMBER_FOR_NAN, ""
    return Effect.NUMBER_FOR_INFINITY if math.isfinite(got) else Effect.INFINITY, ""


def _wrong_number(got: float, wanted: float, detail: object) -> Effect:
    # A small error is of rounding, unless another cause is known.
    what = cause.what if (cause := cause_of(detail)) is not None else None
    if what is ErrorCause.UNSTABLE:
        return Effect.UNSTABLE
    slight = is_slight(got, wanted) or what is ErrorCause.CONSTANT
    if what is ErrorCause.OVERFLOW and not slight:
        return Effect.OVERFLOW
    return Effect.IMPRECISE if slight and what not in (ErrorCause.FORMULA, ErrorCause.BACKEND) else Effect.WRONG


def is_slight(got: float, wanted: float) -> bool:
    """Returns whether a number is off by so little of itself that it may be a rounding."""
    return abs(got - wanted) <= SLIGHT * max(abs(got), abs(wanted))


def cause_of(detail: object) -> MismatchCause | None:
    """Returns the cause of wrong values that a finding's detail states; None if it states none."""
    return detail.cause if isinstance(detail, Mismatch) else None


def has_right_formula(record: Record) -> bool | None:
    """Returns whether a finding's kernel computes what its oracle does without rounding; None if that is unknown."""
    cause = cause_of(record.detail)
    return None if cause is None else cause.what is not ErrorCause.FORMULA


def formula_error(record: Record) -> float | None:
    """Returns how far a finding's formula is off, relative to the largest value; None if that is unknown."""
    cause = cause_of(record.detail)
    return cause.size if cause is not None and cause.what is ErrorCause.FORMULA else None
