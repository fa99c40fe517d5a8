"""The signatures that a condition is about: those that fail, and those that would pass."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from kerneltest.core.group_names import GroupName
from kerneltest.core.verdicts import VerdictKind
from kerneltest.records.schema import Record
from kerneltest.triage.predicates import Features
from kerneltest.triage.symptoms import Level, Symptom

Finding = tuple[Record, Symptom]
MostBasic = Mapping[tuple[str, str], int]  # the most basic level of failure (0 at best) by backend and signature
VALUE_LEVELS = (Level.STRUCTURE, Level.PRECISION, Level.SPECIAL, Level.INVARIANT)


def most_basic_failures(findings: Iterable[Finding]) -> MostBasic:
    """Returns the most basic level at which each signature fails on each backend."""
    levels: dict[tuple[str, str], int] = {}
    for record, symptom in findings:
        place, order = (record.backend, record.signature), _FROM_BASIC.index(symptom.level)
        levels[place] = min(order, levels.get(place, order))
    return levels


_FROM_BASIC = (Level.BUILD, Level.BROKEN, *VALUE_LEVELS)


def signatures_tried(
    records: Sequence[Record], findings: Sequence[Record], level: Level, most_basic: MostBasic
) -> dict[str, Features]:
    """Returns the features of the failing signatures and of those that pass, by signature.

    Left out are: signatures with an empty array, in which nothing can be wrong; signatures that fail at a level at
    least as basic, since that hides whether they would pass; and signatures that were asked too little of what shows
    the failure elsewhere.

    Args:
      records: of one pairing.
      findings: those whose signatures fail.
      level: at which they fail.
      most_basic: the most basic level at which each signature fails.
    """
    own = _FROM_BASIC.index(level)
    failing = {record.signature for record in findings}
    hiding = _chances_of_hiding(records, findings, failing)
    # A proof speaks of all lengths, a signature of some: they are not compared.
    are_proofs = all(record.group == GroupName.PROOFS for record in records if record.signature in failing)
    tried: dict[str, Features] = {}
    for record in records:
        if (record.group == GroupName.PROOFS) is not are_proofs:
            continue
        fails = record.signature in failing
        hidden = 0 in record.dims.values() or most_basic.get((record.backend, record.signature), own + 1) <= own
        hidden = hidden or hiding.get(record.signature, 1) > _MOST_HIDING
        if record.verdict.is_judgement and (fails or not hidden):
            tried[record.signature] = features(record)
    return tried


def features(record: Record) -> Features:
    """Returns the features of a record's signature."""
    return Features(record.dims, {"dtype": record.dtype, **record.statics})


_MOST_HIDING = 0.35  # chance that a signature fails and its cases do not show it, above which it is not said to pass


def _chances_of_hiding(
    records: Sequence[Record], findings: Sequence[Record], failing: Collection[str]
) -> Mapping[str, float]:
    """Returns for each signature the chance that its cases would pass although it has the bug.

    A question is a family with the argument that it disturbs. It shows the bug as often as among the failing
    signatures. A program that does not build shows so in every case.
    """
    questions = {(record.signature, _question(record)) for record in findings}
    shown = Counter(question for _, question in questions)
    asked = Counter(
        question
        for signature, question in {(r.signature, _question(r)) for r in records if r.verdict.is_judgement}
        if signature in failing
    )
    certain = all(record.verdict.kind is VerdictKind.BUILD for record in findings)
    missed = {question: 1 - count / (asked[question] + (not certain)) for question, count in shown.items()}
    chances: dict[str, float] = {}
    for record in records:
        if record.verdict.is_judgement:
            chances[record.signature] = chances.get(record.signature, 1.0) * missed.get(_question(record), 1.0)
    return chances


def _question(record: Record) -> tuple[str, str, str]:
    return record.group, record.family, record.target
