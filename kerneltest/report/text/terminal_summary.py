"""The terminal summary of a finished run: suspects, mutation scores, the matrix, and remarks."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from textwrap import shorten

from kerneltest.backends.registry import sort_ids
from kerneltest.core.grouping import group_pairs
from kerneltest.core.verdicts import Gap, Verdict
from kerneltest.records.run_plan import Plan
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import MutationScore, Record
from kerneltest.report.counts import (
    Counts,
    budget_remarks,
    clock_warning,
    count_cells,
    empty_shard_remarks,
    gaps,
    inapplicable_backends,
    internal_error_remarks,
    record_remarks,
    reuse_remarks,
    skip_remarks,
    slow_remarks,
    unserved_remarks,
)
from kerneltest.report.matrix import Matrix, by_tier
from kerneltest.report.text.lines import Line, LineKind, as_lines, matrix_table
from kerneltest.report.text.suspect_text import format_suspects
from kerneltest.triage.suspects import Suspect

_MOST = 20  # gaps, and cells of one kind; the page shows more
_MOST_REASONS = 4
_MOST_BRIEF_GAPS = 5
_MOST_BRIEF_NOTES = 3  # of a run that is not green; a green one shows one
_MOST_NAMES = 4
_MOST_SURVIVORS = 5  # of a pairing


def summary_lines(
    run: RunRecords,
    suspects: Sequence[Suspect],
    width: int | None = None,
    folder: str = "",
    *,
    verbose: int = 0,
    stopped: bool = False,
    rerun: Callable[[Record], str] | None = None,
) -> Iterator[Line]:
    """Yields the lines of a run's summary: its suspects, mutation scores, and what pytest's verbosity asks for.

    They are wrapped at the width in columns, in which a wide matrix is shown in signs; None for no limit. `folder` is
    the run's as the user wrote it, "" if it is not saved, and `stopped` says that the session did not run everything.
    """
    yield from format_suspects(suspects, run.plan.pairings, folder, width, rerun)
    yield from as_lines(LineKind.PLAIN, mutant_lines(run.mutants, with_survivors=verbose >= 0))
    counts = count_cells([run], len(suspects))
    if verbose > 0:
        yield from matrix_table(by_tier([run]), width)
        lines = remarks(run, stopped=stopped)
    elif verbose < 0:
        reused = as_lines(LineKind.PLAIN, reuse_remarks(run))  # even here, since what was green was not run
        lines = chain(_gap_lines(run, stopped=stopped), reused, [Line(LineKind.PLAIN, f"kerneltest: {counts}")])
    else:
        if not (stopped or run.reconciled.green):
            yield from matrix_table(_noteworthy(by_tier([run])), width)
        lines = _brief_lines(run, counts, width, stopped=stopped)
    yield from (part for line in lines for part in line.wrapped(width))


def matrix_lines(run: RunRecords) -> Iterator[Line]:
    """Yields the lines of a run's mutation scores, matrix and remarks."""
    yield from as_lines(LineKind.PLAIN, mutant_lines(run.mutants))
    yield from matrix_table(by_tier([run]), None)
    yield from remarks(run)


def mutant_lines(scores: Sequence[MutationScore], *, with_survivors: bool = True) -> Iterator[str]:
    """Yields the texts that show mutation scores of pairings, and a few of the mutants that survived."""
    for score in scores:
        if score.problem:
            yield f"{score.pairing}: no mutants: {score.problem}"
            continue
        yield f"{score.pairing}: {score}"
        if not with_survivors:
            continue
        alike = Counter(f"{trial.mutant.place}  survived: {trial.mutant.phrase}" for trial in score.survivors)
        for words, count in islice(alike.items(), _MOST_SURVIVORS):
            yield f"  {words}" + (f" ({count} times)" if count > 1 else "")
        if hidden := sum([*alike.values()][_MOST_SURVIVORS:]):
            yield f"  and {hidden} more: the report shows them"


# What a session shows of a run, below its suspects, unless it is verbose. A green run gets at most three lines.


def _brief_lines(run: RunRecords, counts: Counts, width: int | None, *, stopped: bool) -> Iterator[Line]:
    yield from _gap_lines(run, stopped=stopped)
    yield from _internal_error_lines(run)
    notes = [
        *skip_remarks(run),
        *_environment_notes(run.plan),
        *empty_shard_remarks(run.plan),
        *record_remarks(run.records),
        *budget_remarks(run),
        *unserved_remarks(run),
        *reuse_remarks(run),
        *slow_remarks(run),
    ]
    if run.reconciled.green and notes:
        more = f" (and {len(notes) - 1} more: -v)" if len(notes) > 1 else ""
        note = notes[0] if width is None else shorten(notes[0], width - len(more), placeholder=" … (-v)")
        yield Line(LineKind.NOTE, f"{note}{more}")
    elif notes:
        yield from as_lines(LineKind.NOTE, notes[:_MOST_BRIEF_NOTES])
        if len(notes) > _MOST_BRIEF_NOTES:
            yield Line(LineKind.PLAIN, f"and {len(notes) - _MOST_BRIEF_NOTES} more remarks: -v shows them")
    served = {item.backend for item in run.plan.items}
    others = dict.fromkeys(name for names, _ in inapplicable_backends([run]) for name in names.split(", "))
    absent, foreign = sort_ids(run.plan.unavailable), [name for name in others if name not in served]
    unused = [
        f"{what}: {', '.join(names[:_MOST_NAMES])}"
        + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
        for what, names in (("unavailable", absent), ("not applicable", foreign))
        if names
    ]
    if unused:
        yield Line(LineKind.PLAIN, f"{'; '.join(unused)} (-v says why)")
    yield Line(LineKind.GOOD if run.reconciled.green else LineKind.WRONG, str(counts))


def _gap_lines(run: RunRecords, *, stopped: bool) -> Iterator[Line]:
    # What keeps a run from being complete. If it was stopped, cells without a verdict are no news.
    missing, problems = run.reconciled.missing, run.reconciled.problems
    lacking = f"{len(missing)} of {len(run.reconciled.cells)} planned cells have no verdict"
    if stopped:
        yield Line(LineKind.NOTE, f"INCOMPLETE: stopped early; {lacking}")
    elif missing or problems:
        yield Line(LineKind.WRONG, f"INCOMPLETE: {lacking}" if missing else "INCOMPLETE:")
        yield from (Line(LineKind.WRONG, f"  {text}", True) for text in _limited(gaps(run)))
    yield from as_lines(LineKind.WRONG, _limited(_idle_cells(run)))


def _limited(texts: Sequence[str]) -> Iterator[str]:
    yield from texts[:_MOST_BRIEF_GAPS]
    if len(texts) > _MOST_BRIEF_GAPS:
        yield f"and {len(texts) - _MOST_BRIEF_GAPS} more: -v shows them"


def _internal_error_lines(run: RunRecords) -> Iterator[Line]:
    for number, text in enumerate(internal_error_remarks(run)):
        yield Line(LineKind.WRONG, text, is_whole=number > 0)  # what follows the first line is to be copied


def _idle_cells(run: RunRecords) -> list[str]:
    cells = run.reconciled.cells.items()
    return [f"nothing compared: {' / '.join(cell)}" for cell, status in cells if status.verdict is Gap.NOTHING_COMPARED]


def _environment_notes(plan: Plan) -> Iterator[str]:
    if "warning" in plan.environment:
        yield f"warning: {plan.environment['warning']}"
    yield from filter(None, [clock_warning(plan)])


def remarks(run: RunRecords, *, stopped: bool = False) -> Iterator[Line]:
    """Yields remarks on what the matrix of a run does not show; `stopped` is as for `summary_lines`."""
    plan, cells, missing = run.plan, run.reconciled.cells, run.reconciled.missing
    yield from as_lines(LineKind.NOTE, empty_shard_remarks(plan))
    # Backends whose reasons differ in their names only share a line.
    alike = group_pairs((reason.replace(backend, ""), backend) for backend, reason in plan.unavailable.items())
    absent = [f"{', '.join(backends)} unavailable: {plan.unavailable[backends[0]]}" for backends in alike.values()]
    yield from as_lines(LineKind.PLAIN, [*absent, *unserved_remarks(run)[:_MOST]])
    reasons = inapplicable_backends([run])
    foreign = [f"not applicable on {backends}: {why}" for backends, why in reasons[:_MOST_REASONS]]
    if (more := len(reasons) - _MOST_REASONS) > 0:
        foreign.append(f"not applicable for {more} more reasons; see the plan or the report")
    yield from as_lines(LineKind.PLAIN, foreign)
    yield from as_lines(LineKind.PLAIN, filter(None, [plan.environment.get("deprecated", "")]))
    yield from as_lines(LineKind.NOTE, _environment_notes(plan))
    if stopped:
        yield from _gap_lines(run, stopped=True)
    elif wrong := gaps(run):
        lacking = f" {len(missing)} of {len(cells)} planned cells have cases without a record" if missing else ""
        yield Line(LineKind.WRONG, f"INCOMPLETE:{lacking}")
        yield from (Line(LineKind.WRONG, f"  {text}", True) for text in wrong[:_MOST])
    yield from _internal_error_lines(run)
    yield from as_lines(LineKind.WRONG, [] if stopped else _idle_cells(run)[:_MOST])
    yield from as_lines(LineKind.NOTE, [*skip_remarks(run), *budget_remarks(run)])
    yield from as_lines(LineKind.PLAIN, [*reuse_remarks(run), *slow_remarks(run)])
    yield from as_lines(LineKind.NOTE, record_remarks(run.records))


def _noteworthy(matrix: Matrix) -> Matrix:
    # The pairings that are not green, without the columns in which none of them was run.
    rows = [row for row in matrix.rows if any(field.counts and not field.worst.is_green for field in row.fields)]
    kept = [
        number
        for number in range(len(matrix.columns))
        if any(set(row.fields[number].counts) - {Verdict.UNAVAILABLE} for row in rows)
    ]
    return Matrix(
        tuple(matrix.columns[number] for number in kept),
        tuple(replace(row, fields=tuple(row.fields[number] for number in kept)) for row in rows),
    )
