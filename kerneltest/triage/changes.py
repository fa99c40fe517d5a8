"""Changes of one cell between two runs, case by case."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.core.group_names import GroupName
from kerneltest.core.verdicts import Verdict
from kerneltest.records.run_plan import CellKey
from kerneltest.records.schema import Record

# Kinds of changes in the order in which they are shown, with their meanings.
REGRESSIONS = {
    "newly failing": "a finding, where there was none or no such case",
    "worse finding": "a more severe finding than before",
    "newly unavailable": "the backend was served before",
    "gone": "a case that had a verdict has none",
}
MEANING = {
    **REGRESSIONS,
    "tolerance": "the pairing declares another error model, which may cause other changes",
    "milder finding": "a less severe finding than before",
    "error use": "within its bound, but much closer to it than before",
    "compile facts": "the compiler reports other numbers",
    "newly xfail": "a declared xfail covers it now",
    "newly passing": "no finding any more",
    "newly available": "the backend was not served before",
    "applicability": "the backend became applicable to the kernel, or ceased to be",
    "new": "a case that was not there before, without a finding",
}
# A smaller fraction of a bound is never reported.
NOTABLE_USE = 0.1

# Replace a verdict where there are no cases.
ABSENT = "absent"
NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one case, of one cell, or of a pairing on a backend.

    Attributes:
      kind: a key of `MEANING`.
      run: the run's name; "" if there is only one.
      cell: pairing, backend, dtype, family; the last two are "*" for a pairing on a backend, the last three for a
        pairing.
      signature, target: of the case; "*" and "" for more than one case.
      before, after: verdicts, or the values that changed, in words.
      message: of the new record, or of the old one if there is no new one.
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
    """Yields the changes of one cell, those of the whole cell first.

    Args:
      run, cell: to which the records belong.
      old, new: the cell's records; none if a run lacks the cell.
      factor: growth of a bound's fraction above which it is reported.
    """

    def change(kind: str, record: Record, before: str, after: str) -> Change:
        return Change(kind, run, cell, record.signature, record.target, before, after, record.message)

    before, after = _cases(old), _cases(new)
    whole_before, whole_after = _wholes(old), _wholes(new)
    for verdict, record in whole_after.items():
        if verdict not in whole_before:
            kind = "newly failing" if verdict.is_finding else "newly unavailable"
            yield change(kind, record, format_case_count(len(before)) if old else ABSENT, verdict)
    for verdict, record in whole_before.items():
        if verdict not in whole_after and new:
            kind = "newly passing" if verdict.is_finding else "newly available"
            yield change(kind, record, verdict, format_case_count(len(after)))
    # The end of a whole cell stands for each of its cases that was not reached.
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


def count_unchanged(old: Sequence[Record], new: Sequence[Record]) -> int:
    """Counts the cases of a cell whose verdict is the same in both runs."""
    before, after = _cases(old), _cases(new)
    return sum(before[key].verdict is after[key].verdict for key in before.keys() & after.keys())


def format_case_count(count: int) -> str:
    """Formats a number of cases: `3 cases`."""
    return f"{count} case{'s' * (count != 1)}"


def _differences(old: Record, new: Record, factor: float) -> Iterator[tuple[str, str, str]]:
    """Yields the changes of one case: kind, before, after."""
    if old.verdict is not new.verdict:
        yield _kind(old.verdict, new.verdict), old.verdict, new.verdict
    if new.verdict.is_finding:
        return  # its numbers are consequences of the finding
    if (
        old.bound_fraction is not None
        and new.bound_fraction is not None
        and new.bound_fraction > max(NOTABLE_USE, factor * old.bound_fraction)
    ):
        yield "error use", f"{old.bound_fraction:.2g} of the bound", f"{new.bound_fraction:.2g}"
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
    """Returns cases by a key that is the same in both runs.

    The id is not, since it depends on the seed. A drawn case shrinks differently when the kernel changes, so its number
    identifies it.
    """
    cases: dict[tuple[Hashable, int], Record] = {}
    seen: Counter[Hashable] = Counter()
    for record in records:
        if record.case:
            asked = case_identity(record)
            cases[asked, seen[asked]] = record
            seen[asked] += 1
    return cases


def case_identity(record: Record) -> Hashable:
    """Returns the part of a case that is the same in every run."""
    return record.cell, None if record.group == GroupName.DRAWN else (_signature(record), record.target)


def _signature(record: Record) -> tuple[frozenset[tuple[str, Hashable]], ...]:
    return tuple(frozenset[tuple[str, Hashable]](p.items()) for p in (record.dims, record.dtypes, record.statics))


def _wholes(records: Sequence[Record]) -> Mapping[Verdict, Record]:
    return {record.verdict: record for record in records if not record.case}


def _facts(record: Record) -> Mapping[str, int]:
    return {
        f"{kernel}: {name}": value for kernel, facts in record.compiler_metrics.items() for name, value in facts.items()
    }
