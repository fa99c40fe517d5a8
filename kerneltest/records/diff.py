"""Two runs, or two sets of runs, compared case by case: what became worse, what became better."""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kerneltest.core.verdicts import Verdict
from kerneltest.plan.drawn import FUZZ
from kerneltest.records.runs import Run
from kerneltest.records.schema import Cell, Record

# What a change is called, in the order in which they are shown, and what it means.
REGRESSIONS = {
    "newly failing": "a finding, where there was none or no such case",
    "worse finding": "a more severe finding than before",
    "newly unavailable": "the backend was served before",
    "gone": "a case that had a verdict has none",
}
MEANING = {
    **REGRESSIONS,
    "milder finding": "a less severe finding than before",
    "error use": "within its bound, of which much more is used up than before",
    "compile facts": "the compiler tells other numbers",
    "newly xfail": "a declared xfail covers it now",
    "newly passing": "no finding any more",
    "newly available": "the backend was not served before",
    "new": "a case that was not there before, without a finding",
}
FACTOR = 2.0
# Use of a bound below this is far from it, whatever it was before.
NOTABLE_USE = 0.1

# What makes numbers differ with no change of a kernel. A driver or a Python may differ from machine to machine.
_ALIKE = ("jax", "jaxlib", "machine")
_ALIKE_BACKEND = ("platform", "device", "triton", "jax-cuda13-plugin")


class DiffError(ValueError):
    """Runs that cannot be compared; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one case, or of one cell as a whole.

    Attributes:
      kind: a key of `MEANING`.
      run: the run it is in; "" if there is only one.
      cell: pairing, backend, dtype, family.
      signature, target: of the case; "*" and "" for a whole cell.
      before, after: verdicts, or what else changed, in words.
      message: of the new record, or of the old one if there is none.
    """

    kind: str
    run: str
    cell: Cell
    signature: str
    target: str
    before: str
    after: str
    message: str = ""

    @property
    def regression(self) -> bool:
        return self.kind in REGRESSIONS


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that changed between an older and a newer set of runs.

    Attributes:
      changes: in the order of `MEANING`, then of the records.
      problems: why the newer runs are incomplete; each is a regression.
      unlike: how the environments differ.
      unchanged: cases in both whose verdict is the same.
    """

    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    unlike: tuple[str, ...]
    unchanged: int

    @property
    def regressed(self) -> bool:
        return bool(self.problems) or any(change.regression for change in self.changes)


def compare(
    old: Sequence[Run], new: Sequence[Run], *, allow_unlike: bool = False, factor: float = FACTOR
) -> Comparison:
    """Compares runs of the same name with each other; if there is one on either side, these two.

    Args:
      old, new: as `read_runs` gives them.
      allow_unlike: compare runs of different environments too.
      factor: an error use is told when it grew by more than this.

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
            "the runs are not alike, and what differs may come from that alone (--allow-unlike compares them "
            "nevertheless):\n" + "\n".join(f"  {line}" for line in sorted(unlike))
        )
    changes: list[Change] = []
    unchanged = 0
    for name in dict.fromkeys([*before, *after]):
        olds, news = _cells(before.get(name)), _cells(after.get(name))
        for cell in dict.fromkeys([*olds, *news]):
            pairs = _Pairs(name, cell, olds.get(cell, ()), news.get(cell, ()))
            changes += pairs.changes(factor)
            unchanged += pairs.unchanged()
    order = list(MEANING)
    changes.sort(key=lambda change: order.index(change.kind))
    problems = tuple(f"{run.name}: {line}" if run.name else line for run in new for line in _problems(run))
    return Comparison(tuple(changes), problems, tuple(sorted(unlike)), unchanged)


def pinned_baseline(start: Path) -> Path:
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


def _unlike(old: Run, new: Run) -> Iterator[str]:
    pairs = [(name, getattr(old.plan, name), getattr(new.plan, name)) for name in ("seed", "depth", "fuzz")]
    for key in dict.fromkeys([*old.plan.environment, *new.plan.environment]):
        backend, _, fact = key.rpartition(": ")
        # A backend that only one of them was served is no difference of environment: its cells say so.
        both = key in old.plan.environment and key in new.plan.environment
        if key in _ALIKE or (backend and fact in _ALIKE_BACKEND and both):
            pairs.append((key, old.plan.environment.get(key, "unknown"), new.plan.environment.get(key, "unknown")))
    yield from (f"{name}: {before} before, {after} now" for name, before, after in pairs if before != after)


def _problems(run: Run) -> Iterator[str]:
    cells, missing = run.reconciled.cells, run.reconciled.missing
    if missing:
        first = " / ".join(missing[0])
        yield f"incomplete: {len(missing)} of {len(cells)} planned cells have cases without a record, as {first}"
    yield from run.reconciled.problems


def _cells(run: Run | None) -> Mapping[Cell, Sequence[Record]]:
    found: dict[Cell, list[Record]] = {}
    for record in run.records if run else ():
        found.setdefault(record.cell, []).append(record)
    return found


_Key = tuple[str, str, int]


class _Pairs:
    """The records of one cell, before and after, case by case."""

    def __init__(self, run: str, cell: Cell, before: Sequence[Record], after: Sequence[Record]) -> None:
        self.run, self.cell = run, cell
        self.before, self.after = _cases(before), _cases(after)
        self.whole_before, self.whole_after = _wholes(before), _wholes(after)

    def unchanged(self) -> int:
        both = self.before.keys() & self.after.keys()
        return sum(self.before[key].verdict == self.after[key].verdict for key in both)

    def changes(self, factor: float) -> Iterator[Change]:
        known, there = bool(self.before or self.whole_before), bool(self.after or self.whole_after)
        for verdict in [each for each in self.whole_after if each not in self.whole_before]:
            kind = "newly failing" if verdict is not Verdict.UNAVAILABLE else "newly unavailable" if known else "new"
            before = f"{len(self.before)} cases" if known else "absent"
            yield self._change(kind, self.whole_after[verdict], before, verdict)
        for verdict in [each for each in self.whole_before if each not in self.whole_after]:
            # A cell that was not served and is not planned any more lost nothing.
            kind = "newly available" if verdict is Verdict.UNAVAILABLE else "newly passing"
            if there:
                yield self._change(kind, self.whole_before[verdict], verdict, f"{len(self.after)} cases")
        # Where a cell ended as a whole, that stands for each case of it that was not reached.
        ended = self.whole_after.keys() & {Verdict.UNAVAILABLE, Verdict.CRASH}
        for key in dict.fromkeys([*self.before, *self.after]):
            old, new = self.before.get(key), self.after.get(key)
            if old is not None and new is not None:
                yield from self._case(old, new, factor)
            elif new is not None:
                unserved = Verdict.UNAVAILABLE in self.whole_before
                was = Verdict.UNAVAILABLE if unserved else "absent"
                if new.verdict.is_finding:
                    yield self._change("newly failing", new, was, new.verdict)
                elif not unserved:  # else the whole cell is told to be newly available
                    yield self._change("new", new, was, new.verdict)
            elif old is not None and not ended:
                yield self._change("gone", old, old.verdict, "absent")

    def _case(self, old: Record, new: Record, factor: float) -> Iterator[Change]:
        if old.verdict != new.verdict:
            yield self._change(_kind(old.verdict, new.verdict), new, old.verdict, new.verdict)
        elif new.verdict.is_finding:
            return  # its numbers follow from the finding
        if old.used is not None and new.used is not None and new.used > max(NOTABLE_USE, factor * old.used):
            yield self._change("error use", new, f"{old.used:.2g} of the bound", f"{new.used:.2g}")
        before, after = _facts(old), _facts(new)
        names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
        if names:
            told = (", ".join(f"{name} {found.get(name, 'none')}" for name in names) for found in (before, after))
            yield self._change("compile facts", new, *told)

    def _change(self, kind: str, record: Record, before: str, after: str) -> Change:
        return Change(kind, self.run, self.cell, record.signature, record.target, before, after, record.message)


def _kind(before: Verdict, after: Verdict) -> str:
    if after is Verdict.UNAVAILABLE:
        return "newly unavailable"
    if after is Verdict.XFAIL:
        return "newly xfail"
    if not after.is_finding:
        return "newly passing"
    if not before.is_finding:
        return "newly failing"
    return "worse finding" if after.severity > before.severity else "milder finding"


def _cases(records: Sequence[Record]) -> Mapping[_Key, Record]:
    """Cases by what is the same in both runs. Not by id, which holds the seed; and a drawn case, which shrinks to
    something else when a kernel changes, is the same by its number."""
    found: dict[_Key, Record] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for record in records:
        if record.case:
            name = ("", "") if record.group == FUZZ else (record.signature, record.target)
            found[*name, seen[name]] = record
            seen[name] += 1
    return found


def _wholes(records: Sequence[Record]) -> Mapping[Verdict, Record]:
    return {record.verdict: record for record in records if not record.case}


def _facts(record: Record) -> Mapping[str, float]:
    return {f"{kernel}: {name}": value for kernel, facts in record.facts.items() for name, value in facts.items()}
