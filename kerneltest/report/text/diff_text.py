"""A comparison of runs as text for a terminal, and as Markdown for the page of a CI job."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.records.run_plan import ANY, CellKey
from kerneltest.records.runs import RunRecords
from kerneltest.report.text.markdown_summary import suspect_points
from kerneltest.report.text.suspect_text import format_counts, format_suspect, kernel_with_location
from kerneltest.report.text.tables import for_markdown, for_terminal, markdown_table
from kerneltest.triage.run_comparison import MEANING, REGRESSIONS, Change, RunComparison, SuspectChange, SuspectFate

_MOST_LINES = 20  # rows of one kind in a terminal; the pages show more
MOST_ROWS = 200
_MOST_SIGNATURES = 50


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """The changes of one kind in one cell, represented by the first.

    Attributes:
      changes: the changes, at least one.
    """

    changes: tuple[Change, ...]

    @property
    def first(self) -> Change:
        return self.changes[0]

    @property
    def where(self) -> tuple[str, ...]:
        """Run (if there are several), pairing, backend, dtype and family of the cell."""
        return (*([self.first.run] if self.first.run else []), *self.first.cell)

    @property
    def case(self) -> str:
        """The first case, or "" for a whole cell."""
        first = self.first
        if first.signature == "*":
            return ""
        return f"{first.signature} in {first.target}" if first.target else first.signature

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(ChangeRow((change,)).case for change in self.changes))[:_MOST_SIGNATURES]

    @property
    def message(self) -> str:
        return self.first.message.splitlines()[0] if self.first.message else ""


def change_rows(comparison: RunComparison) -> Mapping[str, Sequence[ChangeRow]]:
    """Groups changes by kind, and then by run and cell."""
    by_kind: dict[str, dict[tuple[str, CellKey], list[Change]]] = {}
    for change in comparison.changes:
        by_kind.setdefault(change.kind, {}).setdefault((change.run, change.cell), []).append(change)
    return {kind: [ChangeRow(tuple(changes)) for changes in cells.values()] for kind, cells in by_kind.items()}


@dataclass(frozen=True, slots=True)
class SuspectRow:
    """A suspect of a comparison, and its kernel."""

    change: SuspectChange
    kernel: str

    @property
    def title(self) -> str:
        return self.change.suspect.title

    @property
    def counts(self) -> str:
        """The number of its cases, and since when it is known if it is still there."""
        since = f"; since {self.change.since[:10]}" if self.change.since else ""
        return f"{format_counts(self.change.suspect)}{since}"

    @property
    def lines(self) -> Sequence[str]:
        """The details of a new suspect; empty for others."""
        return format_suspect(self.change.suspect)[1:] if self.change.fate is SuspectFate.NEW else ()


def suspect_rows(
    comparison: RunComparison, old: Sequence[RunRecords], new: Sequence[RunRecords]
) -> Mapping[SuspectFate, tuple[str, Sequence[SuspectRow]]]:
    """Groups suspects by their fate, the new ones first; returns a heading and rows for each fate."""
    declared = {name: each for run in (*old, *new) for name, each in run.plan.pairings.items()}
    rows: dict[SuspectFate, list[SuspectRow]] = {}
    for change in comparison.suspects:
        kernel = kernel_with_location(change.suspect.pairing, declared.get(change.suspect.pairing))
        rows.setdefault(change.fate, []).append(SuspectRow(change, kernel))
    return {fate: (_heading(fate, len(mine)), mine) for fate, mine in rows.items()}


def _heading(fate: SuspectFate, count: int) -> str:
    suspects = f"suspect{'s' * (count > 1)}"
    return f"{count} new {suspects}" if fate is SuspectFate.NEW else f"{count} {suspects} {fate}"


def conclusion(comparison: RunComparison) -> str:
    """Formats the outcome in one line."""
    fates = Counter(change.fate for change in comparison.suspects)
    kinds = Counter(change.kind for change in comparison.changes)
    regressed = [_heading(fate, n) for fate, n in fates.items() if fate is SuspectFate.NEW]
    regressed += [f"{n} {kind}" for kind, n in kinds.items() if kind in REGRESSIONS]
    others = [_heading(fate, n) for fate, n in fates.items() if fate is not SuspectFate.NEW]
    others += [f"{n} {kind}" for kind, n in kinds.items() if kind not in REGRESSIONS]
    regressed += ["incomplete"] * bool(comparison.problems)
    result = f"REGRESSION: {', '.join(regressed)}" if regressed else "no regression"
    return "; ".join([result, *others, f"{comparison.unchanged} cases unchanged"])


def describe_runs(runs: Sequence[RunRecords]) -> str:
    """Formats a set of runs in one line: number, versions of JAX, depths and number of cases."""
    kinds = dict.fromkeys(f"JAX {r.plan.environment.get('jax', 'unknown')}, {r.plan.depth}" for r in runs)
    cases = sum(1 for run in runs for record in run.records if record.case)
    return f"{len(runs)} run{'s' * (len(runs) > 1)} ({'; '.join(kinds)}), {cases} cases"


def terminal_diff(comparison: RunComparison, old: Sequence[RunRecords], new: Sequence[RunRecords]) -> str:
    """Formats a comparison for a terminal."""
    lines = [f"old: {describe_runs(old)}", f"new: {describe_runs(new)}"]
    lines += [f"different: {line}" for line in comparison.unlike]
    for called, mine in suspect_rows(comparison, old, new).values():
        lines += ["", called]
        for each in mine[:_MOST_LINES]:
            lines.append(f"  {each.kernel}: {each.title}    {each.counts}")
            lines += [f"    {line}" for line in each.lines]
        lines += [f"  ... and {len(mine) - _MOST_LINES} more"] * (len(mine) > _MOST_LINES)
    for kind, changed in change_rows(comparison).items():
        lines += ["", f"{kind} ({MEANING[kind]})"]
        for row in changed[:_MOST_LINES]:
            lines.append(f"  {' / '.join(row.where)}")
            lines.append(f"    {_count(row)}: {row.first.before} -> {row.first.after}" + _example(row, kind))
            if row.message and kind in REGRESSIONS:
                lines.append(f"    {row.message}")
        lines += [f"  ... and {len(changed) - _MOST_LINES} more cells"] * (len(changed) > _MOST_LINES)
    if comparison.problems:
        lines += ["", "incomplete", *(f"  {line}" for line in comparison.problems[:_MOST_LINES])]
    return "\n".join(for_terminal(line) for line in [*lines, "", conclusion(comparison)])


def markdown_diff(comparison: RunComparison, old: Sequence[RunRecords], new: Sequence[RunRecords]) -> str:
    """Formats a comparison as a Markdown page."""
    return "\n".join(_markdown(comparison, old, new)) + "\n"


def _markdown(comparison: RunComparison, old: Sequence[RunRecords], new: Sequence[RunRecords]) -> Iterator[str]:
    yield f"## {'❌' if comparison.regressed else '✅'} {for_markdown(conclusion(comparison))}\n"
    yield f"Old: {for_markdown(describe_runs(old))}  \nNew: {for_markdown(describe_runs(new))}\n"
    yield from (f"- different: {for_markdown(line)}" for line in comparison.unlike)
    yield from (f"- incomplete: {for_markdown(line)}" for line in comparison.problems[:MOST_ROWS])
    for fate, (called, mine) in suspect_rows(comparison, old, new).items():
        yield f"\n### {called}\n"
        for each in mine[:MOST_ROWS]:
            first, *rest = suspect_points(each.change.suspect)
            since = f"; since {for_markdown(each.change.since[:10])}" if each.change.since else ""
            yield f"- {for_markdown(each.kernel)}: {first}{since}"
            yield from (f"   - {line}" for line in rest if fate is SuspectFate.NEW)
        yield from [f"- and {len(mine) - MOST_ROWS} more"] * (len(mine) > MOST_ROWS)
    for kind, changed in change_rows(comparison).items():
        yield f"\n### {kind}\n\n{MEANING[kind]}\n"
        yield markdown_table(
            ["where", "cases", "before", "now", "first", ""],
            [
                [" / ".join(row.where), _count(row), row.first.before, row.first.after, row.case, row.message]
                for row in changed[:MOST_ROWS]
            ],
        )
        if len(changed) > MOST_ROWS:
            yield f"\nand {len(changed) - MOST_ROWS} more cells"


def _count(row: ChangeRow) -> str:
    if row.first.signature == "*":
        return "whole cell" if row.first.cell.backend != ANY else "whole pairing"
    return f"{len(row.changes)} case{'s' * (len(row.changes) > 1)}"


def _example(row: ChangeRow, kind: str) -> str:
    return f", e.g. {row.case}" if row.case and kind != "new" else ""
