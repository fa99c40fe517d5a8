"""Findings gathered into suspects: what is thought to be one bug each."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.verdicts import Kind
from kerneltest.records.conditions import Condition, Features, condition, held, two_conditions
from kerneltest.records.schema import Record, Smallest
from kerneltest.records.symptoms import IMPRECISE, Level, Symptom, symptom

_SHARP = 0.3  # of the plain cases of a signature: a bug in which elements are computed fails more of them than rounding

Finding = tuple[Record, Symptom]


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
    def title(self) -> str:
        """What it is, in a line."""
        return f"{self.what} where {self.where}" if self.where else self.what

    @property
    def example(self) -> Record:
        """The finding that shows it best: the smallest case, else the one of the shortest lengths."""
        if self.smallest is not None:
            return self.smallest.record
        return min(self.findings, key=lambda record: (math.prod(record.dims.values()), sum(record.dims.values())))


@dataclass(slots=True)
class _Group:
    """Findings of one backend, or of several, that are thought to have one cause."""

    level: Level
    findings: list[Finding]

    @property
    def signatures(self) -> frozenset[str]:
        return frozenset(record.signature for record, _ in self.findings)

    @property
    def whats(self) -> Counter[str]:
        return Counter(each.what for _, each in self.findings)

    @property
    def what(self) -> str:
        """What shows most often; of memory, where that is seen, since wrong values follow from it."""
        memory = Counter(each.what for record, each in self.findings if record.verdict.kind is Kind.MEMORY)
        return (memory or self.whats).most_common(1)[0][0]


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
        for suspect in _of_pairing(name, each, blocks.get(name, {}))
    )


def _with_smallest(suspect: Suspect, known: Mapping[tuple[str, str, str], Smallest]) -> Suspect:
    found = [known[key] for each in suspect.findings if (key := (each.pairing, each.backend, each.case)) in known]
    if not found:
        return suspect
    return replace(suspect, smallest=min(found, key=lambda each: (each.birth is None, each.unusual)))


def _of_pairing(pairing: str, records: Sequence[Record], blocks: Mapping[str, int]) -> list[Suspect]:
    findings = [(record, symptom(record)) for record in records if record.verdict.is_finding]
    said = [pair for pair in findings if pair[1].level in _SAID]
    values = [pair for pair in findings if pair[1].level not in _SAID]
    groups = [*_by_cause(values, records, blocks), *_grouped(said, lambda said: said.says)]
    groups.sort(key=lambda group: (_ORDER.index(group.level), -len(group.findings)))
    seen: Counter[tuple[Level, str]] = Counter()
    made = []
    for group in groups:
        what = group.what
        seen[group.level, what] += 1
        made.append(_suspect(pairing, group, what, seen[group.level, what], records, blocks))
    return made


_SAID = (Level.BUILD, Level.BROKEN)
_ORDER = (Level.STRUCTURE, Level.SPECIAL, Level.PRECISION, Level.INVARIANT, Level.BUILD, Level.BROKEN)


def _by_cause(findings: Sequence[Finding], records: Sequence[Record], blocks: Mapping[str, int]) -> list[_Group]:
    """Wrong values and memory errors by cause, case by case on all backends that ran it."""
    values = _wrong_values([pair for pair in findings if pair[0].verdict.kind is not Kind.MEMORY], records, blocks)
    memory = _nested(
        _grouped([pair for pair in findings if pair[0].verdict.kind is Kind.MEMORY], lambda said: said.what)
    )
    for group in memory:
        same = next((cause for cause in values if _coincide(cause, group)), None)
        if same is None:
            values.append(group)
        else:
            same.findings += group.findings
            same.level = group.level
    return values


_LEVELS = (Level.STRUCTURE, Level.PRECISION, Level.SPECIAL, Level.INVARIANT)


def _wrong_values(findings: Sequence[Finding], records: Sequence[Record], blocks: Mapping[str, int]) -> list[_Group]:
    """Wrong values by cause.

    The most elementary level at which a signature fails explains what else fails there: where elements are mixed up
    they are also imprecise, and NaNs among them are in the wrong places too.
    """
    cases: dict[str, list[Finding]] = {}
    for pair in findings:
        cases.setdefault(pair[0].case, []).append(pair)
    at: dict[Level, _Group] = {level: _Group(level, []) for level in _LEVELS}
    for pairs in cases.values():
        at[min((said.level for _, said in pairs), key=_LEVELS.index)].findings += pairs
    structure, precision = at[Level.STRUCTURE], at[Level.PRECISION]
    if structure.findings and precision.findings and not _sharp(structure, records):
        precision.findings += structure.findings
        structure.findings = []
    failing = frozenset(record.signature for record, _ in findings)
    causes = [part for each in _parts(structure, records) for part in _by_condition(each, failing, records, blocks)]
    own = [cause.whats for cause in causes]
    for level in _LEVELS[1:]:
        new: list[Finding] = []
        for pair in at[level].findings:
            known = next((cause for cause in causes if pair[0].signature in cause.signatures), None)
            (known.findings if known is not None else new).append(pair)
        if new:
            alike = next((i for i, whats in enumerate(own) if _shows(whats, new)), None)
            if alike is not None:
                causes[alike].findings += new
            else:
                causes.append(_Group(level, new))
                own.append(causes[-1].whats)
    return causes


def _grouped(findings: Sequence[Finding], key: Callable[[Symptom], str]) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for pair in findings:
        groups.setdefault(key(pair[1]), _Group(pair[1].level, [])).findings.append(pair)
    return list(groups.values())


def _nested(groups: Sequence[_Group]) -> list[_Group]:
    """Groups of which none fails only where another one does: of one wrong mask come several wrong accesses."""
    kept: list[_Group] = []
    for group in sorted(groups, key=lambda each: -len(each.signatures)):
        around = next((each for each in kept if group.signatures <= each.signatures), None)
        if around is None:
            kept.append(group)
        else:
            around.findings += group.findings
    return kept


def _coincide(values: _Group, memory: _Group) -> bool:
    """Whether values are wrong where, and only where, memory is misused."""
    if values.level is not Level.STRUCTURE:
        return False
    one, other = values.signatures, memory.signatures
    return len(one & other) >= _ALIKE * len(one | other)


_ALIKE = 0.9
_COMPARED = (Kind.PASS, Kind.VALUES)


def _parts(group: _Group, records: Sequence[Record]) -> list[_Group]:
    """A group, if it has findings; two where of some signatures all structural cases fail, and hardly any of others."""
    count = Counter(
        record.signature for record in records if record.group == "structural" and record.verdict.kind in _COMPARED
    )
    bad = Counter(record.signature for record, _ in group.findings if record.group == "structural")
    whole = {s for s in group.signatures if count[s] and bad[s] >= 0.75 * count[s]}
    part = {s for s in group.signatures if count[s] and bad[s] <= 0.25 * count[s]}
    if not whole or not part or whole | part != group.signatures:
        return [group] if group.findings else []
    return [
        _Group(group.level, [pair for pair in group.findings if pair[0].signature in side]) for side in (whole, part)
    ]


def _by_condition(
    group: _Group, failing: frozenset[str], records: Sequence[Record], blocks: Mapping[str, int]
) -> list[_Group]:
    """A group; two where its signatures fulfil one of two conditions, and no single one tells them."""
    tried = _tried(records)
    names = [name for name in tried if name in group.signatures]
    passing = [features for name, features in tried.items() if name not in failing]
    sides = two_conditions([tried[name] for name in names], passing, blocks)
    if sides is None:
        return [group]
    first = {names[i] for i in sides[0]}
    return [
        _Group(group.level, [pair for pair in group.findings if (pair[0].signature in first) is inside])
        for inside in (True, False)
    ]


def _shows(whats: Counter[str], new: Sequence[Finding]) -> bool:
    """Whether a cause, as it shows by itself, shows in the same way as further findings."""
    common = Counter(each.what for _, each in new).most_common(1)[0][0]
    return whats[common] > 0 and common != IMPRECISE


def _sharp(structure: _Group, records: Sequence[Record]) -> bool:
    """Whether structural cases fail as a rule where they fail at all, which rounding does not bring about."""
    touched = structure.signatures
    cases = [record for record in records if record.signature in touched and record.group == "structural"]
    failing = {record.case for record, _ in structure.findings if record.group == "structural"}
    return not cases or len(failing) >= _SHARP * len(cases)


def _suspect(
    pairing: str, group: _Group, what: str, number: int, records: Sequence[Record], blocks: Mapping[str, int]
) -> Suspect:
    findings = tuple(record for record, _ in group.findings)
    backend = Counter(record.backend for record in findings).most_common(1)[0][0]
    here = [r for r in records if r.backend == backend and r.verdict.kind is not Kind.UNAVAILABLE]
    tried = _tried(here)
    failing = {record.signature for record in findings if record.backend == backend}
    bad = {record.case for record in findings if record.backend == backend}
    cases = [record for record in here if record.signature in failing and record.case]
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
        inputs=held([r.holds for r in cases if r.case in bad], [r.holds for r in cases if r.case not in bad]),
    )


def _tried(records: Sequence[Record]) -> dict[str, Features]:
    """The signatures that were tried, by name."""
    tried: dict[str, Features] = {}
    for record in records:
        if record.verdict.kind is not Kind.UNAVAILABLE:
            tried[record.signature] = {**record.dims, "dtype": record.dtype, **record.statics}
    return tried
