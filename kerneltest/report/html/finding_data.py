"""The part of the page's JSON document that describes findings. If there are too many, the most diverse are kept."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from kerneltest.core.verdicts import Gap
from kerneltest.records.error_budget_text import instability_note
from kerneltest.records.evidence import Evidence, Window
from kerneltest.records.files import open_inside
from kerneltest.records.overlay import Overlay, OverlayRow
from kerneltest.records.runs import RunRecords, load_windows
from kerneltest.records.schema import Record
from kerneltest.report.rerun_commands import pytest_command, python_lines, repro_command
from kerneltest.triage.attribution import attributions

Json = dict[str, object]

# Limits that keep the page small. Details beyond them are only in the records, and the page says so.
MOST_FINDINGS = 2000
MOST_DRAWN = 40_000  # elements in pictures
MOST_SCRIPTS = 100
MOST_TEXT = 4000  # characters of a message
_MOST_SCRIPT = 20_000  # bytes
_MOST_PARTS = 8  # of a bound
_SCRIPT = re.compile(r"cases/(reproduce|cut)_\w+-\w+\.py", re.ASCII)


def picture_data(evidence: Evidence) -> Json | None:
    """Returns the output around the worst element, which the page draws on the block grid; None if not recorded."""
    window = evidence.window
    if window is None:
        return None
    return {
        **_window(window),
        "expected": [json_number(value) for value in window.expected],
        "bound": [json_number(float(f"{value:.3g}")) for value in window.bound],
        "wrong": window.wrong,
        "worst": list(evidence.index),
        "output": evidence.output,
    }


def error_map_data(evidence: Evidence) -> Json | None:
    """Returns error / bound over the whole output, with the kernel's blocks along its last two axes."""
    errors, window = evidence.errors, evidence.window
    if errors is None or window is None:
        return None
    return {
        "shape": list(errors.shape),
        "tiles": list(errors.tiles),
        "tile": list(errors.tile),
        "levels": errors.levels,
        "blocks": list(window.blocks),
        "output": evidence.output,
    }


def input_data(evidence: Evidence) -> list[Json]:
    """Returns the arguments around the worst element."""
    return [_window(window) for window in evidence.inputs]


def budget_data(record: Record) -> list[list[object]]:
    """Returns the parts of a bound: description, FILE:LINE ("" if not one operation), and fraction."""
    return [
        [each.words[:MOST_TEXT], f"{each.file[:MOST_TEXT]}:{each.line}" if each.file else "", each.part]
        for each in record.error_budget[:_MOST_PARTS]
    ]


def json_number(value: float | int | bool | None) -> float | int | bool | str | None:
    """Converts a number to strict JSON: strings for NaN and infinities, floats to nine digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    return value


def _window(window: Window) -> Json:
    return {
        "name": window.name,
        "dtype": window.dtype,
        "shape": list(window.shape),
        "origin": list(window.origin),
        "extent": list(window.extent),
        "blocks": list(window.blocks),
        "values": [json_number(value) for value in window.values],
    }


def finding_details(merged: Overlay, rows: Sequence[OverlayRow]) -> list[Json]:
    """Returns the details of findings.

    Args:
      merged: the runs, overlaid.
      rows: their rows in the page's order; a detail refers to its row by number.
    """
    attributed = attributions([row.record for row in rows])
    scripts = 0
    chosen = []
    numbers = _most_diverse_first(rows)[:MOST_FINDINGS]
    shown = load_windows(merged.runs, _records_to_draw(rows[number].record for number in numbers))
    for number in numbers:
        row = rows[number]
        record, run = row.record, merged.runs[row.run]
        evidence = record.evidence or Evidence()
        blamed = attributed.get((record.pairing, record.case, record.backend))
        detail: Json = {
            "row": number,
            "run": row.run,
            "case": record.case,
            "place": record.detail.place if record.detail is not None else "",
            "tolerance": record.tolerance,
            "suspect": blamed.text() if blamed is not None else "",
            "commands": _commands(record, run),
            "python": python_lines(run.plan, record) or "",
        } | _evidence(record, evidence)
        if record.error_budget:
            detail["budget"], detail["unstable"] = budget_data(record), instability_note(record.error_budget)
        if (pictured := shown.get(id(record))) is not None and (image := picture_data(pictured)) is not None:
            detail["picture"], detail["inputs"] = image, input_data(pictured)
            detail["errors"] = error_map_data(pictured)
        if scripts < MOST_SCRIPTS and (text := read_script(run.folder, evidence.script)):
            scripts += 1
            detail["code"] = text
        chosen.append(detail)
    return chosen


def _records_to_draw(records: Iterable[Record]) -> list[Record]:
    """Returns the records whose pictures fit into the page."""
    chosen, drawn = [], 0
    for record in records:
        if drawn < MOST_DRAWN and record.evidence is not None and record.evidence.window is not None:
            drawn += math.prod(record.evidence.window.extent)
            chosen.append(record)
    return chosen


def _most_diverse_first(rows: Sequence[OverlayRow]) -> list[int]:
    """Returns the numbers of findings such that a limit cuts repetitions: the first of each kind come first."""
    seen: Counter[tuple[str, ...]] = Counter()
    ranked = []
    for number, row in enumerate(rows):
        if row.needs_attention and not isinstance(row.ending, Gap):
            record = row.record
            broad = (record.pairing, row.ending)
            narrow = (*broad, record.backend, record.dtype, record.family)
            drawable = record.evidence is not None and record.evidence.window is not None
            ranked.append((seen[narrow], not drawable, seen[broad], number))
            seen.update((narrow, broad))
    return [number for *_, number in sorted(ranked)]


def _commands(record: Record, run: RunRecords) -> list[str]:
    """Returns the shell commands: one for the item, and one for the saved inputs if there are any."""
    commands = [pytest_command(run.plan, record.backend, record.item)]
    if record.evidence is not None and record.evidence.file:
        commands.append(repro_command(run.name, record.case, record.backend))
    return commands


def _evidence(record: Record, evidence: Evidence) -> Json:
    detail: Json = {name: getattr(evidence, name) for name in ("diagnosis", "block", "file", "script")}
    detail["pattern"] = evidence.pattern.text() if evidence.pattern is not None else ""
    detail["stderr"] = evidence.stderr[-MOST_TEXT:]
    detail["arguments"] = dict(evidence.arguments or {})
    if evidence.index or evidence.actual is not None:
        detail["at"] = {
            "output": evidence.output,
            "index": list(evidence.index),
            "actual": json_number(evidence.actual),
            "expected": json_number(evidence.expected),
            "bound": json_number(float(evidence.bound)),
            "wrong": record.wrong,
            "compared": record.compared,
            "blocks": list(evidence.wrong_blocks),
        }
    return {name: value for name, value in detail.items() if value not in ("", {}, None)}


def read_script(folder: Path, name: str) -> str:
    """Reads a script that a run wrote; "" if it is missing or too long.

    The name is from a record and not trusted: no other file is read.
    """
    if not _SCRIPT.fullmatch(name):
        return ""
    try:
        with open_inside(folder, name) as file:
            text = file.read(_MOST_SCRIPT + 1)
        return text.decode("utf-8") if len(text) <= _MOST_SCRIPT else ""
    except (OSError, ValueError):
        return ""
