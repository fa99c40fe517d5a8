"""The terminal summary of a finished run: suspects, the matrix, and remarks."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from textwrap import shorten

from kerneltest.backends.registry import sort_ids
from kerneltest.core.verdicts import Ending, Gap, Verdict
from kerneltest.records.run_plan import Plan
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import MutationScore, Record
from kerneltest.records.sharpness import Informativeness, sharpness_remarks
from kerneltest.report.counts import (
    Counts,
    budget_remarks,
    clock_warning,
    count_cells,
    empty_shard_remarks,
    gaps,
    inapplicable_backends,
    internal_error_remarks,
    lowering_remarks,
    missing_call_remarks,
    reuse_remarks,
    slow_remarks,
    undefined_remarks,
    unserved_remarks,
)
from kerneltest.report.matrix import Matrix, by_tier
from kerneltest.report.text.suspect_text import format_suspects, wrap_line
from kerneltest.report.text.tables import field_signs, field_words, signs_legend, terminal_table
from kerneltest.triage.suspects import Suspect

# The summary of a run in few lines, below its suspects: what a session shows unless it is verbose.

_MOST_GAPS = 5
_MOST_REMARKS = 3  # of a run that is not green; a green one shows one
_MOST_NAMES = 4


def brief_lines(
    run: RunRecords, counts: Counts, width: int | None = None, *, stopped: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields what a run lacks, remarks, and its counts in the last line, with their colours ("" for none).

    A green run gets at most three lines. `terminal_summary.remarks` has all of them, and in full.

    Args:
      run: the run to show.
      counts: of its cells.
      width: of the terminal, to which the remark of a green run is cut; None for no limit.
      stopped: whether the session was ended before it had run everything.
    """
    yield from gap_lines(run, stopped=stopped)
    yield from ((line, "red") for line in internal_error_remarks(run))
    notes = [*all_notes(run)]
    if run.reconciled.green:
        yield from _first_note(notes, width)
    else:
        yield from ((note, "yellow") for note in notes[:_MOST_REMARKS])
        if len(notes) > _MOST_REMARKS:
            yield f"and {len(notes) - _MOST_REMARKS} more remarks: -v shows them", ""
    if unused := _unused_backends(run):
        yield f"{unused} (-v says why)", ""
    yield str(counts), "green" if run.reconciled.green else "red"


def gap_lines(run: RunRecords, *, stopped: bool) -> Iterator[tuple[str, str]]:
    """Yields what keeps a run from being complete, with colours: in one line if it was stopped.

    Args:
      run: the run.
      stopped: whether the session was ended before it had run everything, so that cells without a verdict are no news.
    """
    missing, problems = run.reconciled.missing, run.reconciled.problems
    lacking = f"{len(missing)} of {len(run.reconciled.cells)} planned cells have no verdict"
    if stopped:
        yield f"INCOMPLETE: stopped early; {lacking}", "yellow"
    elif missing or problems:
        yield f"INCOMPLETE: {lacking}" if missing else "INCOMPLETE:", "red"
        by_place = Counter((pairing, backend) for pairing, backend, _, _ in missing)
        places = [f"no verdict: {' / '.join(place)} ({count} cells)" for place, count in by_place.items()]
        yield from ((f"  {line}", "red") for line in _limited([*problems, *places]))
    yield from ((line, "red") for line in _limited(idle_cells(run)))


def idle_cells(run: RunRecords) -> list[str]:
    """Names the cells in which nothing was compared."""
    cells = run.reconciled.cells.items()
    return [f"nothing compared: {' / '.join(cell)}" for cell, status in cells if status.verdict is Gap.NOTHING_COMPARED]


def environment_notes(plan: Plan) -> Iterator[str]:
    """Yields what is unusual about the environment of a run."""
    if "warning" in plan.environment:
        yield f"warning: {plan.environment['warning']}"
    yield from filter(None, [clock_warning(plan)])


def record_notes(records: Sequence[Record]) -> Iterator[str]:
    """Yields remarks on what records say of kernels and declarations, the ones that call for action first."""
    return chain(
        missing_call_remarks(records),
        lowering_remarks(records),
        undefined_remarks(records),
        Informativeness(records).remarks(),
        sharpness_remarks(records),
    )


def all_notes(run: RunRecords) -> Iterator[str]:
    """Yields remarks on a run, the ones that call for action first."""
    yield from environment_notes(run.plan)
    yield from empty_shard_remarks(run.plan)
    yield from record_notes(run.records)
    yield from chain(budget_remarks(run), unserved_remarks(run), reuse_remarks(run), slow_remarks(run))


def _first_note(notes: Sequence[str], width: int | None) -> Iterator[tuple[str, str]]:
    """Yields the first of some remarks in one line, with the number of further ones."""
    if notes:
        more = f" (and {len(notes) - 1} more: -v)" if len(notes) > 1 else ""
        note = notes[0] if width is None else shorten(notes[0], width - len(more), placeholder=" … (-v)")
        yield f"{note}{more}", "yellow"


def _unused_backends(run: RunRecords) -> str:
    """Returns the backends that this machine lacks, and those that apply to none of the kernels."""
    absent = sort_ids(run.plan.unavailable)
    served = {item.backend for item in run.plan.items}
    others = dict.fromkeys(name for names, _ in inapplicable_backends([run]) for name in names.split(", "))
    foreign = [name for name in others if name not in served]
    parts = [("unavailable", absent), ("not applicable", foreign)]
    return "; ".join(f"{what}: {_names(names)}" for what, names in parts if names)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _limited(lines: Sequence[str]) -> Iterable[str]:
    yield from lines[:_MOST_GAPS]
    if len(lines) > _MOST_GAPS:
        yield f"and {len(lines) - _MOST_GAPS} more: -v shows them"


# The mutation scores of a run as lines for a terminal: one for each pairing, and those of its survivors.

_MOST_LINES = 5  # for survivors of a pairing; the page shows more


def mutant_lines(scores: Sequence[MutationScore], *, with_survivors: bool = True) -> Iterator[str]:
    """Yields the lines that show mutation scores.

    Args:
      scores: of pairings.
      with_survivors: whether to list mutants that survived, a few of each pairing.
    """
    for score in scores:
        if score.problem:
            yield f"{score.pairing}: no mutants: {score.problem}"
            continue
        yield f"{score.pairing}: {score}"
        if not with_survivors:
            continue
        alike = Counter(f"{each.mutant.place}  survived: {each.mutant.phrase}" for each in score.survivors)
        for words, count in islice(alike.items(), _MOST_LINES):
            yield f"  {words}" + (f" ({count} times)" if count > 1 else "")
        if hidden := sum([*alike.values()][_MOST_LINES:]):
            yield f"  and {hidden} more: the report shows them"


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
