"""Suspects as annotations of a GitHub job: workflow commands, which GitHub shows at the kernel's line."""

from collections.abc import Iterator, Mapping, Sequence

from kerneltest.records.run_plan import PairingSummary
from kerneltest.records.runs import RunRecords
from kerneltest.report.counts import gaps
from kerneltest.report.suspect_location import locate_suspect
from kerneltest.report.text.suspect_text import MOST_SUSPECTS, format_counts, format_suspect
from kerneltest.report.text.tables import for_terminal
from kerneltest.triage.suspect import Suspect

_NAME = "kerneltest"


def github_annotations(
    suspects: Sequence[Suspect], declared: Mapping[str, PairingSummary], runs: Sequence[RunRecords]
) -> Iterator[str]:
    """Yields a workflow command for each suspect, and one for each run that is incomplete.

    GitHub shows ten errors and ten warnings of a step; suspects come in the order of their importance.

    Args:
      suspects: the suspects of the runs.
      declared: their pairings by name.
      runs: the runs.
    """
    for suspect in suspects[:MOST_SUSPECTS]:
        location = locate_suspect(suspect, declared.get(suspect.pairing))
        where = {"file": location.file, "line": str(location.line or 1)} if location.is_inside else {}
        lines = [suspect.title, format_counts(suspect), *format_suspect(suspect)[1:]]
        yield _command("warning" if suspect.known_bug else "error", lines, {**where, "title": f"{_NAME} {suspect.id}"})
    for run in runs:
        if missing := gaps(run):
            name = f"{run.name}: " if run.name else ""
            yield _command("error", [f"{name}incomplete", *missing[:MOST_SUSPECTS]], {"title": _NAME})


def _command(level: str, lines: Sequence[str], properties: Mapping[str, str]) -> str:
    """Formats a workflow command. All text is escaped, so that no record can end it or begin another one."""
    shown = ",".join(f"{name}={_escape(for_terminal(value), ':,')}" for name, value in properties.items())
    return f"::{level} {shown}::{_escape(chr(10).join(map(for_terminal, lines)))}"


def _escape(text: str, separators: str = "") -> str:
    for character in ("%", "\r", "\n", *separators):
        text = text.replace(character, f"%{ord(character):02X}")
    return text
