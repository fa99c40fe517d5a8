"""The signatures that a condition is about: those that fail, and those that would pass."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from kerneltest.core.group_names import GroupName
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
    records: Sequence[Record], failing: Collection[str], level: Level, most_basic: MostBasic
) -> dict[str, Features]:
    """Returns the features of the failing signatures and of those that pass, by signature.

    Left out are: signatures with an empty array, in which nothing can be wrong; signatures that fail at a level at
    least as basic, since that hides whether they would pass; and long signatures, which get structural cases only, if
    no structural case shows the failure.

    Args:
      records: of one pairing.
      failing: signatures that fail.
      level: at which they fail.
      most_basic: the most basic level at which each signature fails.
    """
    own = _FROM_BASIC.index(level)
    groups: dict[str, set[str]] = {}
    for record in records:
        groups.setdefault(record.signature, set()).add(record.group)
    structural = any(
        r.group == GroupName.STRUCTURAL and r.verdict.is_finding for r in records if r.signature in failing
    )
    # A proof speaks of all lengths, a signature of some: they are not compared.
    are_proofs = all(record.group == GroupName.PROOFS for record in records if record.signature in failing)
    tried: dict[str, Features] = {}
    for record in records:
        if (record.group == GroupName.PROOFS) is not are_proofs:
            continue
        fails = record.signature in failing
        hidden = 0 in record.dims.values() or most_basic.get((record.backend, record.signature), own + 1) <= own
        hidden = hidden or (not structural and groups[record.signature] == {GroupName.STRUCTURAL})
        if record.verdict.is_judgement and (fails or not hidden):
            options = {"dtype": record.dtype, **record.statics}
            tried[record.signature] = Features(record.dims, options)
    return tried
