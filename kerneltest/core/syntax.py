"""Syntax trees of any source text."""

import ast


def parse_source(source: str | bytes) -> ast.Module | None:
    """Returns the syntax tree of a source text; None if it is not Python, or nested too deeply for Python's parser."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
