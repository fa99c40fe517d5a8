"""Suspects: findings of a kernel that are thought to come from one bug."""

import functools
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.targets import Tier
from kerneltest.records.overlay import Overlay
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import Record, Reproducer
from kerneltest.triage.clustering import (
    FindingCluster,
    cluster_by,
    cluster_by_cause,
    merge_device_diagnostics,
    split_by_experiment,
)
from kerneltest.triage.input_conditions import input_condition
from kerneltest.triage.predicates import Condition, signature_condition
from kerneltest.triage.symptoms import Effect, Level, symptom
from kerneltest.triage.tried_signatures import MostBasic, features, most_basic_failures, signatures_tried


@dataclass(frozen=True, slots=True)
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
    reproducer: Reproducer | None = None

    @property
    def backends(self) -> Mapping[str, int]:
        """Findings by backend, most first."""
        return dict(Counter(record.backend for record in self.findings).most_common())

    @property
    def condition(self) -> str:
        """The condition under which it shows, in words, or ""."""
        return " and ".join(each.words for each in (self.inputs, self.signatures) if each.words)

    @property
    def pattern(self) -> str:
        """The pattern of wrong elements in words, if every finding has the same one; or ""."""
        patterns = {
            record.evidence.pattern.brief() if record.evidence.pattern is not None else ""
            for record in self.findings
            if record.evidence is not None and record.evidence.actual is not None
        }
        return patterns.pop() if len(patterns) == 1 else ""

    @property
    def headline(self) -> str:
        """The symptom in words, without the condition."""
        match self.effect:
            case Effect.OTHER:
                return f"{self.example.verdict}: {self.example.message.partition(_NEWLINE)[0]}"
            case Effect.WRONG_GRADIENT:
                return f"{self.effect} by {self.subject}"
            case Effect.RACE if self.subject:
                return f"{self.effect} for {self.subject}"
            case _:
                return f"{self.effect}: {self.subject}" if self.subject else str(self.effect)

    @property
    def title(self) -> str:
        """The suspect in one line."""
        what = f"{self.headline}, {self.pattern}," if self.pattern else self.headline
        return f"{what} where {self.condition}" if self.condition else what.rstrip(",")

    @property
    def example(self) -> Record:
        """The finding that shows it best: the smallest case, or the finding with the shortest lengths."""
        if self.reproducer is not None:
            return self.reproducer.record
        return min(self.findings, key=lambda r: (not r.dims, math.prod(r.dims.values()), sum(r.dims.values())))


def find_suspects(
    records: Iterable[Record], blocks: Mapping[str, Mapping[str, int]], smallest: Iterable[Reproducer] = ()
) -> tuple[Suspect, ...]:
    """Gathers findings into suspects, pairing by pairing, the most telling suspect first.

    Args:
      records: all records of one run, or of several runs of the same plan.
      blocks: by pairing, the kernel's block length by dim, in elements.
      smallest: the smallest cases that were found for some findings.
    """
    by_pairing: dict[str, list[Record]] = {}
    for record in records:
        if record.case:
            by_pairing.setdefault(record.pairing, []).append(record)
    known = {(each.record.pairing, each.record.backend, each.origin): each for each in smallest}
    return tuple(
        suspect for name, each in by_pairing.items() for suspect in _of_pairing(name, each, blocks.get(name, {}), known)
    )


def suspects_in_run(run: RunRecords) -> tuple[Suspect, ...]:
    """Gathers the findings of one run into suspects."""
    blocks = {name: declared.blocks for name, declared in run.plan.pairings.items()}
    return find_suspects(run.records, blocks, run.reproducers)


def suspects_in_overlay(merged: Overlay) -> tuple[Suspect, ...]:
    """Gathers the findings of several runs into suspects: a bug that several runs show is one suspect."""
    blocks = {name: declared.blocks for name, declared in merged.pairings.items()}
    smallest = [each for run in merged.runs for each in run.reproducers]
    in_order = sorted(merged.rows, key=lambda row: row.run)
    return find_suspects((row.record for row in in_order), blocks, smallest)


def _smallest(findings: Iterable[Record], known: Mapping[tuple[str, str, str], Reproducer]) -> Reproducer | None:
    """Returns the smallest of the cases that were made from some findings."""
    found = [known[key] for each in findings if (key := (each.pairing, each.backend, each.case)) in known]
    return min(found, key=lambda each: (each.fault is None, each.nontrivial), default=None)


def _of_pairing(
    pairing: str, records: Sequence[Record], blocks: Mapping[str, int], known: Mapping[tuple[str, str, str], Reproducer]
) -> list[Suspect]:
    findings = [(record, symptom(record)) for record in records if record.verdict.is_finding]
    most_basic = most_basic_failures(findings)
    exceptions = [pair for pair in findings if pair[1].level in _BEFORE_VALUES]
    values = [pair for pair in findings if pair[1].level not in _BEFORE_VALUES]
    causes = cluster_by_cause(values, records, blocks, most_basic)
    clusters = [
        *(part for cluster in causes for part in split_by_experiment(cluster, known)),
        *merge_device_diagnostics(cluster_by(exceptions, lambda symptom: symptom.cause)),
    ]
    make = functools.partial(_suspect, pairing, records=records, blocks=blocks, most_basic=most_basic, known=known)
    suspects = _merge_same([(cluster, make(cluster)) for cluster in clusters], make, _interpreted(records))
    suspects.sort(key=lambda suspect: (_ORDER.index(suspect.level), -len(suspect.findings)))
    seen: Counter[tuple[Level, Effect, str]] = Counter()
    found = []
    for suspect in suspects:
        kind = (suspect.level, suspect.effect, suspect.subject)
        seen[kind] += 1
        found.append(replace(suspect, id=_id(suspect, seen[kind])))
    return found


def _merge_same(
    parts: list[tuple[FindingCluster, Suspect]], make: Callable[[FindingCluster], Suspect], interpreted: Collection[str]
) -> list[Suspect]:
    """Merges suspects that a reader could not tell apart, until all differ."""
    for one, other in itertools.combinations(range(len(parts)), 2):
        (first, suspect), (second, same) = parts[one], parts[other]
        if _is_same_bug(suspect, same, interpreted):
            level = min(first.level, second.level, key=_ORDER.index)
            both = FindingCluster(level, first.findings + second.findings)
            left = [part for number, part in enumerate(parts) if number not in (one, other)]
            return _merge_same([*left, (both, make(both))], make, interpreted)
    return [suspect for _, suspect in parts]


def _is_same_bug(one: Suspect, other: Suspect, interpreted: Collection[str]) -> bool:
    """Returns whether two suspects have the same title, smallest case or line at fault, and come from the same tier.

    What interpret mode shows is a bug of the kernel; what it ran and does not show may be another one of the lowering.
    """
    if one.level in _BEFORE_VALUES or other.level in _BEFORE_VALUES:
        return False
    if one.title == other.title:
        return True
    seen = [any(record.tier is Tier.INTERPRET for record in each.findings) for each in (one, other)]
    hidden = [each for each, is_seen in zip((one, other), seen, strict=True) if not is_seen]
    if len(hidden) == 1 and any(record.case in interpreted for record in hidden[0].findings):
        return False
    mine, its = one.reproducer, other.reproducer
    if mine is None or its is None:
        return False
    if mine.fault is not None and its.fault is not None and mine.fault.place == its.fault.place:
        return True
    return _inputs(mine.record) is not None and _inputs(mine.record) == _inputs(its.record)


def _inputs(record: Record) -> tuple[str, str, Mapping[str, str]] | None:
    """Returns what a record's case is made of; None if its arguments were not kept."""
    arguments = record.evidence.arguments if record.evidence is not None else None
    return (record.backend, record.signature, arguments) if arguments else None


def _interpreted(records: Sequence[Record]) -> Collection[str]:
    return {record.case for record in records if record.tier is Tier.INTERPRET and record.verdict.is_judgement}


_NEWLINE = "\n"
_BEFORE_VALUES = (Level.BUILD, Level.BROKEN)
_ORDER = (Level.STRUCTURE, Level.SPECIAL, Level.PRECISION, Level.INVARIANT, Level.BUILD, Level.BROKEN)


def _suspect(
    pairing: str,
    cluster: FindingCluster,
    *,
    records: Sequence[Record],
    blocks: Mapping[str, int],
    most_basic: MostBasic,
    known: Mapping[tuple[str, str, str], Reproducer],
) -> Suspect:
    findings = tuple(record for record, _ in cluster.findings)
    backend = Counter(record.backend for record in findings).most_common(1)[0][0]
    here = [r for r in records if r.backend == backend and r.verdict.is_judgement]
    failing = {record.signature for record in findings if record.backend == backend}
    reproducer = _smallest(findings, known)
    covered = [*findings, *([reproducer.record] if reproducer is not None else [])]
    mine = [record for record in findings if record.backend == backend]
    tried = signatures_tried(here, mine, cluster.level, most_basic)
    bad = {record.case for record in findings if record.backend == backend}
    good = [record for record in here if record.signature in failing and record.verdict.is_green]
    effect, subject = cluster.kind
    return Suspect(
        id="",
        pairing=pairing,
        level=cluster.level,
        effect=effect,
        subject=subject,
        lines=tuple(line for line, _ in Counter(s.place for _, s in cluster.findings if s.place).most_common()),
        findings=findings,
        tried=dict(Counter(r.backend for r in records if r.verdict.is_judgement)),
        signatures=signature_condition(
            [each for name, each in tried.items() if name in failing],
            [each for name, each in tried.items() if name not in failing],
            blocks,
            [features(record) for record in covered],
        ),
        inputs=input_condition(
            [r.special_inputs for r in here if r.case in bad],
            [r.special_inputs for r in good],
            [r.special_inputs for r in covered if r.special_inputs],
        ),
        reproducer=reproducer,
    )


def _id(suspect: Suspect, number: int) -> str:
    """Returns the id of the suspect of its kind with that number; names make it, not the words of titles."""
    name = suspect.pairing.rpartition("::")[2]
    identity = f"{name}|{suspect.level}|{suspect.effect.name}|{suspect.subject}|{number}"
    return hashlib.sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()[:8]
