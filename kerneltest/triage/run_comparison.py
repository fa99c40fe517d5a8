"""Two runs, or two sets of runs, compared by suspects and case by case: what became worse, what became better."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kerneltest.core.verdicts import Verdict
from kerneltest.records.overlay import overlay_runs
from kerneltest.records.run_plan import ANY, CellKey, plan_differences
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import Record
from kerneltest.triage.changes import (
    ABSENT,
    MEANING,
    NOT_APPLICABLE,
    Change,
    cell_changes,
    count_unchanged,
    format_case_count,
)
from kerneltest.triage.suspect_changes import SuspectChange, suspect_changes

FACTOR = 2.0

_Pair = tuple[str, str]  # a pairing and a backend


class DiffError(ValueError):
    """Runs that cannot be compared; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """All that changed between an older and a newer set of runs.

    Attributes:
      suspects: what became of them, the new ones first.
      changes: in the order of `MEANING`, then of the records.
      problems: why the newer runs are incomplete; each is a regression.
      unlike: how the environments differ.
      unchanged: cases in both whose verdict is the same.
    """

    suspects: tuple[SuspectChange, ...]
    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    unlike: tuple[str, ...]
    unchanged: int

    @property
    def regressed(self) -> bool:
        return (
            bool(self.problems)
            or any(each.regression for each in self.suspects)
            or any(each.regression for each in self.changes)
        )


def compare_runs(
    old: Sequence[RunRecords], new: Sequence[RunRecords], *, allow_unlike: bool = False, factor: float = FACTOR
) -> RunComparison:
    """Compares runs of the same name with each other; if there is one on either side, these two.

    Args:
      old, new: as `read_runs` gives them.
      allow_unlike: compare runs of different environments too.
      factor: report an error use that grew by more than this.

    Raises:
      DiffError: runs of different environments.
    """
    if len(old) == len(new) == 1:
        old, new = [replace(old[0], name="")], [replace(new[0], name="")]
    before, after = {run.name: run for run in old}, {run.name: run for run in new}
    unlike = tuple(
        f"{name}: {line}" if name else line
        for name in before.keys() & after.keys()
        for line in _unlike(before[name], after[name])
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
                count_unchanged(cases, newer.cells(pair).get(cell, ())) for cell, cases in older.cells(pair).items()
            )
    order = list(MEANING)
    changes.sort(key=lambda change: order.index(change.kind))
    problems = tuple(f"{run.name}: {line}" if run.name else line for run in new for line in _problems(run))
    suspects = suspect_changes(overlay_runs(old), overlay_runs(new))
    return RunComparison(suspects, tuple(changes), problems, tuple(sorted(unlike)), unchanged)


class _Side:
    """One run, by pairing and backend.

    Attributes:
      pairs: those that the run says anything of, in order.
      unserved: why a pair has no cases: `Verdict.UNAVAILABLE` or `NOT_APPLICABLE`, and the reason.
    """

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

    def cells(self, pair: _Pair) -> Mapping[CellKey, Sequence[Record]]:
        return self._cells.get(pair, {})

    def state(self, pair: _Pair) -> str:
        """Returns the number of cases of a pair in words, or the reason why it has none."""
        if pair in self.unserved:
            return self.unserved[pair][0]
        if pair not in self._cells:
            return ABSENT
        return format_case_count(sum(bool(record.case) for cell in self._cells[pair].values() for record in cell))


def _pair_changes(run: str, pair: _Pair, old: _Side, new: _Side, factor: float) -> Iterator[Change]:
    """Changes of a pairing on a backend: one for the whole where only one run served it, else case by case."""
    cell, before, after = CellKey(*pair, ANY, ANY), old.state(pair), new.state(pair)
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
        for change in cell_changes(run, key, old.cells(pair).get(key, ()), new.cells(pair).get(key, ()), factor):
            if pair not in old.unserved:
                yield change
            elif change.kind != "new":  # the change of the whole stands for these
                yield replace(change, before=before)


def _tolerance_changes(name: str, old: RunRecords | None, new: RunRecords | None) -> Iterator[Change]:
    """Yields changes of the declared tolerance of pairings that both runs planned."""
    before, after = (run.plan.pairings if run else {} for run in (old, new))
    for pairing in sorted(before.keys() & after.keys()):
        was, now = (side[pairing].declaration.get("tolerance", "") for side in (before, after))
        if was and now and was != now:
            yield Change("tolerance", name, CellKey(pairing, ANY, ANY, ANY), "*", "", was, now)


def _unlike(old: RunRecords, new: RunRecords) -> Iterator[str]:
    yield from (f"{name}: {before} before, {after} now" for name, before, after in plan_differences(old.plan, new.plan))


def _problems(run: RunRecords) -> Iterator[str]:
    cells, missing = run.reconciled.cells, run.reconciled.missing
    if missing:
        first = " / ".join(missing[0])
        yield f"incomplete: {len(missing)} of {len(cells)} planned cells have cases without a record, as {first}"
    yield from run.reconciled.problems


def find_baseline(start: Path) -> Path:
    """The folder that the nearest pyproject.toml pins as `baseline` under `[tool.kerneltest]`.

    Raises:
      DiffError: nothing is pinned, or nothing that can be used.
    """
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
