"""The result of `kt.check` and its findings as text, for a console or a notebook."""

from collections.abc import Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.records.schema import Record
from kerneltest.report.text.suspect_text import format_pair, format_suspects
from kerneltest.report.text.tables import for_terminal
from kerneltest.triage.suspect import Suspect

_WIDTH = 100  # columns
_MOST_LINES = 24  # of a console
_MOST_TEXT = 200  # characters of a line
_MOST_MESSAGE = 6  # lines of a finding's message


def format_result(headline: str, suspects: Sequence[Suspect], remarks: Sequence[str]) -> str:
    """Formats a result on one screen: its headline, its suspects, and remarks on what was not run.

    Args:
      headline: the result in one line.
      suspects: its suspects, the most telling first.
      remarks: further lines.
    """
    shown = [line for line, _ in format_suspects(suspects, {}, width=_WIDTH)]
    lines = [headline, *shown, *remarks]
    more = len(lines) - _MOST_LINES
    if more > 0:
        lines = [*lines[: _MOST_LINES - 1], f"and {more + 1} more lines: see .suspects and .findings"]
    return "\n".join(map(_shorten, lines)).rstrip()


def format_finding(record: Record, arguments: Mapping[str, Array]) -> list[str]:
    """Formats a finding: its verdict, its inputs, and the worst element of the output.

    Args:
      record: of the finding.
      arguments: its inputs, by path.
    """
    lines = [f"{record.verdict} on {record.backend}: {record.family}, {record.signature}"]
    lines += [line for line in record.message.splitlines() if line][:_MOST_MESSAGE]
    for path, value in arguments.items():
        text = np.array2string(value, threshold=16, edgeitems=2)
        lines.append(f"{path} = {value.dtype}{list(value.shape)} {' '.join(text.split())}")
    evidence = record.evidence
    if evidence is not None and evidence.actual is not None:
        got, expected = format_pair(evidence.actual, evidence.expected)
        lines.append(f"got {got}, expected {expected} at {list(evidence.index)}")
    return list(map(_shorten, lines))


def _shorten(line: str) -> str:
    shown = for_terminal(line)
    return shown if len(shown) <= _MOST_TEXT else f"{shown[: _MOST_TEXT - 1]}…"
