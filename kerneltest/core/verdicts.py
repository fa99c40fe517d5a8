"""The closed list of verdicts: the severity, sign and meaning of each."""

from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from typing import Self, TypeVar

_E = TypeVar("_E", bound="Ending")


class VerdictKind(StrEnum):
    """A group of related verdicts. A page gives each kind a colour that colour-blind readers can distinguish."""

    PASS = "pass"
    XFAIL = "xfail"
    UNAVAILABLE = "unavailable"
    VALUES = "values"
    MEMORY = "memory"
    BUILD = "build"
    BROKEN = "broken"
    INTERNAL = "internal"


class Ending(StrEnum):
    """The outcome of a case or of a planned cell. A member equals its name in records."""

    letter: str  # a sign that shows it without colour
    kind: VerdictKind  # the group that it belongs to
    meaning: str  # a phrase for reports

    def __new__(cls, value: str, letter: str = "", kind: VerdictKind = VerdictKind.BROKEN, meaning: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.letter, member.kind, member.meaning = letter, kind, meaning
        return member

    @cached_property  # asked for each record
    def severity(self) -> int:
        """The rank from harmless to severe: green endings, then findings, then gaps in the bookkeeping."""
        return sorted([*Verdict, *Gap], key=lambda ending: not ending.is_green).index(self)

    @cached_property
    def is_green(self) -> bool:
        return self.kind in (VerdictKind.PASS, VerdictKind.XFAIL, VerdictKind.UNAVAILABLE)

    @cached_property
    def is_judgement(self) -> bool:
        """True if it says something about the kernel or its pairing, good or bad."""
        return self.kind not in (VerdictKind.UNAVAILABLE, VerdictKind.INTERNAL)

    @cached_property
    def is_finding(self) -> bool:
        """True if it says something bad about the kernel or its pairing."""
        return not self.is_green and self.kind is not VerdictKind.INTERNAL


class Verdict(Ending):
    """The outcome of a case on a backend, from harmless to severe: a cell shows its worst."""

    PASS = "pass", "✓", VerdictKind.PASS, "agrees with the oracle"
    XFAIL = "xfail", "≈", VerdictKind.XFAIL, "a declared xfail that did occur"
    UNAVAILABLE = (
        "unavailable",
        "–",
        VerdictKind.UNAVAILABLE,
        "this machine lacks the backend, cannot run this call on it, or had no time left for it",
    )
    INTERNAL_ERROR = (
        "internal_error",
        "#",
        VerdictKind.INTERNAL,
        "kerneltest itself failed, which says nothing about the kernel",
    )
    XPASS = "xpass", "!", VerdictKind.BROKEN, "a declared xfail that did not occur, or a call that was not rejected"
    MISMATCH = "mismatch", "M", VerdictKind.VALUES, "finite values are off by more than the bound"
    SPECIAL_MISMATCH = (
        "special_mismatch",
        "S",
        VerdictKind.VALUES,
        "a NaN, an infinity or a signed zero where the oracle has none, or the reverse",
    )
    NONDETERMINISTIC = "nondeterministic", "N", VerdictKind.VALUES, "the same inputs gave different bits"
    INPUT_MODIFIED = "input_modified", "I", VerdictKind.VALUES, "the kernel wrote to an input"
    UNWRITTEN = "unwritten", "W", VerdictKind.MEMORY, "an output element was never written"
    UNINITIALISED = "uninitialised", "U", VerdictKind.MEMORY, "a result depends on memory that was never written"
    RACE = "race", "R", VerdictKind.MEMORY, "two programs touch one element and at least one writes"
    OUT_OF_BOUNDS = "out_of_bounds", "O", VerdictKind.MEMORY, "an access outside a buffer"
    UNIMPLEMENTED = "unimplemented", "L", VerdictKind.BUILD, "a primitive has no lowering on this backend"
    RESOURCE_EXCEEDED = (
        "resource_exceeded",
        "X",
        VerdictKind.BUILD,
        "more memory, shared memory, registers or threads than the target has",
    )
    COMPILE_ERROR = "compile_error", "C", VerdictKind.BUILD, "the kernel does not compile"
    RUNTIME_ERROR = "runtime_error", "E", VerdictKind.BROKEN, "the kernel raised while it was traced or run"
    ORACLE_ERROR = "oracle_error", "Q", VerdictKind.BROKEN, "the oracle raised, or returned what the kernel does not"
    HANG = "hang", "H", VerdictKind.BROKEN, "no answer within the time limit"
    CRASH = "crash", "K", VerdictKind.BROKEN, "the process died"


class Gap(Ending):
    """The outcome of a planned cell that has no verdict to show."""

    NOTHING_ASKED = (
        "nothing asked",
        "·",
        VerdictKind.UNAVAILABLE,
        "every case ran, but each element is undefined or has no bound, as where special values overflow",
    )
    NOTHING_COMPARED = "nothing compared", "∅", VerdictKind.BROKEN, "every case passed, but none compared anything"
    MISSING = "missing", "?", VerdictKind.BROKEN, "planned, but not recorded"


def worst(endings: Iterable[_E]) -> _E:
    """Returns the most severe of at least one ending."""
    return max(endings, key=lambda ending: ending.severity)


# The groups of families that kerneltest has itself. A record names its group; others may be registered.


class GroupName(StrEnum):
    """A group of families, as records and ids name it."""

    STRUCTURAL = "structural"
    NUMERIC = "numeric"
    SPECIAL = "special"
    MASKS = "masks"
    SIGNATURES = "signatures"
    INVARIANTS = "invariants"
    PRODUCTION = "production"
    REJECTIONS = "rejects"
    DRAWN = "fuzz"
    PROOFS = "proofs"
    BITS = "bits"
    SANITIZED = "sanitized"
