"""The summary of some runs as Markdown for the page of a CI job."""

import itertools
from collections.abc import Iterator, Sequence

from kerneltest.records.overlay import overlay_runs
from kerneltest.records.runs import RunRecords
from kerneltest.report.counts import Counts
from kerneltest.report.matrix import by_tier
from kerneltest.report.rerun_commands import pytest_command
from kerneltest.report.text.badge import conformance_badge
from kerneltest.report.text.mutant_lines import mutant_lines
from kerneltest.report.text.suspect_text import format_counts as in_counts
from kerneltest.report.text.suspect_text import format_suspect, name_kernels
from kerneltest.report.text.tables import field_words, for_markdown, for_terminal, markdown_table
from kerneltest.report.text.terminal_summary import remarks
from kerneltest.triage.suspect import Suspect

_MOST_SUSPECTS = 50
_MOST_NOTES = 100
_SIGNS = {"red": "❌", "orange": "❌", "yellow": "⚠️", "brightgreen": "✅"}


def markdown_summary(runs: Sequence[RunRecords], counts: Counts, suspects: Sequence[Suspect]) -> str:
    """Formats suspects, the matrix, and remarks as a Markdown page."""
    return "\n".join(_page(runs, counts, suspects)) + "\n"


def _page(runs: Sequence[RunRecords], counts: Counts, suspects: Sequence[Suspect]) -> Iterator[str]:
    badge = conformance_badge(counts)
    yield f"## {_SIGNS[badge.colour]} Kernel conformance: {for_markdown(badge.message)}\n"
    yield from _suspects(runs, suspects)
    matrix = by_tier(runs)
    headings = ["pairing", *(column.title for column in matrix.columns)]
    yield markdown_table(headings, [[line.pairing, *map(field_words, line.fields)] for line in matrix.lines])
    if scores := overlay_runs(runs).mutants:
        yield "\n### Mutants\n"
        yield from (f"- {for_markdown(line)}" for line in mutant_lines(scores, with_survivors=False))
    notes = [f"{name}: not run" for name in counts.not_run]
    for run in runs:
        declared = [f"declared for {name}: {text}" for name, texts in run.plan.xfail.items() for text in texts]
        own = [*(line for line, _ in remarks(run)), *declared]
        notes += [f"{run.name}: {line}" if run.name else line for line in own]
    if notes:
        yield "\n### Not run, declared, incomplete\n"
        yield from (f"- {for_markdown(note)}" for note in notes[:_MOST_NOTES])
        yield from [f"- and {len(notes) - _MOST_NOTES} more"] * (len(notes) > _MOST_NOTES)


def _suspects(runs: Sequence[RunRecords], suspects: Sequence[Suspect]) -> Iterator[str]:
    """Yields a numbered list of suspects for each kernel, and the commands that run them again."""
    shown = suspects[:_MOST_SUSPECTS]
    kernels = name_kernels(dict.fromkeys(each.pairing for each in shown), overlay_runs(runs).pairings)
    for pairing, mine in itertools.groupby(shown, lambda each: each.pairing):
        yield f"### {for_markdown(kernels[pairing])}\n"
        for number, suspect in enumerate(mine, 1):
            first, *rest = suspect_points(suspect)
            yield f"{number}. {first}"
            yield from (f"   - {line}" for line in rest)
        yield ""
    yield from [f"and {len(suspects) - len(shown)} more suspects\n"] * (len(suspects) > len(shown))
    firsts = [suspect.findings[0] for suspect in shown]
    known = set(map(id, firsts))
    run_of = {id(record): run for run in runs for record in run.records if id(record) in known}
    commands = dict.fromkeys(pytest_command(run_of[id(r)].plan, r.backend, r.item) for r in firsts)
    yield from ["Reproduce:\n\n```", *map(for_terminal, commands), "```\n"] if suspects else []


def suspect_points(suspect: Suspect) -> list[str]:
    """Formats a suspect as Markdown lines; the first is its title with counts and id."""
    title = f"**{for_markdown(suspect.title)}** ({for_markdown(in_counts(suspect))}; {suspect.id})"
    return [title, *(for_markdown(line.strip()) for line in format_suspect(suspect)[1:])]
