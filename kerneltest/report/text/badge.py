"""Badges: the outcome of some runs, or their mutation scores, in one line."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kerneltest.records.files import write_text
from kerneltest.records.mutation_scores import MutationScore
from kerneltest.report.counts import Counts
from kerneltest.report.templating import render
from kerneltest.report.text.tables import for_terminal

# White text on each has a contrast over 4.5.
_HEX = {
    "brightgreen": "#197b30",
    "yellow": "#8a6d00",
    "orange": "#b35900",
    "red": "#c0392b",
}
_GREEN_FROM, _YELLOW_FROM = 0.9, 0.7  # shares of mutants


@dataclass(frozen=True, slots=True)
class Badge:
    """A badge.

    Attributes:
      label, message: its texts.
      colour: `brightgreen`, `yellow`, `orange` or `red`.
    """

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
    """Returns the badge for the mutants of all pairings together.

    Raises:
      ValueError: no mutant was judged.
    """
    killed, survived = (sum(getattr(score, end) for score in scores) for end in ("killed", "survived"))
    if not killed + survived:
        raise ValueError("the runs have no mutation scores: run pytest with --kt-mutate and --kt-report")
    share = killed / (killed + survived)
    colour = "brightgreen" if share >= _GREEN_FROM else "yellow" if share >= _YELLOW_FROM else "orange"
    return Badge("mutants found", f"{share:.1%} of {killed + survived:,}", colour)


def write_badge(path: Path, badge: Badge) -> None:
    """Writes a badge: `.svg`, or `.json` for an endpoint of shields.io.

    Raises:
      ValueError: the file has another suffix.
    """
    if path.suffix == ".json":
        shields = {"schemaVersion": 1, "label": badge.label, "message": badge.message, "color": badge.colour}
        write_text(path, json.dumps(shields) + "\n")
    elif path.suffix == ".svg":
        left, right = (round(6.6 * len(text)) + 10 for text in (badge.label, badge.message))  # stretched to fit
        fill = _HEX[badge.colour]
        svg = render("badge.svg", label=badge.label, message=badge.message, left=left, right=right, colour=fill)
        write_text(path, svg + "\n")
    else:
        raise ValueError(f"{path}: a badge is an .svg or a .json file")
