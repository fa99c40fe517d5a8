"""Findings gathered into suspects: what is thought to be one bug each."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.verdicts import Kind
from kerneltest.records.schema import Record, Smallest
from kerneltest.triage.clustering import (
    Group,
    Shown,
    by_cause,
    by_experiment,
    elementary,
    grouped,
    signatures_tried,
    told_on_devices,
)
from kerneltest.triage.predicates import Condition, condition, held
from kerneltest.triage.symptoms import Level, symptom


@dataclass(frozen=True, slots=True)
class Suspect:
    """What is thought to be one bug of one kernel.

    Attributes:
      id: eight hexadecimal digits, the same from run to run as long as it shows in the same way.
      pairing: whose kernel it is in.
      level: which kind of question is answered wrongly.
      what: that shows, in words.
      lines: of source that messages name, the most frequent first.
      findings: in the order of the records.
      tried: cases by backend that it shows in, without those that could not be run.
      signatures: under which signatures it shows, on the backend where it shows most.
      inputs: under which inputs it shows there, among the cases of these signatures.
      smallest: the smallest case that was found; None where none was looked for.
    """

    id: str
    pairing: str
    level: Level
    what: str
    lines: tuple[str, ...]
    findings: tuple[Record, ...]
    tried: Mapping[str, int]
    signatures: Condition
    inputs: Condition
    smallest: Smallest | None = None

    @property
    def backends(self) -> Mapping[str, int]:
        """Findings by backend, most first."""
        return dict(Counter(record.backend for record in self.findings).most_common())

    @property
    def where(self) -> str:
        """The condition in words, or ""."""
        return " and ".join(each.words for each in (self.inputs, self.signatures) if each.words)

    @property
    def pattern(self) -> str:
        """Where in the output elements are wrong, if that is so in every finding; or ""."""
        patterns = {
            re.sub(r" \(.*\)", "", record.evidence.pattern)
            for record in self.findings
            if record.evidence is not None and record.evidence.actual is not None
        }
        (pattern,) = patterns if len(patterns) == 1 else ("",)
        return "" if re.search(r"\d", pattern) else pattern

    @property
    def title(self) -> str:
        """What it is, in a line."""
        what = f"{self.what}, {self.pattern}," if self.pattern else self.what
        return f"{what} where {self.where}" if self.where else what.rstrip(",")

    @property
    def example(self) -> Record:
        """The finding that shows it best: the smallest case, else the one of the shortest lengths."""
        if self.smallest is not None:
            return self.smallest.record
        return min(self.findings, key=lambda r: (not r.dims, math.prod(r.dims.values()), sum(r.dims.values())))


def suspects(
    records: Iterable[Record], blocks: Mapping[str, Mapping[str, int]], smallest: Iterable[Smallest] = ()
) -> tuple[Suspect, ...]:
    """Gathers the findings of some records into suspects, pairing by pairing, the most telling first.

    Args:
      records: of one run, or of several runs of the same plan.
      blocks: by pairing, the kernel's block length by dim, in elements.
      smallest: the smallest cases that were found for some of the findings.
    """
    by_pairing: dict[str, list[Record]] = {}
    for record in records:
        if record.case:
            by_pairing.setdefault(record.pairing, []).append(record)
    known = {(each.record.pairing, each.record.backend, each.origin): each for each in smallest}
    return tuple(
        _with_smallest(suspect, known)
        for name, each in by_pairing.items()
        for suspect in _of_pairing(name, each, blocks.get(name, {}), known)
    )


def _with_smallest(suspect: Suspect, known: Mapping[tuple[str, str, str], Smallest]) -> Suspect:
    found = [known[key] for each in suspect.findings if (key := (each.pairing, each.backend, each.case)) in known]
    if not found:
        return suspect
    return replace(suspect, smallest=min(found, key=lambda each: (each.birth is None, each.unusual)))


def _of_pairing(
    pairing: str, records: Sequence[Record], blocks: Mapping[str, int], known: Mapping[tuple[str, str, str], Smallest]
) -> list[Suspect]:
    findings = [(record, symptom(record)) for record in records if record.verdict.is_finding]
    shown = elementary(findings)
    said = [pair for pair in findings if pair[1].level in _SAID]
    values = [pair for pair in findings if pair[1].level not in _SAID]
    causes = [part for group in by_cause(values, records, blocks, shown) for part in by_experiment(group, known)]
    groups = [*causes, *told_on_devices(grouped(said, lambda said: said.says))]
    groups.sort(key=lambda group: (_ORDER.index(group.level), -len(group.findings)))
    seen: Counter[tuple[Level, str]] = Counter()
    made = []
    for group in groups:
        what = group.what
        seen[group.level, what] += 1
        made.append(_suspect(pairing, group, what, seen[group.level, what], records, blocks, shown))
    return made


_SAID = (Level.BUILD, Level.BROKEN)
_ORDER = (Level.STRUCTURE, Level.SPECIAL, Level.PRECISION, Level.INVARIANT, Level.BUILD, Level.BROKEN)


def _suspect(
    pairing: str,
    group: Group,
    what: str,
    number: int,
    records: Sequence[Record],
    blocks: Mapping[str, int],
    shown: Shown,
) -> Suspect:
    findings = tuple(record for record, _ in group.findings)
    backend = Counter(record.backend for record in findings).most_common(1)[0][0]
    here = [r for r in records if r.backend == backend and r.verdict.kind is not Kind.UNAVAILABLE]
    failing = {record.signature for record in findings if record.backend == backend}
    tried = signatures_tried(here, failing, group.level, shown)
    bad = {record.case for record in findings if record.backend == backend}
    good = [record for record in here if record.signature in failing and not record.verdict.is_finding]
    name = pairing.rpartition("::")[2]
    return Suspect(
        id=hashlib.sha256(f"{name}|{group.level}|{what}|{number}".encode()).hexdigest()[:8],
        pairing=pairing,
        level=group.level,
        what=what,
        lines=tuple(line for line, _ in Counter(each.line for _, each in group.findings if each.line).most_common()),
        findings=findings,
        tried=dict(Counter(r.backend for r in records if r.verdict.kind is not Kind.UNAVAILABLE)),
        signatures=condition(
            [features for name, features in tried.items() if name in failing],
            [features for name, features in tried.items() if name not in failing],
            blocks,
        ),
        inputs=held([r.holds for r in here if r.case in bad], [r.holds for r in good]),
    )
