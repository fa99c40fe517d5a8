"""The terminal summary of a finished run: suspects, the matrix, and remarks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from kerneltest.core.verdicts import Ending, Verdict
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import Record
from kerneltest.report.counts import (
    budget_remarks,
    count_cells,
    empty_shard_remarks,
    gaps,
    inapplicable_backends,
    internal_error_remarks,
    reuse_remarks,
    slow_remarks,
    unserved_remarks,
)
from kerneltest.report.matrix import Matrix, by_tier
from kerneltest.report.text.brief_summary import brief_lines, environment_notes, gap_lines, idle_cells, record_notes
from kerneltest.report.text.mutant_lines import mutant_lines
from kerneltest.report.text.suspect_text import format_suspects, wrap_line
from kerneltest.report.text.tables import field_signs, field_words, signs_legend, terminal_table
from kerneltest.triage.suspect import Suspect

_MOST_REASONS = 4
_MOST = 20  # gaps, and cells of one kind; the page shows more


def summary_lines(
    run: RunRecords,
    suspects: Sequence[Suspect],
    width: int | None = None,
    folder: str = "",
    *,
    verbose: int = 0,
    stopped: bool = False,
    rerun: Callable[[Record], str] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields the lines of a run's summary, wrapped at the width, and their colours ("" for none).

    Suspects come first, then mutation scores. A quiet session then gets the counts of the run, a verbose one its matrix
    and all remarks, and any other one what calls for attention.

    Args:
      run: the run to show.
      suspects: its suspects.
      width: the terminal's width in columns; a matrix of words that is wider is shown in signs. None for no limit.
      folder: the run's folder as the user wrote it; "" if the run is not saved.
      verbose: pytest's verbosity: negative if quiet, 0, or positive if verbose.
      stopped: whether the session was ended before it had run everything.
      rerun: returns the shell command that runs a finding's item again; None to show no such command.
    """
    yield from format_suspects(suspects, run.plan.pairings, folder, width, rerun)
    yield from _with_colour("", mutant_lines(run.mutants, with_survivors=verbose >= 0))
    counts = count_cells([run], len(suspects))
    if verbose > 0:
        yield from _format_matrix(by_tier([run]), width)
        lines = remarks(run, stopped=stopped)
    elif verbose < 0:
        reused = _with_colour("", reuse_remarks(run))  # told even where little is: what is green was not run
        lines = chain(gap_lines(run, stopped=stopped), reused, [(f"kerneltest: {counts}", "")])
    else:
        if not (stopped or run.reconciled.green):
            yield from _format_matrix(_noteworthy(by_tier([run])), width)
        lines = brief_lines(run, counts, width, stopped=stopped)
    for line, colour in lines:
        yield from ((part, colour) for part in ([line] if line.startswith(" ") else wrap_line(line, width)))


def matrix_lines(run: RunRecords, width: int | None = None) -> Iterator[tuple[str, str]]:
    """Yields the lines of a run's mutation scores, matrix and remarks, with their colours."""
    yield from _with_colour("", mutant_lines(run.mutants))
    yield from _format_matrix(by_tier([run]), width)
    yield from remarks(run)


def _noteworthy(matrix: Matrix) -> Matrix:
    """Returns the pairings of a matrix that are not green, without the columns in which none of them was run."""
    lines = [line for line in matrix.lines if any(field.counts and not field.worst.is_green for field in line.fields)]
    kept = [
        number
        for number in range(len(matrix.columns))
        if any(set(line.fields[number].counts) - {Verdict.UNAVAILABLE} for line in lines)
    ]
    return Matrix(
        tuple(matrix.columns[number] for number in kept),
        tuple(replace(line, fields=tuple(line.fields[number] for number in kept)) for line in lines),
    )


def _format_matrix(matrix: Matrix, width: int | None) -> Iterator[tuple[str, str]]:
    if not matrix.lines:
        return
    headings = ["", *(column.title for column in matrix.columns)]
    words, signs = (
        terminal_table(headings, [[line.pairing, *map(shown, line.fields)] for line in matrix.lines])
        for shown in (field_words, field_signs)
    )
    narrow = width is not None and max(map(len, words)) > width
    colours = ["", *(_colour({ending for field in line.fields for ending in field.counts}) for line in matrix.lines)]
    yield from zip(signs if narrow else words, colours, strict=True)
    if narrow:
        yield signs_legend(field for line in matrix.lines for field in line.fields), ""


def _colour(endings: set[Ending]) -> str:
    if any(not ending.is_green for ending in endings):
        return "red"
    return "green" if Verdict.PASS in endings else "yellow"


def remarks(run: RunRecords, *, stopped: bool = False) -> Iterator[tuple[str, str]]:
    """Yields remarks on what the matrix does not show, with their colours.

    Args:
      run: the run.
      stopped: whether the session was ended before it had run everything, so that cells without a verdict are no news.
    """
    plan, cells, missing = run.plan, run.reconciled.cells, run.reconciled.missing
    yield from _with_colour("yellow", empty_shard_remarks(plan))
    yield from _with_colour("", _unavailable_remarks(plan.unavailable))
    yield from _with_colour("", unserved_remarks(run)[:_MOST])
    reasons = inapplicable_backends([run])
    yield from _with_colour("", (f"not applicable on {backends}: {why}" for backends, why in reasons[:_MOST_REASONS]))
    if len(reasons) > _MOST_REASONS:
        yield f"not applicable for {len(reasons) - _MOST_REASONS} more reasons; see the plan or the report", ""
    yield from _with_colour("yellow", environment_notes(plan))
    wrong = gaps(run)
    if stopped:
        yield from gap_lines(run, stopped=True)
    elif wrong:
        lacking = f" {len(missing)} of {len(cells)} planned cells have cases without a record" if missing else ""
        yield f"INCOMPLETE:{lacking}", "red"
        yield from _with_colour("red", (f"  {line}" for line in wrong[:_MOST]))
    yield from _with_colour("red", internal_error_remarks(run))
    yield from _with_colour("red", [] if stopped else idle_cells(run)[:_MOST])
    yield from _with_colour("yellow", budget_remarks(run))
    yield from _with_colour("", reuse_remarks(run))
    yield from _with_colour("", slow_remarks(run))
    yield from _with_colour("yellow", record_notes(run.records))


def _unavailable_remarks(unavailable: Mapping[str, str]) -> Iterator[str]:
    """Yields why backends are unavailable, once for those whose reasons differ in their names only."""
    alike: dict[str, list[str]] = {}
    for backend, reason in unavailable.items():
        alike.setdefault(reason.replace(backend, ""), []).append(backend)
    yield from (f"{', '.join(backends)} unavailable: {unavailable[backends[0]]}" for backends in alike.values())


def _with_colour(colour: str, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    yield from ((line, colour) for line in lines)
