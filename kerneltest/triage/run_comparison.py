"""Two runs, or two sets of runs, compared by suspects and case by case: what became worse, what became better."""

import tomllib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import starmap
from pathlib import Path

from kerneltest.core.failures import UnusableInputError
from kerneltest.core.ids import ANY
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.records.run_plan import CellKey, plan_differences
from kerneltest.records.runs import Overlay, RunRecords, overlay_runs
from kerneltest.records.schema import Record
from kerneltest.triage.suspects import Suspect, suspects_in_overlay

# Changes of one cell between two runs, case by case.

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
    "not run": "the run leaves the backend out",
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
    """The change of one case, of one cell, or of a pairing on a backend."""

    kind: str  # a key of `MEANING`
    run: str  # the run's name; "" if there is only one
    # pairing, backend, dtype, family; the last two are "*" for a pairing on a backend, the last three for a pairing
    cell: CellKey
    # of the case; "*" and "" for more than one case
    signature: str
    target: str
    # verdicts, or the values that changed, in words
    before: str
    after: str
    message: str = ""  # of the new record, or of the old one if there is no new one

    @property
    def regression(self) -> bool:
        return self.kind in REGRESSIONS


def _cell_changes(
    run: str, cell: CellKey, old: Sequence[Record], new: Sequence[Record], factor: float
) -> Iterator[Change]:
    # Those of the whole cell first; `factor` is the growth of error / bound to tell.

    def change(kind: str, record: Record, before: str, after: str) -> Change:
        return Change(kind, run, cell, record.signature, record.target, before, after, record.message)

    before, after = _cases(old), _cases(new)
    whole_before, whole_after = _wholes(old), _wholes(new)
    for verdict, record in whole_after.items():
        if verdict not in whole_before:
            kind = "newly failing" if verdict.is_finding else "newly unavailable"
            yield change(kind, record, _format_count(len(before)) if old else ABSENT, verdict)
    for verdict, record in whole_before.items():
        if verdict not in whole_after and new:
            kind = "newly passing" if verdict.is_finding else "newly available"
            yield change(kind, record, verdict, _format_count(len(after)))
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


def _count_unchanged(old: Sequence[Record], new: Sequence[Record]) -> int:
    before, after = _cases(old), _cases(new)
    return sum(before[key].verdict is after[key].verdict for key in before.keys() & after.keys())


def _format_count(count: int) -> str:
    return f"{count} case{'s' * (count != 1)}"


def _differences(old: Record, new: Record, factor: float) -> Iterator[tuple[str, str, str]]:
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
    # By a key that is the same in both runs: ids depend on the seed. Drawn cases, which shrink otherwise, are numbered.
    cases: dict[tuple[Hashable, int], Record] = {}
    seen: Counter[Hashable] = Counter()
    for record in records:
        if record.case:
            identity = _identity(record)
            cases[identity, seen[identity]] = record
            seen[identity] += 1
    return cases


def _identity(record: Record) -> Hashable:
    # The part of a case that is the same in every run.
    parts: tuple[Mapping[str, Hashable], ...] = (record.dims, record.dtypes, record.statics)
    signature = tuple(frozenset(part.items()) for part in parts)
    return record.cell, None if record.group == GroupName.DRAWN else (signature, record.target)


def _wholes(records: Sequence[Record]) -> Mapping[Verdict, Record]:
    return {record.verdict: record for record in records if not record.case}


def _facts(record: Record) -> Mapping[str, int]:
    return {
        f"{kernel}: {name}": value for kernel, facts in record.compiler_metrics.items() for name, value in facts.items()
    }


# Changes of suspects between two sets of runs: new, gone, still there.


class SuspectFate(StrEnum):
    """The fate of a suspect, in the order of reports."""

    NEW = "new"
    GONE = "gone"
    NOT_RUN = "not run again"
    STILL_THERE = "still there"


@dataclass(frozen=True, slots=True)
class SuspectChange:
    """A suspect of two sets of runs."""

    fate: SuspectFate
    suspect: Suspect  # as the newer runs show it, or as the older ones do if the newer ones do not
    since: str = ""  # the day and the commit of the oldest run that shows a suspect that is still there; else ""

    @property
    def regression(self) -> bool:
        return self.fate is SuspectFate.NEW


def _suspect_changes(old: Overlay, new: Overlay) -> tuple[SuspectChange, ...]:
    # If most of its cases failed before, a suspect was there before, whatever its title. Ids decide only if cases do
    # not: an id counts suspects with the same symptom, so it can shift.
    run_of = {id(row.record): row.run for row in old.rows}

    def first_seen(suspect: Suspect) -> str:
        plans = (old.runs[run_of[id(record)]].plan for record in suspect.findings if id(record) in run_of)
        started, commit = min(((plan.started, plan.project.commit) for plan in plans if plan.started), default=("", ""))
        return " at ".join(filter(None, (started[:10], commit)))

    before, after = suspects_in_overlay(old), suspects_in_overlay(new)
    asked, asks = ([frozenset(map(_identity, each.findings)) for each in side] for side in (before, after))
    common = _common(asked, asks)
    earlier: dict[int, int] = {}
    failed = frozenset().union(*asked)
    for (i, j), _ in common.most_common():
        if len(asks[j] & failed) > _SAME * len(asks[j]):
            earlier.setdefault(j, i)
    taken = set(earlier.values())
    named = {(each.pairing, each.id): i for i, each in enumerate(before) if i not in taken}
    for j, suspect in enumerate(after):
        place = suspect.pairing, suspect.id
        if j not in earlier and place in named:
            earlier[j] = named[place]
    known = {*earlier.values(), *(i for (i, _), count in common.items() if count > _SAME * len(asked[i]))}
    changes = [
        SuspectChange(SuspectFate.STILL_THERE, suspect, first_seen(before[earlier[j]]))
        if j in earlier
        else SuspectChange(SuspectFate.NEW, suspect)
        for j, suspect in enumerate(after)
    ]
    gone = [i for i in range(len(before)) if i not in known]
    ran = (row.record for row in new.rows if row.record.case and row.record.verdict is not Verdict.UNAVAILABLE)
    tried = frozenset().union(*(asked[i] for i in gone)).intersection(map(_identity, ran))
    for i in gone:
        changes.append(
            SuspectChange(SuspectFate.NOT_RUN if tried.isdisjoint(asked[i]) else SuspectFate.GONE, before[i])
        )
    return tuple(sorted(changes, key=lambda change: [*SuspectFate].index(change.fate)))


_SAME = 0.5  # share of a suspect's cases that must fail in the other runs for it to be there too


def _common(asked: Sequence[frozenset[Hashable]], asks: Sequence[frozenset[Hashable]]) -> Counter[tuple[int, int]]:
    holders: dict[Hashable, list[int]] = {}
    for i, questions in enumerate(asked):
        for question in questions:
            holders.setdefault(question, []).append(i)
    return Counter(
        (i, j) for j, questions in enumerate(asks) for question in questions for i in holders.get(question, ())
    )


FACTOR = 2.0

_Pair = tuple[str, str]  # a pairing and a backend


class DiffError(UnusableInputError):
    """Runs that cannot be compared; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """All that changed between an older and a newer set of runs."""

    suspects: tuple[SuspectChange, ...]  # the new ones first
    changes: tuple[Change, ...]  # in the order of `MEANING`, then of the records
    problems: tuple[str, ...]  # why the newer runs are incomplete; each is a regression
    unlike: tuple[str, ...]  # how the environments differ
    unchanged: int  # cases in both whose verdict is the same

    @property
    def regressed(self) -> bool:
        regressions = [change.regression for change in self.changes] + [each.regression for each in self.suspects]
        return bool(self.problems) or any(regressions)


def compare_runs(
    old: Sequence[RunRecords], new: Sequence[RunRecords], *, allow_unlike: bool = False, factor: float = FACTOR
) -> RunComparison:
    """Compares runs of the same name with each other; if there is one on either side, these two.

    DiffError: their environments differ, unless that is allowed. An error use counts if it grew by more than `factor`.
    """
    if len(old) == len(new) == 1:
        old, new = [replace(old[0], name="")], [replace(new[0], name="")]
    before, after = {run.name: run for run in old}, {run.name: run for run in new}
    unlike = tuple(
        f"{name}: {line}" if name else line
        for name in before.keys() & after.keys()
        for line in starmap("{}: {} before, {} now".format, plan_differences(before[name].plan, after[name].plan))
    )
    if unlike and not allow_unlike:
        raise DiffError(
            "the runs differ in settings or environment, which may itself explain a change (--allow-unlike compares "
            "them nevertheless):\n" + "\n".join(f"  {line}" for line in sorted(unlike))
        )
    changes: list[Change] = []
    unchanged = 0
    for name in dict.fromkeys([*before, *after]):
        older, newer = _Side(before.get(name)), _Side(after.get(name))
        changes += _tolerance_changes(name, before.get(name), after.get(name))
        for pair in dict.fromkeys([*older.pairs, *newer.pairs]):
            changes += _pair_changes(name, pair, older, newer, factor)
            unchanged += sum(
                _count_unchanged(cases, newer.cells(pair).get(cell, ())) for cell, cases in older.cells(pair).items()
            )
    order = list(MEANING)
    changes.sort(key=lambda change: order.index(change.kind))
    problems = tuple(f"{run.name}: {line}" if run.name else line for run in new for line in _problems(run))
    suspects = _suspect_changes(overlay_runs(old), overlay_runs(new))
    return RunComparison(suspects, tuple(changes), problems, tuple(sorted(unlike)), unchanged)


class _Side:
    # `unserved`: why a pairing has no cases on a backend, as `Verdict.UNAVAILABLE` or `NOT_APPLICABLE` and the reason.

    def __init__(self, run: RunRecords | None) -> None:
        self._cells: dict[_Pair, dict[CellKey, list[Record]]] = {}
        self.unserved: dict[_Pair, tuple[str, str]] = {}
        for record in run.records if run else ():
            pair = (record.pairing, record.backend)
            if record.family == ANY and record.verdict is Verdict.UNAVAILABLE:
                self.unserved[pair] = (record.verdict, record.message)
            else:
                self._cells.setdefault(pair, {}).setdefault(record.cell, []).append(record)
        for each in run.plan.not_applicable if run else ():
            self.unserved[each.pairing, each.backend] = (NOT_APPLICABLE, each.reason)
        self.pairs = tuple(dict.fromkeys([*self._cells, *self.unserved]))
        planned = [*self.pairs, *((item.pairing, item.backend) for item in (run.plan.items if run else ()))]
        self.pairings, self.backends = {pairing for pairing, _ in planned}, {backend for _, backend in planned}

    def cells(self, pair: _Pair) -> Mapping[CellKey, Sequence[Record]]:
        return self._cells.get(pair, {})

    def state(self, pair: _Pair) -> str:
        if pair in self.unserved:
            return self.unserved[pair][0]
        if pair not in self._cells:
            return ABSENT
        return _format_count(sum(bool(record.case) for cell in self._cells[pair].values() for record in cell))


def _pair_changes(run: str, pair: _Pair, old: _Side, new: _Side, factor: float) -> Iterator[Change]:
    cell, before, after = CellKey(*pair, ANY, ANY), old.state(pair), new.state(pair)
    if pair not in new.pairs and old.cells(pair):
        kind = "not run" if pair[0] in new.pairings and pair[1] not in new.backends else "gone"
        yield Change(kind, run, cell, "*", "", before, ABSENT)
        return
    if pair in new.unserved:
        reason = new.unserved[pair][1]
        if old.cells(pair):
            kind = "newly unavailable" if after == Verdict.UNAVAILABLE else "applicability"
            yield Change(kind, run, cell, "*", "", before, after, reason)
        elif before == ABSENT and after == Verdict.UNAVAILABLE:
            yield Change("new", run, cell, "*", "", before, after, reason)
        return
    if pair in old.unserved and new.cells(pair):
        kind = "newly available" if before == Verdict.UNAVAILABLE else "applicability"
        yield Change(kind, run, cell, "*", "", before, after, old.unserved[pair][1])
    for key in dict.fromkeys([*old.cells(pair), *new.cells(pair)]):
        for change in _cell_changes(run, key, old.cells(pair).get(key, ()), new.cells(pair).get(key, ()), factor):
            if pair not in old.unserved:
                yield change
            elif change.kind != "new":  # the change of the whole stands for these
                yield replace(change, before=before)


def _tolerance_changes(name: str, old: RunRecords | None, new: RunRecords | None) -> Iterator[Change]:
    before, after = (run.plan.pairings if run else {} for run in (old, new))
    for pairing in sorted(before.keys() & after.keys()):
        was, now = (side[pairing].declaration.get("tolerance", "") for side in (before, after))
        if was and now and was != now:
            yield Change("tolerance", name, CellKey(pairing, ANY, ANY, ANY), "*", "", was, now)


def _problems(run: RunRecords) -> Iterator[str]:
    cells, missing = run.reconciled.cells, run.reconciled.missing
    if missing:
        first = " / ".join(missing[0])
        yield f"incomplete: {len(missing)} of {len(cells)} planned cells have cases without a record, as {first}"
    yield from run.reconciled.problems


def find_baseline(start: Path) -> Path:
    """The folder that the nearest pyproject.toml pins as `baseline` under `[tool.kerneltest]`; raises a DiffError."""
    how = 'name the older run too, or pin one in pyproject.toml: [tool.kerneltest] baseline = "FOLDER"'
    for folder in (start.absolute(), *start.absolute().parents):
        file = folder / "pyproject.toml"
        if not file.exists():
            continue
        try:
            tools = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
        except (OSError, ValueError) as error:
            raise DiffError(f"{file}: {error}") from error
        settings = tools.get("kerneltest", {}) if isinstance(tools, dict) else {}
        if not isinstance(settings, dict) or not isinstance(settings.get("baseline", ""), str):
            raise DiffError(f"{file}: baseline of [tool.kerneltest] is the path of a folder, as text")
        if not settings.get("baseline"):
            raise DiffError(f"{file} pins no baseline; {how}")
        return Path(folder, settings["baseline"])
    raise DiffError(f"there is no pyproject.toml here or above; {how}")
