"""Findings of one kernel by cause: what explains what, and what shows two causes."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.core.group_names import PROOFS
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Kind
from kerneltest.records.schema import Record, Smallest
from kerneltest.triage.predicates import Features, two_conditions
from kerneltest.triage.symptoms import GRADIENT, IMPRECISE, WRONG, Level, Symptom

_SHARP = 0.3  # of the plain cases of a signature: a bug in which elements are computed fails more of them than rounding

Finding = tuple[Record, Symptom]
Shown = Mapping[tuple[str, str], int]  # by backend and signature, how elementary a question is answered wrongly


@dataclass(slots=True)
class Group:
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
    def backends(self) -> frozenset[str]:
        return frozenset(record.backend for record, _ in self.findings)

    @property
    def what(self) -> str:
        """What shows most often; of memory, where that is seen, since wrong values follow from it."""
        memory = Counter(each.what for record, each in self.findings if record.verdict.kind is Kind.MEMORY)
        return (memory or self.whats).most_common(1)[0][0]


def by_cause(
    findings: Sequence[Finding], records: Sequence[Record], blocks: Mapping[str, int], shown: Shown
) -> list[Group]:
    """Wrong values and memory errors by cause, case by case on all backends that ran it."""
    wrong = [pair for pair in findings if pair[0].verdict.kind is not Kind.MEMORY]
    values = _wrong_values(wrong, records, blocks, shown)
    memory = _nested(
        grouped([pair for pair in findings if pair[0].verdict.kind is Kind.MEMORY], lambda said: said.what)
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


def _wrong_values(
    findings: Sequence[Finding], records: Sequence[Record], blocks: Mapping[str, int], shown: Shown
) -> list[Group]:
    """Wrong values by cause.

    The most elementary level at which a signature fails explains what else fails there: where elements are mixed up
    they are also imprecise, and NaNs among them are in the wrong places too.
    """
    cases: dict[str, list[Finding]] = {}
    for pair in findings:
        cases.setdefault(pair[0].case, []).append(pair)
    at: dict[Level, Group] = {level: Group(level, []) for level in _LEVELS}
    for pairs in cases.values():
        at[min((said.level for _, said in pairs), key=_LEVELS.index)].findings += pairs
    structure, precision = at[Level.STRUCTURE], at[Level.PRECISION]
    if structure.findings and precision.findings and not _sharp(structure, records):
        precision.findings += structure.findings
        structure.findings = []
    causes = [part for each in _parts(structure, records) for part in _by_condition(each, records, blocks, shown)]
    own = [cause.whats for cause in causes]
    for level in _LEVELS[1:]:
        new: list[Finding] = []
        for pair in at[level].findings:
            known = next((c for c, whats in zip(causes, own, strict=True) if _explains(c, whats, pair)), None)
            (known.findings if known is not None else new).append(pair)
        if new:
            alike = next((i for i, whats in enumerate(own) if _shows(whats, new)), None)
            if alike is not None:
                causes[alike].findings += new
            else:
                causes.append(Group(level, new))
                own.append(causes[-1].whats)
    return causes


def grouped(findings: Sequence[Finding], key: Callable[[Symptom], str]) -> list[Group]:
    groups: dict[str, Group] = {}
    for pair in findings:
        groups.setdefault(key(pair[1]), Group(pair[1].level, [])).findings.append(pair)
    return list(groups.values())


def told_on_devices(groups: Sequence[Group]) -> list[Group]:
    """Groups of findings that say the same: what a device's compiler says, with what lowering for a target says."""
    targets: dict[str, Group] = {}
    kept: list[Group] = []
    for group in groups:
        record, said = group.findings[0]
        if group.level is Level.BUILD and record.tier is not Tier.DEVICE:
            targets.setdefault(said.says.removesuffix(f" {said.line}"), group)
    for group in groups:
        same = targets.get(group.findings[0][1].says)
        if same is not None and same is not group and same.signatures & group.signatures:
            same.findings += group.findings
        else:
            kept.append(group)
    return kept


def _nested(groups: Sequence[Group]) -> list[Group]:
    """Groups of which none fails only where another one does: of one wrong mask come several wrong accesses."""
    kept: list[Group] = []
    for group in sorted(groups, key=lambda each: -len(each.signatures)):
        around = next((each for each in kept if group.signatures <= each.signatures), None)
        if around is None:
            kept.append(group)
        else:
            around.findings += group.findings
    return kept


def _coincide(values: Group, memory: Group) -> bool:
    """Whether values are wrong where, and only where, memory is misused."""
    if values.level is not Level.STRUCTURE:
        return False
    one, other = values.signatures, memory.signatures
    return len(one & other) >= _ALIKE * len(one | other)


_ALIKE = 0.9
_COMPARED = (Kind.PASS, Kind.VALUES)


def _parts(group: Group, records: Sequence[Record]) -> list[Group]:
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
        Group(group.level, [pair for pair in group.findings if pair[0].signature in side]) for side in (whole, part)
    ]


def _by_condition(group: Group, records: Sequence[Record], blocks: Mapping[str, int], shown: Shown) -> list[Group]:
    """A group; two where its signatures fulfil one of two conditions, and no single one tells them."""
    mine = [record for record in records if record.backend in group.backends]
    tried = signatures_tried(mine, group.signatures, Level.INVARIANT, shown)
    names = [name for name in tried if name in group.signatures]
    passing = [features for name, features in tried.items() if name not in group.signatures]
    sides = two_conditions([tried[name] for name in names], passing, blocks)
    if sides is None:
        return [group]
    first = {names[i] for i in sides[0]}
    return [
        Group(group.level, [pair for pair in group.findings if (pair[0].signature in first) is inside])
        for inside in (True, False)
    ]


def by_experiment(group: Group, known: Mapping[tuple[str, str, str], Smallest]) -> list[Group]:
    """A group; two where a change that makes its smallest case right leaves other cases wrong.

    Which of the two a case belongs to that was not tried follows from its family, then from its signature.
    """
    births = [
        found.birth
        for record, _ in group.findings
        if (found := known.get((record.pairing, record.backend, record.case))) is not None and found.birth is not None
    ]
    born = next((each for each in births if each.unexplained), None)
    if born is None:
        return [group]
    sides = []
    for ids in (born.explained, born.unexplained):
        tried = [record for record, _ in group.findings if record.case in ids]
        sides.append((ids, {record.family for record in tried}, {record.signature for record in tried}))
    left: list[Finding] = []
    kept: list[Finding] = []
    for pair in group.findings:
        keys = (pair[0].case, pair[0].family, pair[0].signature)
        votes = ((key in mine, key in other) for key, mine, other in zip(keys, *sides, strict=True))
        explained = next((mine for mine, other in votes if mine != other), True)
        (kept if explained else left).append(pair)
    return [Group(group.level, part) for part in (kept, left) if part]


def _explains(cause: Group, whats: Counter[str], pair: Finding) -> bool:
    """Whether a finding follows from a cause at its signature; `whats` is how the cause shows by itself.

    A kernel that gives NaN where it should not does not make the gradient of other values wrong.
    """
    record, said = pair
    if record.signature not in cause.signatures:
        return False
    return not said.what.startswith(GRADIENT) or any(what in (WRONG, IMPRECISE) for what in whats)


def _shows(whats: Counter[str], new: Sequence[Finding]) -> bool:
    """Whether a cause, as it shows by itself, shows in the same way as further findings."""
    common = Counter(each.what for _, each in new).most_common(1)[0][0]
    return whats[common] > 0 and common != IMPRECISE


def _sharp(structure: Group, records: Sequence[Record]) -> bool:
    """Whether structural cases fail as a rule where they fail at all, which rounding does not bring about."""
    touched = structure.signatures
    cases = [record for record in records if record.signature in touched and record.group == "structural"]
    failing = {record.case for record, _ in structure.findings if record.group == "structural"}
    return not cases or len(failing) >= _SHARP * len(cases)


def elementary(findings: Iterable[Finding]) -> Shown:
    """The most elementary level at which each signature fails on each backend."""
    shown: dict[tuple[str, str], int] = {}
    for record, said in findings:
        place, order = (record.backend, record.signature), _ELEMENTARY.index(said.level)
        shown[place] = min(order, shown.get(place, order))
    return shown


_ELEMENTARY = (Level.BUILD, Level.BROKEN, *_LEVELS)


def signatures_tried(
    records: Sequence[Record], failing: Collection[str], level: Level, shown: Shown
) -> dict[str, Features]:
    """Signatures by name: the failing ones, and those that pass.

    Nothing can be wrong in empty arrays. Where a question at least as elementary is answered wrongly, it is hidden
    whether a signature would pass. Long signatures are asked structural questions alone, so that they tell nothing of
    a failure that no structural case shows.
    """
    own = _ELEMENTARY.index(level)
    groups: dict[str, set[str]] = {}
    for record in records:
        groups.setdefault(record.signature, set()).add(record.group)
    shows = any(r.group == "structural" and r.verdict.is_finding for r in records if r.signature in failing)
    tried: dict[str, Features] = {}
    proved = all(record.group == PROOFS for record in records if record.signature in failing)
    for record in records:
        if (record.group == PROOFS) is not proved:
            continue  # a proof is of all lengths, and a signature of some
        fails = record.signature in failing
        hidden = 0 in record.dims.values() or shown.get((record.backend, record.signature), own + 1) <= own
        hidden = hidden or (not shows and groups[record.signature] == {"structural"})
        if record.verdict.kind is not Kind.UNAVAILABLE and (fails or not hidden):
            tried[record.signature] = {**record.dims, "dtype": record.dtype, **record.statics}
    return tried
