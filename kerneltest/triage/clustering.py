"""Clustering of one kernel's findings by cause: which failure explains which, and what reveals two causes."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.core.details import SLIGHT, Undefined
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, VerdictKind
from kerneltest.records.schema import Record, Reproducer
from kerneltest.triage.conditions import (
    VALUE_LEVELS,
    Condition,
    Finding,
    PairingRecords,
    input_condition,
    signature_condition,
    signatures_tried,
    two_conditions,
)
from kerneltest.triage.symptoms import OF_ROUNDING, OF_SPECIAL_VALUES, UNORDERED, Effect, Level, Symptom, formula_error

# A cluster: findings that probably have one cause.

Kind = tuple[Effect, str]  # an effect and its subject


@dataclass(slots=True)
class FindingCluster:
    """Findings, on one backend or several, that probably have one cause."""

    level: Level
    findings: list[Finding]

    @property
    def records(self) -> list[Record]:
        return [record for record, _ in self.findings]

    @property
    def signatures(self) -> frozenset[str]:
        return frozenset(record.signature for record in self.records)

    @property
    def cases(self) -> frozenset[str]:
        return frozenset(record.case for record in self.records)

    @property
    def kinds(self) -> Counter[Kind]:
        return Counter(symptom.kind for _, symptom in self.findings)

    @property
    def backends(self) -> frozenset[str]:
        return frozenset(record.backend for record in self.records)

    @property
    def kind(self) -> Kind:
        """The most frequent kind of symptom; of memory faults if there are any, since wrong values follow from them.

        Of invariants, that which says what bits depend on says most. If many numbers are wrong, so are all.
        """
        memory = Counter(symptom.kind for record, symptom in self.findings if is_memory(record))
        unordered = Counter(symptom.kind for _, symptom in self.findings if symptom.effect in UNORDERED)
        bits = Counter(
            kind for kind in self.kinds if kind[0] is Effect.DEPENDENT_BITS and self.level is Level.INVARIANT
        )
        kinds = memory or unordered or bits or self.kinds
        kind, count = kinds.most_common(1)[0]
        is_also_wrong = kind[0] in OF_SPECIAL_VALUES and kinds[Effect.WRONG, ""] >= _ALSO * count
        return (Effect.WRONG, "") if is_also_wrong else kind

    def split(self, test: Callable[[Record], bool]) -> "list[FindingCluster]":
        """Returns the findings that pass a test, and those that do not; without empty clusters."""
        sides = ([pair for pair in self.findings if test(pair[0]) is passes] for passes in (True, False))
        return [FindingCluster(self.level, side) for side in sides if side]

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
    """Returns whether a finding is of misused memory."""
    return record.verdict.kind is VerdictKind.MEMORY


_ALSO = 0.25  # wrong numbers for each wrong special value, from which on these are wrong numbers, too
_SHARP = 0.3  # share of a signature's structural cases that a wrong formula fails; rounding fails fewer


def cluster_by_cause(findings: Sequence[Finding], run: PairingRecords) -> list[FindingCluster]:
    """Clusters one pairing's wrong values and memory faults by cause, case by case on all backends that ran it."""
    of_memory, values = (
        [pair for pair in findings if (is_memory(pair[0]) or pair[1].effect in UNORDERED) is is_one]
        for is_one in (True, False)
    )
    memory = _merge_nested(cluster_by(of_memory, lambda symptom: symptom.kind))
    unwritten = _undefined(pair for cluster in memory for pair in cluster.findings)
    written = {record.case for record in run.records if record.tier is Tier.SIMULATE} - unwritten.keys()
    causes: list[FindingCluster] = []
    for cause in _cluster_values(values, run):
        same = next((each for each in memory if _coincide(cause, each, run) or _complement(cause, each, run)), None)
        filled, *others = cause.split(lambda record: _is_filling(record, unwritten))
        if same is None and any(_is_filling(record, unwritten) for record in filled.records):
            same = next(each for each in memory if filled.records[0].case in each.cases)
            if others and not written.isdisjoint(others[0].cases):
                same.findings += filled.findings
                (cause,), same = others, None
        if {symptom.effect for _, symptom in cause.findings} == {Effect.DEPENDENT_BITS}:
            same = next(iter([*causes, *memory]), None)  # what is wrong need not be wrong in the same way
        if same is None:
            causes.append(cause)
        else:
            same.findings += cause.findings
    return causes + memory


def _undefined(findings: Iterable[Finding]) -> dict[str, Undefined]:
    # The elements that were never written, or that depend on such memory, by case.
    details = ((record.case, record.detail) for record, _ in findings)
    return {case: detail for case, detail in details if isinstance(detail, Undefined)}


def _is_filling(record: Record, unwritten: Mapping[str, Undefined]) -> bool:
    # Whether an interpreter shows, in a case with undefined elements, how it fills memory.
    detail, got = unwritten.get(record.case), record.shown.actual
    if detail is None or record.tier is not Tier.INTERPRET:
        return False
    is_filled = got is not None and (math.isnan(got) if isinstance(got, float) else got in _LEAST)
    return is_filled or (detail.total == record.compared and record.wrong <= detail.count)


_LEAST = frozenset(-(2 ** (8 * size - 1)) for size in (1, 2, 4, 8))  # integers, by their bytes


def _cluster_values(findings: Sequence[Finding], run: PairingRecords) -> list[FindingCluster]:
    # The most basic level at which a signature fails explains its other failures: misplaced elements are imprecise too.
    cases: dict[str, list[Finding]] = {}
    for pair in findings:
        cases.setdefault(pair[0].case, []).append(pair)
    at: dict[Level, FindingCluster] = {level: FindingCluster(level, []) for level in VALUE_LEVELS}
    for pairs in cases.values():
        at[min((symptom.level for _, symptom in pairs), key=VALUE_LEVELS.index)].findings += pairs
    structure, precision = at[Level.STRUCTURE], at[Level.PRECISION]
    if structure.findings and precision.findings and (_is_slight(structure) or not _is_sharp(structure, run)):
        precision.findings += structure.findings
        structure.findings = []
    causes = [part for side in _split_by_extent(structure, run) for part in _split_by_condition(side, run)]
    own = [cause.kinds for cause in causes]
    for level in VALUE_LEVELS[1:]:
        unexplained: list[Finding] = []
        for pair in at[level].findings:
            known = next((c for c, kinds in zip(causes, own, strict=True) if _explains(c, kinds, pair)), None)
            (known.findings if known is not None else unexplained).append(pair)
        if unexplained:
            same = next((i for i, kinds in enumerate(own) if _shows_alike(kinds, unexplained)), None)
            if same is not None:
                causes[same].findings += unexplained
            else:
                causes.append(FindingCluster(level, unexplained))
                own.append(causes[-1].kinds)
    return causes


def merge_device_diagnostics(clusters: Sequence[FindingCluster]) -> list[FindingCluster]:
    """Merges what a device's compiler says with the same text from lowering for a target."""
    targets: dict[str, FindingCluster] = {}
    merged: list[FindingCluster] = []
    for cluster in clusters:
        record, _ = cluster.findings[0]
        if cluster.level is Level.BUILD and record.tier is not Tier.DEVICE and record.detail is not None:
            targets.setdefault(record.detail.essence, cluster)
    for cluster in clusters:
        same = targets.get(cluster.findings[0][1].cause)
        if same is not None and same is not cluster and same.signatures & cluster.signatures:
            same.findings += cluster.findings
        else:
            merged.append(cluster)
    return merged


def _merge_nested(clusters: Sequence[FindingCluster]) -> list[FindingCluster]:
    # One wrong mask causes several wrong accesses. Races and changing results are one where they meet.
    merged: list[FindingCluster] = []
    for cluster in sorted(clusters, key=lambda each: -len(each.signatures)):
        around = next((each for each in merged if _contains(each, cluster)), None)
        if around is None:
            merged.append(cluster)
        else:
            around.findings += cluster.findings
    return merged


def _contains(around: FindingCluster, cluster: FindingCluster) -> bool:
    if around.is_unordered and cluster.is_unordered:
        return bool(around.signatures & cluster.signatures)
    return cluster.signatures <= around.signatures


def _coincide(values: FindingCluster, memory: FindingCluster, run: PairingRecords) -> bool:
    """Returns whether the misuse of memory explains wrong values.

    Values that only real or simulated memory makes wrong are explained if they are wrong where memory is misused. Those
    that an interpreter shows as well must be wrong in the same signatures, of those that both kinds of backends ran.
    """
    if values.level is not Level.STRUCTURE and not memory.is_unordered:
        return False
    one, other = values.signatures, memory.signatures
    if not any(record.tier is Tier.INTERPRET for record in values.records):
        return bool(one & other) if memory.is_unordered else len(one & other) >= _COINCIDENCE * len(one)
    if values.level is not Level.STRUCTURE:
        return False
    for backends in (values.backends, memory.backends):
        ran = {record.signature for record in run.on(backends) if record.verdict.is_judgement}
        one, other = one & ran, other & ran
    return bool(one) and len(one & other) >= _COINCIDENCE * len(one | other)


def _complement(values: FindingCluster, memory: FindingCluster, run: PairingRecords) -> bool:
    """Returns whether values are wrong only where the condition of accesses holds that end a case in an interpreter.

    A wrong index map shows in some signatures as such an access, which hides the values, and in others as wrong values.
    """
    of_interpreters = {record.tier for record in (*values.records, *memory.records)} == {Tier.INTERPRET}
    if values.level is not Level.STRUCTURE or memory.is_unordered or not of_interpreters:
        return False
    mine = run.on(memory.backends)

    def condition(*clusters: FindingCluster) -> Condition:
        findings = [record for cluster in clusters for record in cluster.records]
        tried = signatures_tried(mine, findings, Level.STRUCTURE, run.most_basic)
        failing = {record.signature for record in findings}
        bad, good = ([each for name, each in tried.items() if (name in failing) is fails] for fails in (True, False))
        return signature_condition(bad, good, run.blocks)

    together = condition(memory, values)
    return together.exact and together.words == condition(memory).words


_COINCIDENCE = 0.9  # share of signatures that two clusters of one cause have in common
_COMPARED = (VerdictKind.PASS, VerdictKind.VALUES)


def _split_by_extent(cluster: FindingCluster, run: PairingRecords) -> list[FindingCluster]:
    # Some signatures fail all structural cases, and the others hardly any.
    structural = [record for record in run.records if record.group == GroupName.STRUCTURAL]
    count = Counter(record.signature for record in structural if record.verdict.kind in _COMPARED)
    bad = Counter(record.signature for record in cluster.records if record.group == GroupName.STRUCTURAL)
    whole = {s for s in cluster.signatures if count[s] and bad[s] >= 0.75 * count[s]}
    part = {s for s in cluster.signatures if count[s] and bad[s] <= 0.25 * count[s]}
    if not whole or not part or whole | part != cluster.signatures:
        return [cluster] if cluster.findings else []
    return cluster.split(lambda record: record.signature in whole)


def _split_by_condition(cluster: FindingCluster, run: PairingRecords) -> list[FindingCluster]:
    mine = run.on(cluster.backends)
    cases = {record.case for record in cluster.records}
    passing_inputs = [record.special_inputs for record in mine if record.case not in cases and record.verdict.is_green]
    if input_condition([record.special_inputs for record in cluster.records], passing_inputs).exact:
        return [cluster]
    tried = signatures_tried(mine, cluster.records, Level.INVARIANT, run.most_basic)
    names = [name for name in tried if name in cluster.signatures]
    passing = [features for name, features in tried.items() if name not in cluster.signatures]
    sides = two_conditions([tried[name] for name in names], passing, run.blocks)
    if sides is None:
        return [cluster]
    first = {names[i] for i in sides[0]}
    return cluster.split(lambda record: record.signature in first)


def split_by_experiment(
    cluster: FindingCluster, known: Mapping[tuple[str, str, str], Reproducer]
) -> list[FindingCluster]:
    """Splits a cluster by experiments with its smallest cases, which are `known`: an edit, or else a condition."""
    sides = _split_by_edit(cluster, known)
    return sides if len(sides) > 1 else _split_by_tested_condition(cluster, known)


def _split_by_tested_condition(
    cluster: FindingCluster, known: Mapping[tuple[str, str, str], Reproducer]
) -> list[FindingCluster]:
    # Findings that do not fulfil it passed in the experiment, which says nothing of invariants and proofs.
    # The first smallest case is of the whole cluster, and later ones of its parts.
    mine = {(record.pairing, record.backend, record.case) for record in cluster.records}
    first = next((reproducer for key, reproducer in known.items() if key in mine), None)
    excluded = {*first.condition.excluded} if first is not None and first.condition is not None else set()

    def fulfils(record: Record) -> bool:
        return excluded.isdisjoint((record.signature, record.case))

    is_another = any(record.group in _WITH_VALUES and not fulfils(record) for record in cluster.records)
    return cluster.split(fulfils) if is_another else [cluster]


_WITH_VALUES = (GroupName.STRUCTURAL, GroupName.NUMERIC, GroupName.SPECIAL)


def _split_by_edit(cluster: FindingCluster, known: Mapping[tuple[str, str, str], Reproducer]) -> list[FindingCluster]:
    # An edit that repairs the smallest case leaves other cases wrong. The case that the smallest one was made from is
    # on the repaired side. One that was not tried goes with the side that has its family, else its signature.
    smallest = (known.get((record.pairing, record.backend, record.case)) for record in cluster.records)
    births = ((each.origin, each.fault) for each in smallest if each and each.fault and each.fault.unexplained)
    origin, born = next(births, ("", None))
    if born is None:
        return [cluster]
    if not {*born.explained}.isdisjoint(born.unexplained):  # it repairs the use of memory, and leaves values wrong
        unwritten = _undefined(cluster.findings)
        return cluster.split(lambda record: is_memory(record) or _is_filling(record, unwritten))
    sides = []
    for ids in ((*born.explained, origin), tuple(each for each in born.unexplained if each != origin)):
        tried = [record for record in cluster.records if record.case in ids]
        sides.append((ids, {record.family for record in tried}, {record.signature for record in tried}))

    def is_explained(record: Record) -> bool:
        keys = (record.case, record.family, record.signature)
        votes = ((key in mine, key in other) for key, mine, other in zip(keys, *sides, strict=True))
        return next((mine for mine, other in votes if mine != other), True)

    return cluster.split(is_explained)


def _explains(cause: FindingCluster, kinds: Counter[Kind], pair: Finding) -> bool:
    # A NaN in the wrong place does not make other values' gradient wrong, nor a nearly right formula a NaN.
    record, symptom = pair
    if symptom.effect is Effect.OVERFLOW and cause.kind[0] is Effect.IMPRECISE:
        # What is kept in a narrow dtype is rounded, and overflows at other signatures.
        return any(record.dtype == other.dtype for other, _ in cause.findings)
    if record.signature not in cause.signatures:
        return False
    if cause.level is Level.STRUCTURE and symptom.effect in OF_SPECIAL_VALUES and _is_slight(cause):
        return False
    return symptom.effect is not Effect.WRONG_GRADIENT or any(
        effect is Effect.WRONG or effect in OF_ROUNDING for effect, _ in kinds
    )


def _shows_alike(kinds: Counter[Kind], findings: Sequence[Finding]) -> bool:
    # Imprecision is too common to count.
    common = Counter(symptom.kind for _, symptom in findings).most_common(1)[0][0]
    return kinds[common] > 0 and common[0] not in OF_ROUNDING


def _is_slight(structure: FindingCluster) -> bool:
    # A wrong formula that is so close to the right one in each case that most of them show imprecision.
    return all(
        symptom.effect in OF_ROUNDING or ((size := formula_error(record)) is not None and size <= SLIGHT)
        for record, symptom in structure.findings
    )


def _is_sharp(structure: FindingCluster, run: PairingRecords) -> bool:
    # Most structural cases of the signatures fail, which rounding does not cause.
    touched = structure.signatures
    cases = [r for r in run.records if r.signature in touched and r.group == GroupName.STRUCTURAL]
    failing = {record.case for record in structure.records if record.group == GroupName.STRUCTURAL}
    return not cases or len(failing) >= _SHARP * len(cases)
