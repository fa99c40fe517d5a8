"""The summary of some runs as Markdown, for a job's page."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerneltest.core.verdicts import Verdict
from kerneltest.records.files import write_text
from kerneltest.records.runs import Run
from kerneltest.records.schema import Record
from kerneltest.report.commands import pytest_command
from kerneltest.report.counts import Counts
from kerneltest.report.matrix import by_tier
from kerneltest.report.templating import render
from kerneltest.report.text.tables import for_markdown, for_terminal, in_words, markdown_table
from kerneltest.report.text.terminal import remarks

_MOST_FINDINGS = 50
_MOST_NOTES = 100
_SIGNS = {"red": "❌", "orange": "❌", "yellow": "⚠️", "brightgreen": "✅"}


def markdown(runs: Sequence[Run], counts: Counts) -> str:
    """A page of the matrix, the findings, and what was not run."""
    return "\n".join(_page(runs, counts)) + "\n"


def _page(runs: Sequence[Run], counts: Counts) -> Iterator[str]:
    yield f"## {_SIGNS[colour(counts)]} Kernel conformance: {for_markdown(message(counts))}\n"
    matrix = by_tier(runs)
    headings = ["pairing", *(column.title for column in matrix.columns)]
    yield markdown_table(headings, [[line.pairing, *map(in_words, line.fields)] for line in matrix.lines])
    yield from _findings(runs)
    notes = [f"{name}: not run" for name in counts.not_run]
    for run in runs:
        declared = [f"declared for {name}: {text}" for name, texts in run.plan.xfail.items() for text in texts]
        own = [*(line for line, _ in remarks(run)), *declared]
        notes += [f"{run.name}: {line}" if run.name else line for line in own]
    if notes:
        yield "\n### Not run, declared, incomplete\n"
        yield from (f"- {for_markdown(note)}" for note in notes[:_MOST_NOTES])
        yield from [f"- and {len(notes) - _MOST_NOTES} more"] * (len(notes) > _MOST_NOTES)


def _findings(runs: Sequence[Run]) -> Iterator[str]:
    """A row for all findings with one verdict in a cell: the first case stands for the others."""
    grouped: dict[tuple[int, str, str, Verdict], list[Record]] = {}
    for number, run in enumerate(runs):
        for record in run.records:
            if record.verdict.is_finding:
                grouped.setdefault((number, record.item, record.family, record.verdict), []).append(record)
    if not grouped:
        return
    most_severe_first = sorted(grouped.items(), key=lambda pair: -pair[0][3].severity)
    shown = [(runs[number], records) for (number, *_), records in most_severe_first[:_MOST_FINDINGS]]
    yield f"\n### {sum(map(len, grouped.values()))} findings\n"
    yield markdown_table(
        ["verdict", "item", "family", "cases", "first", ""], [_row(run, records) for run, records in shown]
    )
    yield from [f"\nand {len(grouped) - len(shown)} more cells"] * (len(grouped) > len(shown))
    yield "\nTo see them again:\n\n```"
    commands = (pytest_command(run.plan, records[0].backend, records[0].item) for run, records in shown)
    yield from dict.fromkeys(map(for_terminal, commands))
    yield "```"


def _row(run: Run, records: Sequence[Record]) -> list[str]:
    first = records[0]
    signature = f"{first.signature} in {first.target}" if first.target else first.signature
    item = f"{run.name}: {first.item}" if run.name else first.item
    return [first.verdict, item, first.family, str(len(records)), signature, (first.message.splitlines() or [""])[0]]


_LABEL = "kernel conformance"
_HEX = {"brightgreen": "#197b30", "yellow": "#8a6d00", "orange": "#b35900", "red": "#c0392b"}  # white on each: over 4.5


def write_badge(path: Path, counts: Counts) -> None:
    """Writes a badge: `.svg`, or `.json` as shields.io takes it from an endpoint.

    Raises:
      ValueError: another kind of file.
    """
    if path.suffix == ".json":
        badge = {"schemaVersion": 1, "label": _LABEL, "message": message(counts), "color": colour(counts)}
        write_text(path, json.dumps(badge) + "\n")
    elif path.suffix == ".svg":
        words = message(counts)
        left, right = (round(6.6 * len(text)) + 10 for text in (_LABEL, words))  # the letters are stretched to fit
        fill = _HEX[colour(counts)]
        svg = render("badge.svg", label=_LABEL, message=words, left=left, right=right, colour=fill)
        write_text(path, svg + "\n")
    else:
        raise ValueError(f"{path}: a badge is an .svg or a .json file")


def message(counts: Counts) -> str:
    """What the runs come to, in a line."""
    return for_terminal(str(counts) if counts.complete else f"incomplete, {counts}")


def colour(counts: Counts) -> str:
    """`brightgreen`, `yellow`, `orange` or `red`. What was not run is never green."""
    if counts.failed:
        return "red"
    if not counts.complete:
        return "orange"
    return "brightgreen" if counts.green else "yellow"
