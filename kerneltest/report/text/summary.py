"""What one or more finished runs come to: the matrix of pairings and backends, and the counts a badge shows."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.backends.registry import in_order
from kerneltest.core.verdicts import Ending, Gap, Verdict
from kerneltest.records.attribution import lowering_bugs
from kerneltest.records.reconcile import Status
from kerneltest.records.runs import Run
from kerneltest.records.schema import Record

SIGNS_EXPLAINED = "✓ pass  ≈ xfail  – unavailable  ✗ finding  ? no verdict  ∅ nothing compared; a number: cases"


@dataclass(frozen=True, slots=True)
class Cell:
    """A pairing on the backends of one tier in one run.

    Attributes:
      counts: cases by verdict, worst last; a status that is no verdict counts once a cell.
      targets: by verdict, those of the tier that had it.
    """

    counts: Mapping[Ending, int]
    targets: Mapping[Ending, tuple[str, ...]]

    @property
    def words(self) -> str:
        """`54 pass, 54 compile_error (gfx942 sm_90)`."""
        return ", ".join(self._word(verdict, count) for verdict, count in self.counts.items()) or "-"

    @property
    def signs(self) -> str:
        """`✓54 ✗54`."""
        signs: Counter[str] = Counter()
        for verdict, count in self.counts.items():
            signs["✗" if verdict.is_finding and isinstance(verdict, Verdict) else verdict.letter] += count
        absent = Verdict.UNAVAILABLE.letter
        return " ".join(f"{sign}{count}" if sign != absent else sign for sign, count in signs.items()) or "-"

    def _word(self, verdict: Ending, count: int) -> str:
        shown = self.targets[verdict] != ("",) and verdict is not Verdict.PASS
        on = f" ({' '.join(self.targets[verdict])})" if shown else ""
        return f"{verdict}{on}" if verdict is Verdict.UNAVAILABLE else f"{count} {verdict}{on}"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Pairings against tiers; a tier of several runs has a column for each.

    Attributes:
      columns: their headings.
      rows: pairing and cells.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def matrix(runs: Sequence[Run]) -> Matrix:
    """The matrix of some runs."""
    columns = [
        (tier, run)
        for run in runs
        for tier in dict.fromkeys(_tier(each) for each in in_order(item.backend for item in run.plan.items))
    ]
    tiers = Counter(tier for tier, _ in columns)
    pairings = dict.fromkeys(item.pairing for run in runs for item in run.plan.items)
    found: dict[tuple[str, str, str], list[tuple[str, Status]]] = {}
    for run in runs:
        for (pairing, backend, _, _), status in run.reconciled.cells.items():
            found.setdefault((run.name, pairing, _tier(backend)), []).append((backend, status))
    return Matrix(
        tuple(f"{tier} ({run.name})" if tiers[tier] > 1 else tier for tier, run in columns),
        tuple((p, tuple(_cell(found.get((run.name, p, tier), ())) for tier, run in columns)) for p in pairings),
    )


def _tier(backend: str) -> str:
    return backend.partition(":")[0]


def _cell(statuses: Sequence[tuple[str, Status]]) -> Cell:
    counts: Counter[Ending] = Counter()
    targets: dict[Ending, set[str]] = {}
    for backend, status in statuses:
        verdicts: dict[Ending, int] = dict(status.verdicts.items())
        if status.verdict not in verdicts:
            verdicts = {status.verdict: 1}
        for verdict, count in verdicts.items():
            counts[verdict] += count
            targets.setdefault(verdict, set()).add(backend.partition(":")[2])
    ordered = sorted(counts.items(), key=lambda pair: pair[0].severity)
    return Cell(dict(ordered), {verdict: tuple(sorted(found)) for verdict, found in targets.items()})


@dataclass(frozen=True, slots=True)
class Counts:
    """The planned cells (pairing, backend, dtype, family) of some runs by how they ended.

    Attributes:
      passed, xfailed, failed: cells that passed, passed but for declared xfails, have a finding.
      unavailable: cells whose backend was not there: one for each pairing and backend.
      gaps: cells without a verdict for every case, or in which nothing was compared.
      not_applicable: pairings and backends that are not for each other; they have no cells.
      problems: what else is wrong with the bookkeeping.
      not_run: runs that should be there and are not.
    """

    passed: int
    xfailed: int
    failed: int
    unavailable: int
    gaps: int
    not_applicable: int
    problems: tuple[str, ...]
    not_run: tuple[str, ...]

    @property
    def planned(self) -> int:
        return self.passed + self.xfailed + self.failed + self.unavailable + self.gaps

    @property
    def complete(self) -> bool:
        return bool(self.planned) and not self.gaps and not self.problems

    @property
    def green(self) -> bool:
        """Whether all that should have been run was, and nothing was found. An absent backend was not run."""
        return self.complete and not self.failed and not self.unavailable and not self.not_run

    def __str__(self) -> str:
        parts = [f"{self.passed} of {self.planned} cells pass"]
        for count, word in (
            (self.xfailed, "xfail"),
            (self.failed, "fail"),
            (self.gaps, "without a verdict"),
            (self.unavailable, "unavailable"),
        ):
            parts += [f"{count} {word}"] * bool(count)
        return ", ".join([*parts, *(f"{name} not run" for name in self.not_run)])


def count(runs: Sequence[Run], legs: Sequence[str] = ()) -> Counts:
    """Counts the cells of some runs. One that several runs planned counts in each that served it.

    Args:
      runs: what there is.
      legs: names of runs that there should be.
    """
    served = {
        cell[:2] for run in runs for cell, status in run.reconciled.cells.items() if status.verdict is not _ABSENT
    }
    ends: Counter[Ending] = Counter()
    for run in runs:
        for cell, status in run.reconciled.cells.items():
            if status.verdict is not _ABSENT or cell[:2] not in served:
                ends[status.verdict] += 1
    problems = tuple(f"{run.name}: {line}" if run.name else line for run in runs for line in run.reconciled.problems)
    there = {run.name for run in runs}
    return Counts(
        passed=ends[Verdict.PASS],
        xfailed=ends[Verdict.XFAIL],
        failed=sum(n for ending, n in ends.items() if isinstance(ending, Verdict) and ending.is_finding),
        unavailable=ends[_ABSENT],
        gaps=sum(ends[gap] for gap in Gap),
        not_applicable=len({(each.pairing, each.backend) for run in runs for each in run.plan.not_applicable}),
        problems=problems,
        not_run=tuple(leg for leg in dict.fromkeys(legs) if leg not in there),
    )


_ABSENT = Verdict.UNAVAILABLE


def lines(run: Run, width: int | None = None) -> Iterator[tuple[str, str]]:
    """A run for a terminal: lines and their colours ("" for none), in signs where words are wider than `width`."""
    table = matrix([run])
    shown = [["", *table.columns], *([name, *(cell.words for cell in cells)] for name, cells in table.rows)]
    text = _aligned(shown)
    if width is not None and max(map(len, text)) > width:
        shown[1:] = [[name, *(cell.signs for cell in cells)] for name, cells in table.rows]
        text = [*_aligned(shown), SIGNS_EXPLAINED]
    colours = ["", *(_colour({v for cell in cells for v in cell.counts}) for _, cells in table.rows), ""]
    yield from zip(text, colours, strict=False)
    yield from remarks(run)
    yield from ((line, "yellow") for line in splits(run.records))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _colour(endings: set[Ending]) -> str:
    if any(ending.is_finding for ending in endings):
        return "red"
    return "green" if Verdict.PASS in endings else "yellow"


def remarks(run: Run) -> Iterator[tuple[str, str]]:
    """What is not in the matrix: backends that were not served, gaps."""
    plan, cells, problems = run.plan, run.reconciled.cells, run.reconciled.problems
    yield from ((f"{backend} unavailable: {reason}", "") for backend, reason in plan.unavailable.items())
    if plan.not_applicable:
        yield (
            f"not applicable: {len(plan.not_applicable)} of the pairings and backends (the plan gives the reasons)",
            "",
        )
    if "warning" in plan.environment:
        yield f"warning: {plan.environment['warning']}", "yellow"
    missing = run.reconciled.missing
    if missing or problems:
        yield f"INCOMPLETE: {len(missing)} of {len(cells)} planned cells have cases without a record", "red"
        yield from ((f"  no verdict: {' / '.join(cell)}", "red") for cell in missing[:10])
        yield from ((f"  {problem}", "red") for problem in problems[:10])
    idle = [cell for cell, status in cells.items() if status.verdict is Gap.NOTHING_COMPARED]
    yield from ((f"nothing compared: {' / '.join(cell)}", "red") for cell in idle[:10])


def splits(records: Sequence[Record]) -> Iterator[str]:
    """Where several backends disagree such that a lowering is suspected."""
    yield from (f"suspected lowering bug, {number} cases: {text}" for text, number in lowering_bugs(records).items())
