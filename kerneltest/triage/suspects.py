"""Suspects of a run: clusters of findings with their conditions and smallest cases, merged where they do not differ."""

import functools
import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.details import SLIGHT, MemoryFault, Mismatch, first_line, without_numbers
from kerneltest.core.ids import PairingId
from kerneltest.core.targets import Tier
from kerneltest.records.evidence import EVERY_ELEMENT, OF_MEMORY, OF_NUMBERS, RelationKind, ValueRelation
from kerneltest.records.runs import Overlay, RunRecords
from kerneltest.records.schema import ConfirmedCondition, FaultLocation, Record, Reproducer
from kerneltest.triage.attribution import dropped_nan
from kerneltest.triage.clustering import (
    FindingCluster,
    cluster_by,
    cluster_by_cause,
    is_memory,
    merge_device_diagnostics,
    split_by_experiment,
)
from kerneltest.triage.conditions import (
    WITH_EXCEPTIONS,
    Condition,
    PairingRecords,
    features,
    input_condition,
    join_clauses,
    most_basic_failures,
    signature_condition,
    signatures_tried,
)
from kerneltest.triage.patterns import common_pattern
from kerneltest.triage.symptoms import (
    OF_ROUNDING,
    OF_SPECIAL_VALUES,
    OVERFLOWS,
    Effect,
    Level,
    cause_of,
    formula_error,
    has_right_formula,
    is_slight,
    symptom,
)

# One suspect: findings of a kernel that are thought to come from one bug, with a title and a diagnosis.

BEFORE_VALUES = (Level.BUILD, Level.BROKEN)
"""Levels of failures that end a case before values are compared."""

_REPAIRED = {Effect.WRONG, Effect.WRONG_GRADIENT, Effect.IMPRECISE} | OF_SPECIAL_VALUES  # that do not say what happened
_NEARLY_ALL_ERRORS = 0.9  # share of findings that say how far a formula is off; the others have values near zero


@dataclass(frozen=True, slots=True, repr=False)
class Suspect:
    """Findings that are thought to come from one bug of one kernel."""

    id: str  # eight hexadecimal digits, the same from run to run as long as it shows in the same way
    pairing: str  # the kernel's pairing
    level: Level  # the kind of question that it answers wrongly
    effect: Effect  # its symptom
    subject: str  # the argument, the memory or the failure that the effect is about; "" for the output
    lines: tuple[str, ...]  # FILE:LINE of the user's source that its failures point at, the most frequent first
    findings: tuple[Record, ...]  # in the order of the records
    tried: Mapping[str, int]  # cases by backend, without those that could not be run
    signatures: Condition  # the condition on signatures, on the backend where it shows most
    inputs: Condition  # the condition on inputs there, among the cases of these signatures
    # whether nearly all cases show it on every backend, at least two, as with a wrong oracle, and no special value
    # among the inputs explains it
    everywhere: bool = False
    reproducer: Reproducer | None = None  # the smallest case that was found; None if none was looked for

    def __repr__(self) -> str:
        return f"<Suspect {self.id}: {self.title}; {len(self.findings)} findings>"

    @property
    def _smallest(self) -> Record | None:
        return self.reproducer.record if self.reproducer is not None else None

    @property
    def backends(self) -> Mapping[str, int]:
        """Findings by backend, most first."""
        return dict(Counter(record.backend for record in self.findings).most_common())

    @property
    def tested(self) -> ConfirmedCondition | None:
        """The condition that experiments confirmed; None if there is none, or if a finding does not fulfil it."""
        return _tested(self.reproducer, self.findings) if self.reproducer is not None else None

    @property
    def clauses(self) -> tuple[str, str]:
        """The conditions on inputs and on signatures, as experiments confirmed them, or else as the plan shows them."""
        inputs, signatures = (self.tested.inputs, self.tested.words) if self.tested is not None else (None, None)
        if self.effect is Effect.WRONG and self._slight_error():
            # Some cases do not show it, as their bounds are wide: a condition with exceptions is about these.
            exact = self.signatures.words if self.signatures.exact else ""
            stated = inputs or "", exact if signatures is None else signatures
            one, other = ("" if words.endswith(WITH_EXCEPTIONS) else words for words in stated)
            return one, other
        if inputs is None or (self.inputs.exact and inputs.endswith(WITH_EXCEPTIONS)):
            inputs = self.inputs.words
        if signatures is None or (self.signatures.exact and signatures.endswith(WITH_EXCEPTIONS)):
            signatures = self.signatures.words
        return inputs, signatures

    @property
    def condition(self) -> str:
        """The condition under which it shows, in words, or ""."""
        return join_clauses(self.clauses)

    @property
    def fault(self) -> FaultLocation | None:
        """The location of the fault; None if none was found, or if the edit there leaves some of its findings wrong."""
        found = self.reproducer.fault if self.reproducer is not None else None
        left = {*found.unexplained}.difference(found.explained) if found is not None else set()
        return None if any(record.case in left for record in self.findings) else found

    @property
    def pattern(self) -> str:
        """The pattern of wrong elements in words, if every finding and the smallest case have the same one; or ""."""
        return common_pattern(self.findings, self._smallest)

    @property
    def relation(self) -> ValueRelation | None:
        """The relation of its wrong values to the expected ones; None if none is confirmed."""
        confirmed = self.reproducer.relation if self.reproducer is not None else None
        return confirmed.relation if confirmed is not None else None

    @property
    def diagnosis(self) -> str:
        """The likely mistake that explains nearly every finding, or that an experiment showed; or ""."""
        smallest = self._smallest
        by_rule = smallest.detail.remarks if smallest is not None and isinstance(smallest.detail, Mismatch) else ""
        if smallest is not None and smallest.shown.diagnosis and smallest.shown.diagnosis not in by_rule:
            return smallest.shown.diagnosis  # an experiment showed it
        judged = [record.shown.diagnosis for record in self.findings if record.shown.actual is not None]
        common = Counter(without_numbers(words) for words in judged).most_common(1)
        if not common or not common[0][0] or common[0][1] < _EXPLAINED * len(judged):
            return ""
        essence, count = common[0]
        own = self.example.shown.diagnosis
        words = own if without_numbers(own) == essence else next(w for w in judged if without_numbers(w) == essence)
        return words if count == len(judged) else f"{words} (explains {count:,} of {len(judged):,} findings)"

    @property
    def headline(self) -> str:
        """The symptom in words and what an experiment found to cause it, without the condition and the edit."""
        relation, cause = self.relation, self._cause
        if cause.endswith(OVERFLOWS):  # it explains any numbers, and is no rounding
            return f"{Effect.WRONG}{cause}"
        if relation is None or self.effect is Effect.OTHER or (cause and relation.kind is RelationKind.FACTORS):
            effects = {symptom(record).effect for record in self.findings if self.effect in OF_SPECIAL_VALUES}
            also = (f" or {each}" for each in (Effect.WRONG, Effect.IMPRECISE, Effect.UNSTABLE) if each in effects)
            return f"{self._symptom()}{next(also, '')}{cause}"
        if relation.kind in OF_MEMORY:
            return relation.text()
        subject = f" by {self.subject}" if self.effect is Effect.WRONG_GRADIENT else ""
        return f"{self.effect}{subject}: {relation.text()}"

    def _symptom(self) -> str:
        match self.effect:
            case Effect.OTHER:
                return f"{self.example.verdict}: {first_line(self.example.message)}"
            case Effect.WRONG if slight := self._slight_error():
                return f"a formula that is slightly off ({slight} of the largest value)"
            case Effect.WRONG if self.everywhere and not self._cause:
                return f"{self.effect}: the oracle and every backend differ"
            case Effect.IMPRECISE if words := self._rounded_constants():
                return f"{self.effect}: {words}"
            case Effect.IMPRECISE if not any(map(has_right_formula, filter(None, (*self.findings, self._smallest)))):
                return f"{self.effect}, or another formula"
            case Effect.WRONG_GRADIENT:
                return f"{self.effect} by {self.subject}"
            case Effect.DEPENDENT_BITS:
                return f"{self.effect} {self.subject}"
            case Effect.OUT_OF_BOUNDS if dtype := self._overflowing_dtype():
                return f"{dtype} offset overflows: {self.subject}"
            case Effect.NOT_LOWERED if self.subject:
                return f"{self.subject} {self.effect}"
            case Effect.TOO_LARGE if self.subject:
                return f"needs more {self.subject} than the target has"
            case Effect.RACE if self.subject:
                return f"{self.effect} for {self.subject}"
            case _:
                return f"{self.effect}: {self.subject}" if self.subject else str(self.effect)

    def _rounded_constants(self) -> str:
        # The constants that several findings name (one may by chance), if all with a known cause name some; or "".
        causes = [cause.constants for record in self.findings if (cause := cause_of(record.detail)) is not None]
        named = Counter(words for constants in causes for words in constants)
        often = [words for words, count in named.most_common() if count > 1] or [*named]
        return " and ".join(often) if all(causes) else ""

    def _overflowing_dtype(self) -> str:
        # The dtype of the offsets with its article, if all findings are of one that overflows; or "".
        details = [record.detail for record in self.findings if is_memory(record)]
        found = {each.overflow.bits if isinstance(each, MemoryFault) and each.overflow else 0 for each in details}
        bits = max(found) if len(found) == 1 else 0
        return f"an int{bits + 1}" if bits % 2 else f"a uint{bits}" if bits else ""

    @property
    def _shown_fault(self) -> FaultLocation | None:
        # The location of the fault, if the smallest case shows a symptom of the findings, which may have several.
        shown = {symptom(record).kind for record in self.findings}
        return self.fault if self._smallest is not None and symptom(self._smallest).kind in shown else None

    @property
    def _cause(self) -> str:
        fault, smallest = self._shown_fault, self._smallest
        if fault is None or smallest is None or not fault.cause:
            return ""
        several = len({record.dtype for record in self.findings}) > 1  # what fails in each is named by none
        dtype = rf"\b{re.escape(smallest.dtype)}\b"
        return f" from {re.sub(dtype, 'the dtype', fault.cause) if several else fault.cause}"

    @property
    def _edit(self) -> str:
        # What repairs a symptom that does not say what happened, in words that follow the condition.
        is_explained = self.relation is not None and self.relation.kind not in OF_NUMBERS
        fault = self._shown_fault if self.effect in _REPAIRED and not is_explained else None
        return f": {fault.words}" if fault is not None and fault.confirmed and not fault.cause else ""

    def _slight_error(self) -> str:
        # An integer is never slightly off: a position or a code beside the right one is another. Neither is an element
        # that is small beside the largest one and off by all of itself.
        if isinstance(self.example.shown.actual, int):
            return ""
        known = [record for record in self.findings if symptom(record).effect not in OF_ROUNDING]
        errors = sorted(error for record in known if (error := formula_error(record)) is not None)
        pairs = ((record.shown.actual, record.shown.expected) for record in known)
        slight = sum(is_slight(float(a), float(b)) for a, b in pairs if a is not None and b is not None)
        if not errors or min(len(errors), slight) < _NEARLY_ALL_ERRORS * len(known):
            return ""
        if errors[-1] <= SLIGHT:
            return f"by up to {errors[-1]:.2g}"
        most = errors[math.ceil(_NEARLY_ALL_ERRORS * len(errors)) - 1]
        return f"mostly by less than {most:.2g}" if most <= SLIGHT else ""

    @property
    def known_bug(self) -> str:
        """The bug of JAX or of a compiler that explains the findings on lowered code, with a link; or ""."""
        shown = [record for record in self.findings if record.tier is not Tier.INTERPRET]
        bugs = {dropped_nan(record) for record in shown} if self.effect is Effect.NUMBER_FOR_NAN else set()
        return min(bugs, default="")

    @property
    def doubts_oracle(self) -> bool:
        """True if nothing in the kernel explains why the oracle differs everywhere."""
        is_explained = self.diagnosis or self.relation or self.fault is not None or self._slight_error()
        return self.everywhere and self.effect is Effect.WRONG and not is_explained

    @property
    def title(self) -> str:
        """The suspect in one line."""
        pattern = self.pattern
        if pattern == EVERY_ELEMENT and (self.everywhere or is_memory(self.example)):
            pattern = ""  # it says no more
        what = f"{self.headline}, {pattern}," if pattern else self.headline
        return (f"{what} where {self.condition}" if self.condition else what.rstrip(",")) + self._edit

    @property
    def symptom_and_condition(self) -> str:
        """The title without where and what the wrong values are, by which one bug would seem to be two."""
        return f"{self._symptom()} where {self.condition}"

    @property
    def example(self) -> Record:
        """The finding that shows it best: the smallest case, or the finding with the shortest lengths."""
        return self._smallest or min(
            self.findings, key=lambda r: (not r.dims, math.prod(r.dims.values()), sum(r.dims.values()))
        )


def _tested(reproducer: Reproducer, findings: Iterable[Record]) -> ConfirmedCondition | None:
    tested = reproducer.condition
    excluded = set(tested.excluded) if tested is not None else set()
    return None if any({record.signature, record.case} & excluded for record in findings) else tested


_EXPLAINED = 0.8  # share of the findings that a diagnosis must explain; fewer do by chance


def is_same_bug(
    entitled: tuple[Suspect, str], other_entitled: tuple[Suspect, str], interpreted: Collection[str]
) -> bool:
    """Returns whether two suspects of one tier have the same symptom and condition, smallest case or line at fault.

    They are two bugs if an edit repairs one of them and leaves the other wrong, and if a second edit repairs the other
    or their titles differ. Edits fit by chance too often if both are imprecise, and show nothing about one smallest
    case.

    What interpret mode shows is a bug of the kernel; what it ran and does not show may be another one of the lowering.
    Each suspect comes with its symptom and condition, which take time to find.
    """
    (one, title), (other, its_title) = entitled, other_entitled
    if one.level in BEFORE_VALUES or other.level in BEFORE_VALUES:
        return False
    if title == its_title and (one.level is Level.PRECISION or _have_same_case(one, other)):
        return True
    for fixed, left in ((one, other), (other, one)):
        if fixed.fault is not None and any(record.case in fixed.fault.unexplained for record in left.findings):
            return title == its_title and left.reproducer is not None and left.fault is None
    # Wrong values follow from a wrong access, which an interpreter need not show.
    if title == its_title or (_have_same_case(one, other) and is_memory(one.example) is not is_memory(other.example)):
        return True
    hidden = [each for each in (one, other) if not any(record.tier is Tier.INTERPRET for record in each.findings)]
    if len(hidden) == 1 and any(record.case in interpreted for record in hidden[0].findings):
        return False
    if one.fault is not None and other.fault is not None and one.fault.place == other.fault.place:
        return True
    return _have_same_case(one, other) and one.example.backend == other.example.backend


def _have_same_case(one: Suspect, other: Suspect) -> bool:
    if one.reproducer is None or other.reproducer is None:
        return False
    mine, its = ((each.example.shown.arguments, each.example.signature) for each in (one, other))
    return bool(mine[0]) and mine == its


def find_suspects(
    records: Iterable[Record], blocks: Mapping[str, Mapping[str, int]], smallest: Iterable[Reproducer] = ()
) -> tuple[Suspect, ...]:
    """Gathers findings into suspects, pairing by pairing, the most telling first; block lengths are in elements."""
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
    smallest = [reproducer for run in merged.runs for reproducer in run.reproducers]
    in_order = sorted(merged.rows, key=lambda row: row.run)
    return find_suspects((row.record for row in in_order), blocks, smallest)


def _of_pairing(
    pairing: str, records: Sequence[Record], blocks: Mapping[str, int], known: Mapping[tuple[str, str, str], Reproducer]
) -> list[Suspect]:
    findings = [(record, symptom(record)) for record in records if record.verdict.is_finding]
    run = PairingRecords(records, blocks, most_basic_failures(findings))
    exceptions = [pair for pair in findings if pair[1].level in BEFORE_VALUES]
    values = [pair for pair in findings if pair[1].level not in BEFORE_VALUES]
    causes = cluster_by_cause(values, run)
    clusters = [
        *(part for cluster in causes for part in split_by_experiment(cluster, known)),
        *merge_device_diagnostics(cluster_by(exceptions, lambda symptom: symptom.cause)),
    ]
    make = functools.partial(_suspect, pairing, run=run, known=known)
    interpreted = {r.case for r in records if r.tier is Tier.INTERPRET and r.verdict.is_judgement}
    suspects = _merge_same(clusters, make, interpreted)
    suspects.sort(key=lambda suspect: (_ORDER.index(suspect.level), -len(suspect.findings)))
    # Names make ids, not the words of titles.
    name = PairingId.parse(pairing).own_name
    seen: Counter[str] = Counter()
    found = []
    for suspect in suspects:
        kind = f"{name}|{suspect.level}|{suspect.effect.name}|{suspect.subject}"
        seen[kind] += 1
        digest = hashlib.sha256(f"{kind}|{seen[kind]}".encode("utf-8", "backslashreplace")).hexdigest()
        found.append(replace(suspect, id=digest[:8]))
    return found


def _merge_same(
    clusters: Sequence[FindingCluster], make: Callable[[FindingCluster], Suspect], interpreted: Collection[str]
) -> list[Suspect]:
    # Until a reader can tell all suspects apart.
    apart: list[tuple[FindingCluster, Suspect, str]] = []
    todo = list(reversed(clusters))
    while todo:
        cluster = todo.pop()
        suspect = make(cluster)
        title = suspect.symptom_and_condition
        same = next((each for each in apart if is_same_bug((suspect, title), each[1:], interpreted)), None)
        if same is None:
            apart.append((cluster, suspect, title))
        else:
            apart = [each for each in apart if each is not same]
            level = min(cluster.level, same[0].level, key=_ORDER.index)
            todo.append(FindingCluster(level, same[0].findings + cluster.findings))
    return [suspect for _, suspect, _ in apart]


_ORDER = (Level.STRUCTURE, Level.SPECIAL, Level.PRECISION, Level.INVARIANT, Level.BUILD, Level.BROKEN)


def _suspect(
    pairing: str, cluster: FindingCluster, run: PairingRecords, known: Mapping[tuple[str, str, str], Reproducer]
) -> Suspect:
    records, findings = run.records, tuple(cluster.records)
    backend = Counter(record.backend for record in findings).most_common(1)[0][0]
    here = [record for record in run.on([backend]) if record.verdict.is_judgement]
    mine = [record for record in findings if record.backend == backend]
    failing, bad = {record.signature for record in mine}, {record.case for record in mine}
    reproduced = [known[key] for r in findings if (key := (r.pairing, r.backend, r.case)) in known]
    reproducer = min(
        reproduced,
        key=lambda found: (found.fault is None, _tested(found, findings) is None, found.nontrivial),
        default=None,
    )
    covered = [*findings, *([reproducer.record] if reproducer is not None else [])]
    tried = signatures_tried(here, mine, cluster.level, run.most_basic)
    cases = Counter(record.backend for record in records if record.verdict.is_judgement)
    failing_here = [r for r in here if r.case in bad]
    good = [record for record in here if record.signature in failing and record.verdict.is_green]
    effect, subject = cluster.kind
    inputs = input_condition(
        [r.special_inputs for r in failing_here],
        [r.special_inputs for r in good],
        [r.special_inputs for r in covered if r.special_inputs],
    )
    return Suspect(
        id="",
        pairing=pairing,
        level=cluster.level,
        effect=effect,
        subject=subject,
        lines=tuple(line for line, _ in Counter(s.place for _, s in cluster.findings if s.place).most_common()),
        findings=findings,
        tried=dict(cases),
        signatures=signature_condition(
            [each for name, each in tried.items() if name in failing],
            [each for name, each in tried.items() if name not in failing],
            run.blocks,
            [features(record) for record in covered],
            [features(each) for each in {r.signature: r for r in here if r.signature not in tried}.values()],
        ),
        inputs=inputs,
        everywhere=not inputs.words and _is_everywhere(findings, records, cases),
        reproducer=reproducer,
    )


_NEARLY_ALL, _ENOUGH = 0.9, 8  # share of all cases that fail, and number of them


# Whether nearly all cases differ on each backend that compares values, and it has company.
def _is_everywhere(findings: Sequence[Record], records: Sequence[Record], tried: Mapping[str, int]) -> bool:
    # A kernel with the oracle's formula leaves no doubt of the oracle.
    known = [right for record in findings if (right := has_right_formula(record)) is not None]
    compared = {record.backend for record in records if record.compared or record.wrong}
    if len(compared) < 2 or (known and all(known)):
        return False
    bad = Counter(record.backend for record in findings)
    return all(tried[name] >= _ENOUGH and bad[name] >= _NEARLY_ALL * tried[name] for name in compared)
