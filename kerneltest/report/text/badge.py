"""The badge of some runs: its words, its colour, the file."""

import json
from pathlib import Path

from kerneltest.report.counts import Counts
from kerneltest.report.templating import render
from kerneltest.report.text.escape import for_terminal

_LABEL = "kernel conformance"
_HEX = {"brightgreen": "#197b30", "yellow": "#8a6d00", "orange": "#b35900", "red": "#c0392b"}  # white on each: over 4.5


def write_badge(path: Path, counts: Counts) -> None:
    """Writes a badge: `.svg`, or `.json` as shields.io takes it from an endpoint.

    Raises:
      ValueError: another kind of file.
    """
    if path.suffix == ".json":
        badge = {"schemaVersion": 1, "label": _LABEL, "message": message(counts), "color": colour(counts)}
        path.write_text(json.dumps(badge) + "\n", encoding="utf-8")
    elif path.suffix == ".svg":
        words = for_terminal(message(counts))
        left, right = (round(6.6 * len(text)) + 10 for text in (_LABEL, words))  # the letters are stretched to fit
        fill = _HEX[colour(counts)]
        svg = render("badge.svg", label=_LABEL, message=words, left=left, right=right, colour=fill)
        path.write_text(svg + "\n", encoding="utf-8")
    else:
        raise ValueError(f"{path}: a badge is an .svg or a .json file")


def message(counts: Counts) -> str:
    """What the runs come to, in a line."""
    return str(counts) if counts.complete else f"incomplete, {counts}"


def colour(counts: Counts) -> str:
    """`brightgreen`, `yellow`, `orange` or `red`. What was not run is never green."""
    if counts.failed:
        return "red"
    if not counts.complete:
        return "orange"
    return "brightgreen" if counts.green else "yellow"
