"""Lines of reports as data, tables, and the escaping of text for Markdown."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tabulate import tabulate

from kerneltest.core.media import for_terminal
from kerneltest.core.verdicts import Ending, Verdict
from kerneltest.report.matrix import Field, Matrix

MAX_TEXT = 300  # characters of one text on a Markdown page, since the page of a CI job may have 1 MiB in all
_INDENT = 3  # columns before the lines of a suspect


class LineKind(StrEnum):
    """The kinds of lines, by the colours in which a terminal shows them, as pytest names these; "" for none."""

    PLAIN = ""
    TITLE = "bold"
    COMMAND = "cyan"
    GOOD = "green"
    NOTE = "yellow"
    WRONG = "red"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a report."""

    kind: LineKind  # what it is about. Commands are never wrapped, since they are copied in one piece
    text: str  # without colours; text from records is not escaped
    is_whole: bool = False  # whether it must not be wrapped, whatever its kind

    def indented(self) -> "Line":
        return replace(self, text=f"{' ' * _INDENT}{self.text}")

    def wrapped(self, width: int | None) -> "Iterator[Line]":
        """Yields the line in parts of at most `width` columns (None: any number), with a hanging indent."""
        if width is None or len(self.text) <= width or self.is_whole or self.kind is LineKind.COMMAND:
            yield self
            return
        own = len(self.text) - len(self.text.lstrip())
        later = " " * (max(_INDENT, own) + 4)
        parts = textwrap.wrap(self.text, width, subsequent_indent=later, break_long_words=False, break_on_hyphens=False)
        yield from (replace(self, text=part) for part in parts)


def as_lines(kind: LineKind, texts: Iterable[str]) -> Iterator[Line]:
    """Yields texts as lines of one kind."""
    yield from (Line(kind, text) for text in texts)


def truncate(text: str, most: int) -> str:
    """Returns text, cut to a number of characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def for_markdown(text: str) -> str:
    """Returns text as one line of at most `MAX_TEXT` characters, with all Markdown syntax escaped."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@:$^-])", r"\\\1", truncate(for_terminal(text), MAX_TEXT))


# Tables, and the fields of the matrix as words or signs.


def terminal_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats a table with columns as wide as their content; returns its lines, the headings first."""
    shown = [[for_terminal(text) for text in row] for row in (headings, *rows)]
    return [line.rstrip() for line in tabulate(shown, tablefmt="plain", disable_numparse=True).splitlines()]


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a Markdown table; all texts are escaped."""
    shown = [[for_markdown(text) for text in row] for row in rows]
    return str(tabulate(shown, [for_markdown(text) for text in headings], tablefmt="pipe", disable_numparse=True))


def field_words(field: Field) -> str:
    """Formats a field as words: `54 pass, 54 compile_error (gfx942 sm_90)`; "" if nothing was planned."""
    words = []
    for ending, count in field.counts.items():
        targets = [target for target in field.targets[ending] if target and ending is not Verdict.PASS]
        on = f" ({' '.join(targets)})" if targets else ""
        words.append(f"{ending}{on}" if ending is Verdict.UNAVAILABLE else f"{count} {ending}{on}")
    return ", ".join(words)


def field_signs(field: Field) -> str:
    """Formats a field as signs: `✓54 ✗54`; "" if nothing was planned."""
    signs: Counter[str] = Counter()
    for ending, count in field.counts.items():
        signs[_sign(ending)] += count
    absent = Verdict.UNAVAILABLE.letter
    return " ".join(sign if sign == absent else f"{sign}{count}" for sign, count in signs.items())


def _sign(ending: Ending) -> str:
    return "✗" if ending.is_finding and isinstance(ending, Verdict) else ending.letter


def matrix_table(matrix: Matrix, width: int | None) -> Iterator[Line]:
    """Yields the lines of a matrix in words; in signs, if words are wider than the width (None: any)."""
    if not matrix.rows:
        return
    headings = ["", *(column.title for column in matrix.columns)]
    words, signs = (
        terminal_table(headings, [[row.pairing, *map(shown, row.fields)] for row in matrix.rows])
        for shown in (field_words, field_signs)
    )
    narrow = width is not None and max(map(len, words)) > width
    heading, *texts = signs if narrow else words
    yield Line(LineKind.PLAIN, heading)
    for row, text in zip(matrix.rows, texts, strict=True):
        endings = {ending for field in row.fields for ending in field.counts}
        green = LineKind.GOOD if Verdict.PASS in endings else LineKind.NOTE
        yield Line(green if all(ending.is_green for ending in endings) else LineKind.WRONG, text)
    if narrow:
        found = {_sign(ending): ending for row in matrix.rows for field in row.fields for ending in field.counts}
        meanings = (f"{sign} {'finding' if sign == '✗' else e.replace('_', ' ')}" for sign, e in found.items())
        yield Line(LineKind.PLAIN, f"{'  '.join(meanings)}; numbers: cases")
