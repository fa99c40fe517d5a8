"""One suspect: findings of a kernel that are thought to come from one bug, with a title and a diagnosis."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kerneltest.core.details import Mismatch
from kerneltest.core.details.base import without_numbers
from kerneltest.core.targets import Tier
from kerneltest.records.evidence import EVERY_ELEMENT
from kerneltest.records.schema import FaultLocation, Record, Reproducer
from kerneltest.triage.attribution import DROPS_NAN, drops_nan
from kerneltest.triage.finding_cluster import is_memory
from kerneltest.triage.predicates import Condition
from kerneltest.triage.symptoms import OF_ROUNDING, SLIGHT, Effect, Level, formula_error, symptom

BEFORE_VALUES = (Level.BUILD, Level.BROKEN)
"""Levels of failures that end a case before values are compared."""

_NEARLY_ALL = 0.9  # share of findings that say how far a formula is off; the others have values near zero
_NEWLINE = "\n"


@dataclass(frozen=True, slots=True, repr=False)
class Suspect:
    """Findings that are thought to come from one bug of one kernel.

    Attributes:
      id: eight hexadecimal digits, the same from run to run as long as it shows in the same way.
      pairing: the kernel's pairing.
      level: the kind of question that it answers wrongly.
      effect: its symptom.
      subject: the argument, the memory or the failure that the effect is about; "" for the output.
      lines: FILE:LINE of the user's source that its failures point at, the most frequent first.
      findings: in the order of the records.
      tried: cases by backend, without those that could not be run.
      signatures: the condition on signatures, on the backend where it shows most.
      inputs: the condition on inputs there, among the cases of these signatures.
      everywhere: whether nearly every case with ordinary values shows it on every backend, as with a wrong oracle, and
        no special value among the inputs explains it.
      reproducer: the smallest case that was found; None if none was looked for.
    """

    id: str
    pairing: str
    level: Level
    effect: Effect
    subject: str
    lines: tuple[str, ...]
    findings: tuple[Record, ...]
    tried: Mapping[str, int]
    signatures: Condition
    inputs: Condition
    everywhere: bool = False
    reproducer: Reproducer | None = None

    def __repr__(self) -> str:
        return f"<Suspect {self.id}: {self.title}; {len(self.findings)} findings>"

    def _repr_html_(self) -> str:
        """Returns the suspect's card, which a notebook shows."""
        card: Any = import_module("kerneltest.report.html.card")  # a later room, which only a notebook asks for
        return str(card.render_suspect(self))

    @property
    def backends(self) -> Mapping[str, int]:
        """Findings by backend, most first."""
        return dict(Counter(record.backend for record in self.findings).most_common())

    @property
    def condition(self) -> str:
        """The condition under which it shows, in words, or ""."""
        return " and ".join(each.words for each in (self.inputs, self.signatures) if each.words)

    @property
    def fault(self) -> FaultLocation | None:
        """The location of the fault; None if none was found, or if the edit there leaves some of its findings wrong."""
        found = self.reproducer.fault if self.reproducer is not None else None
        left = frozenset(found.unexplained) if found is not None else frozenset()
        return None if any(record.case in left for record in self.findings) else found

    @property
    def pattern(self) -> str:
        """The pattern of wrong elements in words, if every finding and the smallest case have the same one; or ""."""
        patterns = {_pattern(record) for record in self.findings if _has_value(record)}
        smallest = self.reproducer.record if self.reproducer is not None else None
        if smallest is not None and _has_value(smallest) and getattr(smallest.detail, "total", 1) > 1:
            patterns.add(_pattern(smallest))
        return patterns.pop() if len(patterns) == 1 else ""

    @property
    def diagnosis(self) -> str:
        """The likely mistake that explains nearly every finding, or that an experiment showed; or ""."""
        smallest = self.reproducer.record if self.reproducer is not None else None
        if smallest is not None and (words := _tried_out(smallest)):
            return words
        judged = [
            r.evidence.diagnosis for r in self.findings if r.evidence is not None and r.evidence.actual is not None
        ]
        common = Counter(without_numbers(words) for words in judged).most_common(1)
        if not common or not common[0][0] or common[0][1] < _EXPLAINED * len(judged):
            return ""
        essence, count = common[0]
        own = self.example.evidence.diagnosis if self.example.evidence is not None else ""
        words = own if without_numbers(own) == essence else next(w for w in judged if without_numbers(w) == essence)
        return words if count == len(judged) else f"{words} (explains {count:,} of {len(judged):,} findings)"

    @property
    def headline(self) -> str:
        """The symptom in words, without the condition."""
        match self.effect:
            case Effect.OTHER:
                return f"{self.example.verdict}: {self.example.message.partition(_NEWLINE)[0]}"
            case Effect.WRONG if slight := self._slight_error():
                return f"a formula that is slightly off ({slight} of the largest value)"
            case Effect.WRONG if self.everywhere:
                return f"{self.effect}: the oracle and every backend differ"
            case Effect.WRONG_GRADIENT:
                return f"{self.effect} by {self.subject}"
            case Effect.RACE if self.subject:
                return f"{self.effect} for {self.subject}"
            case _:
                return f"{self.effect}: {self.subject}" if self.subject else str(self.effect)

    def _slight_error(self) -> str:
        """Returns how far the formula is off, relatively, if that is little in nearly every finding; or "".

        An integer is never slightly off: a position or a code beside the right one is another.
        """
        if self.example.evidence is not None and isinstance(self.example.evidence.actual, int):
            return ""
        known = [formula_error(record) for record in self.findings if symptom(record).effect not in OF_ROUNDING]
        errors = sorted(error for error in known if error is not None)
        if not errors or len(errors) < _NEARLY_ALL * len(known):
            return ""
        if errors[-1] <= SLIGHT:
            return f"by up to {errors[-1]:.2g}"
        most = errors[math.ceil(_NEARLY_ALL * len(errors)) - 1]
        return f"mostly by less than {most:.2g}" if most <= SLIGHT else ""

    @property
    def known_bug(self) -> str:
        """The bug of JAX or of a compiler that explains the findings on lowered code, with a link; or ""."""
        shown = [record for record in self.findings if record.tier is not Tier.INTERPRET]
        return DROPS_NAN if self.effect is Effect.NUMBER_FOR_NAN and shown and all(map(drops_nan, shown)) else ""

    @property
    def title(self) -> str:
        """The suspect in one line."""
        says_no_more = self.pattern == EVERY_ELEMENT and (self.everywhere or is_memory(self.example))
        pattern = "" if says_no_more else self.pattern
        what = f"{self.headline}, {pattern}," if pattern else self.headline
        return f"{what} where {self.condition}" if self.condition else what.rstrip(",")

    @property
    def example(self) -> Record:
        """The finding that shows it best: the smallest case, or the finding with the shortest lengths."""
        if self.reproducer is not None:
            return self.reproducer.record
        return min(self.findings, key=lambda r: (not r.dims, math.prod(r.dims.values()), sum(r.dims.values())))


def _has_value(record: Record) -> bool:
    return record.evidence is not None and record.evidence.actual is not None


def _pattern(record: Record) -> str:
    pattern = record.evidence.pattern if record.evidence is not None else None
    return pattern.brief() if pattern is not None else ""


_EXPLAINED = 0.8  # share of the findings that a diagnosis must explain; fewer do by chance


def _tried_out(record: Record) -> str:
    """Returns the diagnosis that an experiment with a smallest case gave; "" if only a rule gave one."""
    if record.evidence is None or (
        isinstance(record.detail, Mismatch) and record.evidence.diagnosis in record.detail.remarks
    ):
        return ""
    return record.evidence.diagnosis


def is_same_bug(
    entitled: tuple[Suspect, str], other_entitled: tuple[Suspect, str], interpreted: Collection[str]
) -> bool:
    """Returns whether two suspects have the same title, smallest case or line at fault, and come from the same tier.

    They are two bugs if an edit that repairs one of them leaves the other wrong. If both are imprecise in the same
    cases, such an edit fits by chance too often.

    What interpret mode shows is a bug of the kernel; what it ran and does not show may be another one of the lowering.

    Args:
      entitled, other_entitled: two suspects of one kernel, each with its title, which takes time to find.
      interpreted: the cases that interpret mode judged.
    """
    (one, title), (other, its_title) = entitled, other_entitled
    if one.level in BEFORE_VALUES or other.level in BEFORE_VALUES:
        return False
    if title == its_title and one.level is Level.PRECISION:
        return True
    if _is_left_wrong(one, other) or _is_left_wrong(other, one):
        return False
    if title == its_title:
        return True
    seen = [any(record.tier is Tier.INTERPRET for record in each.findings) for each in (one, other)]
    hidden = [each for each, is_seen in zip((one, other), seen, strict=True) if not is_seen]
    if len(hidden) == 1 and any(record.case in interpreted for record in hidden[0].findings):
        return False
    if one.fault is not None and other.fault is not None and one.fault.place == other.fault.place:
        return True
    mine, its = one.reproducer, other.reproducer
    if mine is None or its is None:
        return False
    return _inputs(mine.record) is not None and _inputs(mine.record) == _inputs(its.record)


def _is_left_wrong(other: Suspect, one: Suspect) -> bool:
    """Returns whether the edit that repairs one suspect was tried on cases of another, in vain."""
    return one.fault is not None and any(record.case in one.fault.unexplained for record in other.findings)


def _inputs(record: Record) -> tuple[str, str, Mapping[str, str]] | None:
    """Returns what a record's case is made of; None if its arguments were not kept."""
    arguments = record.evidence.arguments if record.evidence is not None else None
    return (record.backend, record.signature, arguments) if arguments else None
