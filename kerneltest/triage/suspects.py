"""Suspects of a run: clusters of findings with their conditions and smallest cases, merged where they do not differ."""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from kerneltest.core.group_names import GroupName
from kerneltest.core.targets import Tier
from kerneltest.records.overlay import Overlay
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import Record, Reproducer
from kerneltest.triage.clustering import cluster_by_cause, merge_device_diagnostics, split_by_experiment
from kerneltest.triage.finding_cluster import FindingCluster, cluster_by
from kerneltest.triage.input_conditions import input_condition
from kerneltest.triage.magnitude_conditions import magnitude_condition
from kerneltest.triage.predicates import signature_condition
from kerneltest.triage.suspect import BEFORE_VALUES, Suspect, is_same_bug
from kerneltest.triage.symptoms import OF_ROUNDING, Effect, Level, has_right_formula, symptom
from kerneltest.triage.tried_signatures import MostBasic, features, most_basic_failures, signatures_tried


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
    exceptions = [pair for pair in findings if pair[1].level in BEFORE_VALUES]
    values = [pair for pair in findings if pair[1].level not in BEFORE_VALUES]
    causes = cluster_by_cause(values, records, blocks, most_basic)
    clusters = [
        *(part for cluster in causes for part in split_by_experiment(cluster, known)),
        *merge_device_diagnostics(cluster_by(exceptions, lambda symptom: symptom.cause)),
    ]
    make = functools.partial(_suspect, pairing, records=records, blocks=blocks, most_basic=most_basic, known=known)
    suspects = _merge_same(clusters, make, _interpreted(records))
    suspects.sort(key=lambda suspect: (_ORDER.index(suspect.level), -len(suspect.findings)))
    seen: Counter[tuple[Level, Effect, str]] = Counter()
    found = []
    for suspect in suspects:
        kind = (suspect.level, suspect.effect, suspect.subject)
        seen[kind] += 1
        found.append(replace(suspect, id=_id(suspect, seen[kind])))
    return found


def _merge_same(
    clusters: Sequence[FindingCluster], make: Callable[[FindingCluster], Suspect], interpreted: Collection[str]
) -> list[Suspect]:
    """Returns the suspects of clusters, merging those that a reader could not tell apart, until all differ."""
    apart: list[tuple[FindingCluster, Suspect, str]] = []
    todo = list(reversed(clusters))
    while todo:
        cluster = todo.pop()
        suspect = make(cluster)
        title = suspect.title
        same = next((each for each in apart if is_same_bug((suspect, title), each[1:], interpreted)), None)
        if same is None:
            apart.append((cluster, suspect, title))
        else:
            apart = [each for each in apart if each is not same]
            level = min(cluster.level, same[0].level, key=_ORDER.index)
            todo.append(FindingCluster(level, same[0].findings + cluster.findings))
    return [suspect for _, suspect, _ in apart]


def _interpreted(records: Sequence[Record]) -> Collection[str]:
    return {record.case for record in records if record.tier is Tier.INTERPRET and record.verdict.is_judgement}


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
    inputs = input_condition(
        [r.special_inputs for r in here if r.case in bad],
        [r.special_inputs for r in good],
        [r.special_inputs for r in covered if r.special_inputs],
    )
    is_special = bool(inputs.words)
    if not is_special and reproducer is not None and effect not in OF_ROUNDING:
        failing_here = [r for r in here if r.case in bad]
        inputs = magnitude_condition(failing_here, good, reproducer.record, [r for r in findings if r.magnitudes])
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
            [features(each) for each in {r.signature: r for r in here if r.signature not in tried}.values()],
        ),
        inputs=inputs,
        everywhere=not is_special and _is_everywhere(findings, records),
        reproducer=reproducer,
    )


_ORDINARY = frozenset({GroupName.STRUCTURAL, GroupName.NUMERIC})
_NEARLY_ALL, _ENOUGH = 0.9, 8  # share of the ordinary cases that fail, and number of them


def _is_everywhere(findings: Sequence[Record], records: Sequence[Record]) -> bool:
    """Returns whether nearly every case with ordinary values is a finding, on every backend that compared any.

    A kernel with the oracle's formula leaves no doubt of the oracle.
    """
    known = [right for record in findings if (right := has_right_formula(record)) is not None]
    if known and all(known):
        return False
    bad = Counter(record.backend for record in findings if _is_telling(record))
    compared = Counter(record.backend for record in records if _is_telling(record))
    return bool(compared) and all(
        count >= _ENOUGH and bad[backend] >= _NEARLY_ALL * count for backend, count in compared.items()
    )


def _is_telling(record: Record) -> bool:
    """Returns whether a case compares ordinary values, at least two of which differ."""
    alike = record.expected is not None and record.expected.least == record.expected.greatest
    return record.group in _ORDINARY and bool(record.compared or record.wrong) and not alike


def _id(suspect: Suspect, number: int) -> str:
    """Returns the id of the suspect of its kind with that number; names make it, not the words of titles."""
    name = suspect.pairing.rpartition("::")[2]
    identity = f"{name}|{suspect.level}|{suspect.effect.name}|{suspect.subject}|{number}"
    return hashlib.sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()[:8]
