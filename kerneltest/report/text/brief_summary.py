"""The summary of a run in few lines, below its suspects: what a session shows unless it is verbose."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from textwrap import shorten

from kerneltest.backends.registry import sort_ids
from kerneltest.core.verdicts import Gap
from kerneltest.records.informative import informativeness
from kerneltest.records.run_plan import Plan
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import Record
from kerneltest.records.sharpness import sharpness_remarks
from kerneltest.report.counts import (
    Counts,
    budget_remarks,
    clock_warning,
    empty_shard_remarks,
    inapplicable_backends,
    internal_error_remarks,
    lowering_remarks,
    missing_call_remarks,
    reuse_remarks,
    slow_remarks,
    undefined_remarks,
    unserved_remarks,
)

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
        informativeness(records).remarks(),
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
