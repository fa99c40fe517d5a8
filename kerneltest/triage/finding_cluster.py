"""A cluster: findings that probably have one cause."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from kerneltest.core.verdicts import VerdictKind
from kerneltest.records.schema import Record
from kerneltest.triage.symptoms import UNORDERED, Effect, Level, Symptom
from kerneltest.triage.tried_signatures import Finding

Kind = tuple[Effect, str]  # an effect and its subject


@dataclass(slots=True)
class FindingCluster:
    """Findings, on one backend or several, that probably have one cause."""

    level: Level
    findings: list[Finding]

    @property
    def signatures(self) -> frozenset[str]:
        return frozenset(record.signature for record, _ in self.findings)

    @property
    def kinds(self) -> Counter[Kind]:
        return Counter(symptom.kind for _, symptom in self.findings)

    @property
    def backends(self) -> frozenset[str]:
        return frozenset(record.backend for record, _ in self.findings)

    @property
    def kind(self) -> Kind:
        """The most frequent kind of symptom; of memory faults if there are any, since wrong values follow from them."""
        memory = Counter(symptom.kind for record, symptom in self.findings if is_memory(record))
        unordered = Counter(symptom.kind for _, symptom in self.findings if symptom.effect in UNORDERED)
        return (memory or unordered or self.kinds).most_common(1)[0][0]

    @property
    def is_unordered(self) -> bool:
        """True if accesses race, so that any values may come out."""
        return any(symptom.effect in UNORDERED for _, symptom in self.findings)


def cluster_by(findings: Sequence[Finding], key: Callable[[Symptom], Hashable]) -> list[FindingCluster]:
    """Clusters findings whose symptoms have the same key, in the order of their first findings."""
    clusters: dict[Hashable, FindingCluster] = {}
    for pair in findings:
        clusters.setdefault(key(pair[1]), FindingCluster(pair[1].level, [])).findings.append(pair)
    return list(clusters.values())


def is_memory(record: Record) -> bool:
    """Returns whether a finding is of memory that is misused."""
    return record.verdict.kind is VerdictKind.MEMORY
