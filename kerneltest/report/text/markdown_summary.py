"""The summary of some runs as Markdown for the page of a CI job."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kerneltest.core.failures import UnusableInputError
from kerneltest.core.media import for_terminal
from kerneltest.records.files import write_text
from kerneltest.records.runs import RunRecords, overlay_runs
from kerneltest.records.schema import MutationScore
from kerneltest.report.counts import Counts
from kerneltest.report.matrix import by_tier
from kerneltest.report.panels import render
from kerneltest.report.rerun_commands import pytest_command
from kerneltest.report.text.lines import field_words, for_markdown, markdown_table
from kerneltest.report.text.suspect_text import SuspectText, describe_suspect, name_function
from kerneltest.report.text.terminal_summary import mutant_lines, remarks
from kerneltest.triage.suspects import Suspect

# Badges: the outcome of some runs, or their mutation scores, in one line.

# White text on each has a contrast over 4.5.
_HEX = {"brightgreen": "#197b30", "yellow": "#8a6d00", "orange": "#b35900", "red": "#c0392b"}
_GREEN_FROM, _YELLOW_FROM = 0.9, 0.7  # shares of mutants


@dataclass(frozen=True, slots=True)
class Badge:
    """A badge with its colour: `brightgreen`, `yellow`, `orange` or `red`."""

    label: str
    message: str
    colour: str


def conformance_badge(counts: Counts) -> Badge:
    """Returns the badge for the outcome of some runs. A run that lacks anything is never green."""
    message = for_terminal(str(counts) if counts.complete else f"incomplete, {counts}")
    if counts.failed:
        colour = "red"
    elif not counts.complete:
        colour = "orange"
    else:
        colour = "brightgreen" if counts.green else "yellow"
    return Badge("kernel conformance", message, colour)


def mutation_badge(scores: Sequence[MutationScore]) -> Badge:
    """Returns the badge for the mutants of all pairings together; refuses runs without any."""
    killed, survived = (sum(getattr(score, end) for score in scores) for end in ("killed", "survived"))
    if not killed + survived:
        raise UnusableInputError("the runs have no mutation scores: run pytest with --kt-mutate and --kt-report")
    share = killed / (killed + survived)
    colour = "brightgreen" if share >= _GREEN_FROM else "yellow" if share >= _YELLOW_FROM else "orange"
    return Badge("mutants found", f"{share:.1%} of {killed + survived:,}", colour)


def write_badge(path: Path, badge: Badge) -> None:
    """Writes a badge: `.svg`, or `.json` for an endpoint of shields.io; refuses other suffixes."""
    if path.suffix == ".json":
        shields = {"schemaVersion": 1, "label": badge.label, "message": badge.message, "color": badge.colour}
        write_text(path, json.dumps(shields) + "\n")
    elif path.suffix == ".svg":
        left, right = (round(6.6 * len(text)) + 10 for text in (badge.label, badge.message))  # stretched to fit
        fill = _HEX[badge.colour]
        svg = render("badge.svg", label=badge.label, message=badge.message, left=left, right=right, colour=fill)
        write_text(path, svg + "\n")
    else:
        raise UnusableInputError(f"{path}: a badge is an .svg or a .json file")


_MOST_SUSPECTS = 50
_MOST_NOTES = 100
_SIGNS = {"red": "❌", "orange": "❌", "yellow": "⚠️", "brightgreen": "✅"}


def markdown_summary(runs: Sequence[RunRecords], counts: Counts, suspects: Sequence[Suspect]) -> Iterator[str]:
    """Yields the lines of suspects, the matrix, and remarks as a Markdown page."""
    badge = conformance_badge(counts)
    yield f"## {_SIGNS[badge.colour]} Kernel conformance: {for_markdown(badge.message)}\n"
    yield from _suspects(runs, suspects)
    matrix = by_tier(runs)
    headings = ["pairing", *(column.title for column in matrix.columns)]
    yield markdown_table(headings, [[row.pairing, *map(field_words, row.fields)] for row in matrix.rows])
    if scores := overlay_runs(runs).mutants:
        yield "\n### Mutants\n"
        yield from (f"- {for_markdown(line)}" for line in mutant_lines(scores, with_survivors=False))
    notes = [f"{name}: not run" for name in counts.not_run]
    for run in runs:
        declared = [f"declared for {name}: {text}" for name, texts in run.plan.xfail.items() for text in texts]
        own = [*(line.text for line in remarks(run)), *declared]
        notes += [f"{run.name}: {line}" if run.name else line for line in own]
    if notes:
        yield "\n### Not run, declared, incomplete\n"
        yield from (f"- {for_markdown(note)}" for note in notes[:_MOST_NOTES])
        yield from [f"- and {len(notes) - _MOST_NOTES} more"] * (len(notes) > _MOST_NOTES)


def _suspects(runs: Sequence[RunRecords], suspects: Sequence[Suspect]) -> Iterator[str]:
    shown = suspects[:_MOST_SUSPECTS]
    declared = overlay_runs(runs).pairings
    for pairing, mine in itertools.groupby(enumerate(shown, 1), lambda numbered: numbered[1].pairing):
        yield f"### {for_markdown(name_function(pairing, declared.get(pairing)))}\n"
        for number, suspect in mine:
            first, *rest = suspect_points(describe_suspect(suspect), suspect.id)
            yield f"{number}. {first}"
            yield from (f"   - {line}" for line in rest)
        yield ""
    yield from [f"and {len(suspects) - len(shown)} more suspects\n"] * (len(suspects) > len(shown))
    firsts = [suspect.findings[0] for suspect in shown]
    known = set(map(id, firsts))
    run_of = {id(record): run for run in runs for record in run.records if id(record) in known}
    commands = dict.fromkeys(pytest_command(run_of[id(r)].plan, r.backend, r.item) for r in firsts)
    yield from ["Reproduce:\n\n```", *map(for_terminal, commands), "```\n"] if suspects else []


def suspect_points(text: SuspectText, suspect_id: str) -> list[str]:
    """Formats a suspect as Markdown lines; the first is its title with counts and id."""
    title = f"**{for_markdown(text.title)}** ({for_markdown(text.counts)}; {suspect_id})"
    return [title, *(for_markdown(line.strip()) for line in text.details)]
