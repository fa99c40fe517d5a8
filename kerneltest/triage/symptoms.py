"""What failed, in words that do not change from case to case: the symptom of a finding."""

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Kind, Verdict
from kerneltest.records.schema import Record

_SLIGHT = 1 / 16  # an error relative to the larger of both numbers: below it something was rounded, above it lost
_LINE = re.compile(r"[^\s(),;]+\.py:\d+")
_PLACE = re.compile(r" ?\([^\s()]+\.py:\d+\)$")
_ERROR = re.compile(r"^(kernel \S+: )?(primitive \S+: )?\w+(Error|Exception): ")
_NUMBER = re.compile(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?")
_TENSOR = re.compile(r"(tensor|vector|memref)<[^>]*>")
_PLURAL = re.compile(r"\[#(, #)*,?\]|\(#(, #)*,?\)|(#x)+")


class Level(StrEnum):
    """What kind of question is answered wrongly, from the most to the least elementary."""

    BUILD = "build"
    STRUCTURE = "structure"
    PRECISION = "precision"
    SPECIAL = "special"
    INVARIANT = "invariant"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Symptom:
    """What one finding shows.

    Attributes:
      level: which question it answers wrongly.
      what: in words, the same for all cases that show the same.
      line: the source line that the message names, or "".
      says: what the message says, without numbers, where findings that say the same have one cause; else "".
    """

    level: Level
    what: str
    line: str = ""
    says: str = ""


def symptom(record: Record) -> Symptom:
    """The symptom of a finding."""
    verdict, first = record.verdict, record.message.partition("\n")[0]
    found = _LINE.search(first)
    line = found[0] if found else ""
    if verdict.kind is Kind.BUILD:
        return Symptom(Level.BUILD, _not_built(record), line, _build_message(record, line))
    if verdict in (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH):
        what = _how_wrong(record)
        return Symptom(_level(record, what), what)
    if verdict.kind is Kind.MEMORY:
        level = Level.INVARIANT if record.group == "invariants" else Level.STRUCTURE
        access = _ACCESS.search(first)
        where = f": {access[1]} of {access[2]}" if access else ""
        return Symptom(level, f"{_MEMORY[verdict]}{where}", line)
    said = without_numbers(first)
    return Symptom(Level.BROKEN, f"{verdict}: {said}", line, said)


def _build_message(record: Record, line: str) -> str:
    """What JAX or a compiler said, without numbers, and the line of source; a device names none, or another one."""
    lines = record.message.rstrip().split("\n")
    said = lines[0 if record.tier is Tier.DEVICE else -1]
    said = _ERROR.sub("", without_numbers(_PLACE.sub("", said)))
    return said if record.tier is Tier.DEVICE else f"{said} {line}"


def _not_built(record: Record) -> str:
    if record.verdict is Verdict.RESOURCE_EXCEEDED:
        return "needs more than the target has"
    return "does not compile" if record.tier in (Tier.COMPILE, Tier.DEVICE) else "does not lower"


def without_numbers(text: str) -> str:
    """A message with its numbers, shapes and indices taken out; the lines of source that it names stay."""
    kept = _LINE.findall(text)
    text = _PLURAL.sub("#", _NUMBER.sub("#", _TENSOR.sub("a tensor", _LINE.sub("\0", text))))
    for line in kept:
        text = text.replace("\0", line, 1)
    return text


def _level(record: Record, what: str) -> Level:
    if record.group == "invariants":
        return Level.INVARIANT
    if record.group in ("structural", "numeric"):
        return Level.PRECISION if what == IMPRECISE else Level.STRUCTURE
    return Level.SPECIAL


IMPRECISE = "values of too little precision"
WRONG = "wrong values"
GRADIENT = "a wrong gradient"
UNTOUCHED = "elements that nobody wrote"
_MEMORY = {
    Verdict.UNWRITTEN: UNTOUCHED,
    Verdict.UNINITIALISED: "values of memory that nobody wrote",
    Verdict.RACE: "a race",
    Verdict.OUT_OF_BOUNDS: "an access out of bounds",
}
_ACCESS = re.compile(r"\b(load|store|atomic) at ([^\s\[]+)")


def _how_wrong(record: Record) -> str:
    """What became of the worst element."""
    evidence = record.evidence
    if evidence is None or evidence.actual is None or evidence.expected is None:
        return WRONG
    got, wanted = float(evidence.actual), float(evidence.expected)
    by = re.search(r"\bby ([\w.]+): ", record.message) if record.family == "gradient" else None
    if by is not None and math.isfinite(got) and math.isfinite(wanted):
        return f"{GRADIENT} by {by[1]}"
    if got == wanted == 0:
        return "a zero of the wrong sign"
    if math.isfinite(got) and math.isfinite(wanted):
        return IMPRECISE if abs(got - wanted) <= _SLIGHT * max(abs(got), abs(wanted)) else WRONG
    if math.isnan(got):
        return "NaN"
    if math.isnan(wanted):
        return "a number in place of NaN"
    return "a number in place of an infinity" if math.isfinite(got) else "an infinity"
