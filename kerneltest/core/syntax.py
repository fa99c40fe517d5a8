"""Syntax trees of any source text."""

import ast
from pathlib import Path


def parse_source(source: str | bytes) -> ast.Module | None:
    """Returns the syntax tree of a source text; None if it is not Python, or nested too deeply for Python's parser."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parse_file(path: Path) -> ast.Module | None:
    """Returns the syntax tree of a file; None if it cannot be read or parsed."""
    try:
        return parse_source(path.read_bytes())
    except OSError:
        return None
