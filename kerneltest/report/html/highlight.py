"""Highlights Python source as tokens, which the page shows by `textContent` only."""

from pygments import lex
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from kerneltest.records.run_plan import FunctionSource

# Token types of Pygments and their CSS classes.
_CLASSES = (
    (Comment, "c"),
    (String, "s"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Number, "n"),
    (Name.Decorator, "d"),
    (Name.Function, "f"),
)

TokenLine = list[list[str]]
"""The tokens of a line: pairs of a CSS class, "" for none, and text."""


def highlight_source(source: FunctionSource) -> list[tuple[int, list[TokenLine]]]:
    """Highlights each part of a source; returns the number of its first line, and its lines."""
    return [(first, _highlight_lines(text)) for first, text in source.parts]


def _highlight_lines(text: str) -> list[TokenLine]:
    lines: list[TokenLine] = [[]]
    for token, value in lex(text, PythonLexer(stripnl=False)):
        name = next((name for parent, name in _CLASSES if token in parent), "")
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if not piece:
                continue
            if lines[-1] and lines[-1][-1][0] == name:
                lines[-1][-1][1] += piece
            else:
                lines[-1].append([name, piece])
    while lines and not lines[-1]:
        lines.pop()
    return lines
