"""The summary of some runs as Markdown for a job's page, and as a badge."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import jinja2

from kerneltest.core.verdicts import Verdict
from kerneltest.records.runs import Run
from kerneltest.records.schema import Record
from kerneltest.report.text.plain import for_markdown, for_terminal
from kerneltest.report.text.summary import Counts, matrix, remarks, splits

_MOST_FINDINGS = 50
_MOST_NOTES = 100
_LABEL = "kernel conformance"
_HEX = {"brightgreen": "#197b30", "yellow": "#8a6d00", "orange": "#b35900", "red": "#c0392b"}  # white on each: over 4.5


def markdown(runs: Sequence[Run], counts: Counts) -> str:
    """A page of the matrix, the findings, and what was not run."""
    return "\n".join(_markdown(runs, counts)) + "\n"


def _markdown(runs: Sequence[Run], counts: Counts) -> Iterator[str]:
    yield f"## {_sign(counts)} Kernel conformance: {for_markdown(_message(counts))}\n"
    table = matrix(runs)
    yield f"| pairing | {' | '.join(map(for_markdown, table.columns))} |"
    yield "| --- |" + " --- |" * len(table.columns)
    for pairing, cells in table.rows:
        yield f"| {for_markdown(pairing)} | {' | '.join(for_markdown(cell.words) for cell in cells)} |"
    # One row for all that has the same verdict in a cell: the first case stands for the others.
    findings: dict[tuple[str, str, str, Verdict], list[Record]] = {}
    of_run = {run.name: run for run in runs}
    for run in runs:
        for record in run.records:
            if record.verdict.is_finding:
                findings.setdefault((run.name, record.item, record.family, record.verdict), []).append(record)
    ordered = sorted(findings.items(), key=lambda found: -found[0][3].severity)
    if ordered:
        yield f"\n### {sum(map(len, findings.values()))} findings\n"
        yield "| verdict | item | family | cases | first | |\n| --- | --- | --- | --- | --- | --- |"
        for (name, item, family, verdict), records in ordered[:_MOST_FINDINGS]:
            first = records[0]
            signature = f"{first.signature} in {first.target}" if first.target else first.signature
            where = f"{name}: {item}" if name else item
            shown = [verdict, where, family, str(len(records)), signature, _first_line(first)]
            yield f"| {' | '.join(map(for_markdown, shown))} |"
        yield from [f"\nand {len(ordered) - _MOST_FINDINGS} more cells"] * (len(ordered) > _MOST_FINDINGS)
        yield "\nTo see them again:\n\n```"
        yield from dict.fromkeys(_command(records[0], of_run[name]) for (name, *_), records in ordered[:_MOST_FINDINGS])
        yield "```"
    notes = [f"{name}: not run" for name in counts.not_run]
    for run in runs:
        told = [line for line, _ in remarks(run)] + list(splits(run.records))
        told += [f"declared for {name}: {line}" for name, texts in run.plan.xfail.items() for line in texts]
        notes += [f"{run.name}: {line}" if run.name else line for line in told]
    if notes:
        yield "\n### Not run, declared, incomplete\n"
        yield from (f"- {for_markdown(note)}" for note in notes[:_MOST_NOTES])
        yield from [f"- and {len(notes) - _MOST_NOTES} more"] * (len(notes) > _MOST_NOTES)


def _first_line(record: Record) -> str:
    return record.message.splitlines()[0] if record.message else ""


def _command(record: Record, run: Run) -> str:
    fuzz = f" --kt-fuzz {run.plan.fuzz}" if run.plan.fuzz else ""
    options = f"--kt-depth {run.plan.depth} --kt-seed {run.plan.seed}{fuzz} --kt-backends {record.backend}"
    return for_terminal(f'pytest -p kerneltest {options} "{record.item}"')


def write_badge(path: Path, counts: Counts) -> None:
    """Writes a badge: `.svg`, or `.json` as shields.io takes it from an endpoint.

    Raises:
      ValueError: another kind of file.
    """
    if path.suffix == ".json":
        badge = {"schemaVersion": 1, "label": _LABEL, "message": _message(counts), "color": _colour(counts)}
        path.write_text(json.dumps(badge) + "\n", encoding="utf-8")
    elif path.suffix == ".svg":
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("kerneltest.report.text"), autoescape=True, undefined=jinja2.StrictUndefined
        )
        message = for_terminal(_message(counts))
        widths = [round(6.6 * len(text)) + 10 for text in (_LABEL, message)]  # the letters are stretched to fit
        badge_text = environment.get_template("badge.svg").render(
            label=_LABEL, message=message, left=widths[0], right=widths[1], colour=_HEX[_colour(counts)]
        )
        path.write_text(badge_text + "\n", encoding="utf-8")
    else:
        raise ValueError(f"{path}: a badge is an .svg or a .json file")


def _message(counts: Counts) -> str:
    return str(counts) if counts.complete else f"incomplete, {counts}"


def _colour(counts: Counts) -> str:
    """What was not run is never green."""
    if counts.failed:
        return "red"
    if not counts.complete:
        return "orange"
    return "brightgreen" if counts.green else "yellow"


def _sign(counts: Counts) -> str:
    return {"red": "❌", "orange": "❌", "yellow": "⚠️", "brightgreen": "✅"}[_colour(counts)]
