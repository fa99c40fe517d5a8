"""What can change between two runs, and what did in one cell, case by case."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.core.verdicts import Verdict
from kerneltest.plan.explicit import FUZZ
from kerneltest.records.schema import CellKey, Record

# What a change is called, in the order in which they are shown, and what it means.
REGRESSIONS = {
    "newly failing": "a finding, where there was none or no such case",
    "worse finding": "a more severe finding than before",
    "newly unavailable": "the backend was served before",
    "gone": "a case that had a verdict has none",
}
MEANING = {
    **REGRESSIONS,
    "tolerance": "the pairing declares another one, from which other changes may follow",
    "milder finding": "a less severe finding than before",
    "error use": "within its bound, of which much more is used up than before",
    "compile facts": "the compiler reports other numbers",
    "newly xfail": "a declared xfail covers it now",
    "newly passing": "no finding any more",
    "newly available": "the backend was not served before",
    "applicability": "the backend became one for this kernel, or ceased to be one",
    "new": "a case that was not there before, without a finding",
}
# Use of a bound below this is far from it, whatever it was before.
NOTABLE_USE = 0.1

# What stands in place of a verdict where there are no cases.
ABSENT = "absent"
NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one case, of one cell, or of a pairing on a backend.

    Attributes:
      kind: a key of `MEANING`.
      run: the run it is in; "" if there is only one.
      cell: pairing, backend, dtype, family; the last two are "*" for all of a pairing on a backend, all three for all
        of a pairing.
      signature, target: of the case; "*" and "" for more than one case.
      before, after: verdicts, or what else changed, in words.
      message: of the new record, or of the old one if there is none.
    """

    kind: str
    run: str
    cell: CellKey
    signature: str
    target: str
    before: str
    after: str
    message: str = ""

    @property
    def regression(self) -> bool:
        return self.kind in REGRESSIONS


def cell_changes(
    run: str, cell: CellKey, old: Sequence[Record], new: Sequence[Record], factor: float
) -> Iterator[Change]:
    """The changes of one cell, those of the cell as a whole first.

    Args:
      run, cell: where the records belong.
      old, new: the records of the cell; none where a run has no such cell.
      factor: report an error use that grew by more than this.
    """

    def change(kind: str, record: Record, before: str, after: str) -> Change:
        return Change(kind, run, cell, record.signature, record.target, before, after, record.message)

    before, after = _cases(old), _cases(new)
    whole_before, whole_after = _wholes(old), _wholes(new)
    for verdict, record in whole_after.items():
        if verdict not in whole_before:
            kind = "newly failing" if verdict.is_finding else "newly unavailable"
            yield change(kind, record, cases_in_words(len(before)) if old else ABSENT, verdict)
    for verdict, record in whole_before.items():
        if verdict not in whole_after and new:
            kind = "newly passing" if verdict.is_finding else "newly available"
            yield change(kind, record, verdict, cases_in_words(len(after)))
    # Where a cell ended as a whole, that stands for each case of it that was not reached.
    ended = not whole_after.keys().isdisjoint((Verdict.UNAVAILABLE, Verdict.CRASH))
    for key in dict.fromkeys([*before, *after]):
        match before.get(key), after.get(key):
            case Record() as earlier, Record() as later:
                for kind, *words in _differences(earlier, later, factor):
                    yield change(kind, later, *words)
            case None, Record() as later:
                yield change("newly failing" if later.verdict.is_finding else "new", later, ABSENT, later.verdict)
            case Record() as earlier, None if not ended:
                yield change("gone", earlier, earlier.verdict, ABSENT)


def unchanged_cases(old: Sequence[Record], new: Sequence[Record]) -> int:
    """How many cases of a cell have the verdict that they had."""
    before, after = _cases(old), _cases(new)
    return sum(before[key].verdict is after[key].verdict for key in before.keys() & after.keys())


def cases_in_words(count: int) -> str:
    return f"{count} case{'s' * (count != 1)}"


def _differences(old: Record, new: Record, factor: float) -> Iterator[tuple[str, str, str]]:
    """How one case changed: kind, before, after."""
    if old.verdict is not new.verdict:
        yield _kind(old.verdict, new.verdict), old.verdict, new.verdict
    if new.verdict.is_finding:
        return  # its numbers follow from the finding
    if old.used is not None and new.used is not None and new.used > max(NOTABLE_USE, factor * old.used):
        yield "error use", f"{old.used:.2g} of the bound", f"{new.used:.2g}"
    before, after = _facts(old), _facts(new)
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    if names:
        was, now = (", ".join(f"{name} {facts.get(name, 'none')}" for name in names) for facts in (before, after))
        yield "compile facts", was, now


def _kind(before: Verdict, after: Verdict) -> str:
    if after is Verdict.UNAVAILABLE:
        return "newly unavailable"
    if after is Verdict.XFAIL:
        return "newly xfail"
    if not after.is_finding:
        return "newly available" if before is Verdict.UNAVAILABLE else "newly passing"
    if not before.is_finding:
        return "newly failing"
    return "worse finding" if after.severity > before.severity else "milder finding"


def _cases(records: Sequence[Record]) -> Mapping[tuple[Hashable, int], Record]:
    """Cases by what is the same in both runs. Not by id, which holds the seed; and a drawn case, which shrinks to
    something else when a kernel changes, is the same by its number."""
    cases: dict[tuple[Hashable, int], Record] = {}
    seen: Counter[Hashable] = Counter()
    for record in records:
        if record.case:
            asked = question(record)
            cases[asked, seen[asked]] = record
            seen[asked] += 1
    return cases


def question(record: Record) -> Hashable:
    """What is the same of a case in every run."""
    return record.cell, None if record.group == FUZZ else (_signature(record), record.target)


def _signature(record: Record) -> tuple[frozenset[tuple[str, Hashable]], ...]:
    return tuple(frozenset[tuple[str, Hashable]](p.items()) for p in (record.dims, record.dtypes, record.statics))


def _wholes(records: Sequence[Record]) -> Mapping[Verdict, Record]:
    return {record.verdict: record for record in records if not record.case}


def _facts(record: Record) -> Mapping[str, int]:
    return {f"{kernel}: {name}": value for kernel, facts in record.facts.items() for name, value in facts.items()}
