"""Lines of reports as data, and the escaping of text for Markdown."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from kerneltest.core.media import for_terminal

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
        """Returns the line with the indent of a suspect's lines."""
        return replace(self, text=f"{' ' * _INDENT}{self.text}")

    def wrapped(self, width: int | None) -> "Iterator[Line]":
        """Yields the line in parts of at most `width` columns (None: any number), with a hanging indent."""
        if width is None or len(self.text) <= width or self.is_whole or self.kind is LineKind.COMMAND:
            yield self
            return
        own = len(self.text) - len(self.text.lstrip())
        indent = " " * (max(_INDENT, own) + 4)
        parts = textwrap.wrap(
            self.text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
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
