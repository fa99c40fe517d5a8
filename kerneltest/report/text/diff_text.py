"""A comparison of runs as text for a terminal, and as Markdown for the page of a CI job."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.core.ids import ANY
from kerneltest.core.media import for_terminal
from kerneltest.records.runs import RunRecords
from kerneltest.report.text.lines import for_markdown, markdown_table, truncate
from kerneltest.report.text.markdown_summary import suspect_points
from kerneltest.report.text.suspect_text import SuspectText, describe_suspect, name_function
from kerneltest.triage.run_comparison import MEANING, REGRESSIONS, Change, RunComparison, SuspectFate

_MOST_LINES = 20  # rows of one kind in a terminal; the pages show more
_MOST_TEXT = 1000  # characters of a line
MOST_ROWS = 200
_MOST_SIGNATURES = 50


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """The changes of one kind of a pairing on a backend, at least one, represented by the first."""

    changes: tuple[Change, ...]

    @property
    def first(self) -> Change:
        return self.changes[0]

    @property
    def where(self) -> tuple[str, ...]:
        """Run (if there are several), pairing, backend, and the dtype and family if all changes share them."""
        parts = zip(*(change.cell for change in self.changes), strict=True)
        cell = [same[0] if len(set(same)) == 1 else ANY for same in parts]
        while cell[-1] == ANY:
            cell.pop()
        return (*([self.first.run] if self.first.run else []), *cell)

    @property
    def before(self) -> str:
        return _values(change.before for change in self.changes)

    @property
    def after(self) -> str:
        return _values(change.after for change in self.changes)

    @property
    def count(self) -> str:
        if self.first.signature == "*":
            what = "cell" if self.first.cell.backend != ANY else "pairing"
            return f"whole {what}" if len(self.changes) == 1 else f"{len(self.changes)} whole {what}s"
        return f"{len(self.changes)} case{'s' * (len(self.changes) > 1)}"

    @property
    def case(self) -> str:
        """The first case, or "" for a whole cell."""
        return _case(self.first)

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(_case, self.changes)))[:_MOST_SIGNATURES]

    @property
    def message(self) -> str:
        return self.first.message.splitlines()[0] if self.first.message else ""


def _values(values: Iterable[str]) -> str:
    return " or ".join([*dict.fromkeys(values)][:2])


def _case(change: Change) -> str:
    if change.signature == "*":
        return ""
    return f"{change.signature} in {change.target}" if change.target else change.signature


def change_rows(comparison: RunComparison) -> Mapping[str, Sequence[ChangeRow]]:
    """Groups changes by kind, and then by run, pairing and backend; whole cells apart."""
    by_kind: dict[str, dict[tuple[object, ...], list[Change]]] = {}
    for change in comparison.changes:
        place = change.run, *change.cell[:2], change.signature == "*"
        by_kind.setdefault(change.kind, {}).setdefault(place, []).append(change)
    return {kind: [ChangeRow(tuple(changes)) for changes in rows.values()] for kind, rows in by_kind.items()}


@dataclass(frozen=True, slots=True)
class SuspectRow:
    """A suspect of a comparison: id, kernel, itself in words, with details if it is new, and since when it is known."""

    id: str
    kernel: str
    text: SuspectText
    since: str


def suspect_rows(
    comparison: RunComparison, old: Sequence[RunRecords], new: Sequence[RunRecords]
) -> Mapping[SuspectFate, tuple[str, Sequence[SuspectRow]]]:
    """Groups suspects by their fate, the new ones first; returns a heading and rows for each fate."""
    declared = {name: summary for run in (*old, *new) for name, summary in run.plan.pairings.items()}
    rows: dict[SuspectFate, list[SuspectRow]] = {}
    for change in comparison.suspects:
        suspect, text = change.suspect, describe_suspect(change.suspect)
        kernel = name_function(suspect.pairing, declared.get(suspect.pairing))
        since = f"; since {change.since}" if change.since else ""
        text = text if change.fate is SuspectFate.NEW else replace(text, lines=())
        rows.setdefault(change.fate, []).append(SuspectRow(suspect.id, kernel, text, since))
    return {fate: (_heading(fate, len(mine)), mine) for fate, mine in rows.items()}


def _heading(fate: SuspectFate, count: int) -> str:
    suspects = f"suspect{'s' * (count > 1)}"
    return f"{count} new {suspects}" if fate is SuspectFate.NEW else f"{count} {suspects} {fate}"


def conclusion(comparison: RunComparison) -> str:
    """Formats the outcome in one line."""
    fates = Counter(change.fate for change in comparison.suspects)
    kinds = Counter(change.kind for change in comparison.changes)
    parts = [(fate is SuspectFate.NEW, _heading(fate, count)) for fate, count in fates.items()]
    parts += [(kind in REGRESSIONS, f"{count} {kind}") for kind, count in kinds.items()]
    parts += [(True, "incomplete")] * bool(comparison.problems)
    regressed, others = ([text for is_worse, text in parts if is_worse is side] for side in (True, False))
    result = f"REGRESSION: {', '.join(regressed)}" if regressed else "no regression"
    return "; ".join([result, *others, f"{comparison.unchanged} cases unchanged"])


def describe_runs(runs: Sequence[RunRecords]) -> str:
    """Formats a set of runs in one line: number, versions of JAX, depths and number of cases."""
    kinds = dict.fromkeys(f"JAX {run.plan.environment.get('jax', 'unknown')}, {run.plan.depth}" for run in runs)
    cases = sum(1 for run in runs for record in run.records if record.case)
    return f"{len(runs)} run{'s' * (len(runs) > 1)} ({'; '.join(kinds)}), {cases} cases"


def terminal_diff(comparison: RunComparison, old: Sequence[RunRecords], new: Sequence[RunRecords]) -> str:
    """Formats a comparison for a terminal."""
    lines = [f"old: {describe_runs(old)}", f"new: {describe_runs(new)}"]
    lines += [f"different: {line}" for line in comparison.unlike]
    for called, mine in suspect_rows(comparison, old, new).values():
        lines += ["", called]
        for row in mine[:_MOST_LINES]:
            lines.append(f"  {row.kernel}: {row.text.texts[0]}{row.since}")
            lines += [f"    {line}" for line in row.text.details]
        lines += [f"  ... and {len(mine) - _MOST_LINES} more"] * (len(mine) > _MOST_LINES)
    for kind, changed in change_rows(comparison).items():
        lines += ["", f"{kind} ({MEANING[kind]})"]
        for cell in changed[:_MOST_LINES]:
            example = f", e.g. {cell.case}" if cell.case and kind != "new" else ""
            change = f"{cell.count}: {cell.before} -> {cell.after}{example}"
            lines.append(f"  {' / '.join(cell.where)}: {change}")
            if cell.message and kind in REGRESSIONS:
                lines.append(f"    {cell.message}")
        lines += [f"  ... and {len(changed) - _MOST_LINES} more"] * (len(changed) > _MOST_LINES)
    if comparison.problems:
        lines += ["", "incomplete", *(f"  {line}" for line in comparison.problems[:_MOST_LINES])]
    return "\n".join(truncate(for_terminal(line), _MOST_TEXT) for line in [*lines, "", conclusion(comparison)])


def markdown_diff(comparison: RunComparison, old: Sequence[RunRecords], new: Sequence[RunRecords]) -> Iterator[str]:
    """Yields the lines of a comparison as a Markdown page."""
    yield f"## {'❌' if comparison.regressed else '✅'} {for_markdown(conclusion(comparison))}\n"
    yield f"Old: {for_markdown(describe_runs(old))}  \nNew: {for_markdown(describe_runs(new))}\n"
    yield from (f"- different: {for_markdown(line)}" for line in comparison.unlike)
    yield from (f"- incomplete: {for_markdown(line)}" for line in comparison.problems[:MOST_ROWS])
    for called, mine in suspect_rows(comparison, old, new).values():
        yield f"\n### {called}\n"
        for row in mine[:MOST_ROWS]:
            first, *rest = suspect_points(row.text, row.id)
            yield f"- {for_markdown(row.kernel)}: {first}{for_markdown(row.since)}"
            yield from (f"   - {line}" for line in rest)
        yield from [f"- and {len(mine) - MOST_ROWS} more"] * (len(mine) > MOST_ROWS)
    for kind, changed in change_rows(comparison).items():
        yield f"\n### {kind}\n\n{MEANING[kind]}\n"
        yield markdown_table(
            ["where", "cases", "before", "now", "first", ""],
            [
                [" / ".join(cell.where), cell.count, cell.before, cell.after, cell.case, cell.message]
                for cell in changed[:MOST_ROWS]
            ],
        )
        if len(changed) > MOST_ROWS:
            yield f"\nand {len(changed) - MOST_ROWS} more"
