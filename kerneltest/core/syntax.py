"""Syntax trees of any source text."""

import ast
from pathlib import Path


class SourceError(Exception):
    """A file has no syntax tree. The message says why.

    Attributes:
      line: the line of the error; 0 if it is unknown.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        """Stores the line next to the message."""
        super().__init__(message)
        self.line = line


def parse_source(source: str | bytes) -> ast.Module | None:
    """Returns the syntax tree of a source text; None if it is not Python, or nested too deeply for Python's parser."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def read_source(path: Path) -> ast.Module:
    """Returns the syntax tree of a file.

    Raises:
      SourceError: the file cannot be read or parsed.
    """
    try:
        return ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise SourceError(error.msg, error.lineno or 0) from error
    except (RecursionError, MemoryError) as error:
        raise SourceError("nested too deeply for Python's parser") from error
    except (OSError, ValueError) as error:
        raise SourceError(str(error)) from error
