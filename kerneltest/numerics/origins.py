"""The expression in the oracle's source that computes a value."""

import functools
import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import numpy as np

_NUMERICS = str(Path(__file__).parent)
_NUMPY = str(Path(np.__file__).parent)


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """An expression in a source file.

    Attributes:
      file: the path of the file; "" if unknown.
      line: the line of the expression's first character, counted from 1; 0 if unknown.
      text: the expression, joined to one line.
    """

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"`{self.text}` at {Path(self.file).name}:{self.line}" if self.line else "the oracle"


def current_origin() -> ValueOrigin:
    """Returns the innermost expression under evaluation outside this package and NumPy."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_NUMERICS, _NUMPY)):
            return _expression(frame.f_code, frame.f_lasti)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ValueOrigin("", 0, "")


@functools.lru_cache(maxsize=4096)
def _expression(code: CodeType, instruction: int) -> ValueOrigin:
    """Returns the expression of an instruction, or the name of its function if the source is unavailable."""
    positions = list(code.co_positions())
    line, end, start_column, end_column = positions[min(instruction // 2, len(positions) - 1)]
    first = line or code.co_firstlineno
    lines = [linecache.getline(code.co_filename, number) for number in range(first, (end or first) + 1)]
    if not any(lines):
        return ValueOrigin(code.co_filename, first, code.co_name)
    if start_column is not None and end_column is not None:  # in bytes of UTF-8
        raw = [each.encode() for each in lines]
        raw[-1] = raw[-1][:end_column]
        raw[0] = raw[0][start_column:]
        lines = [each.decode(errors="replace") for each in raw]
    return ValueOrigin(code.co_filename, first, " ".join(" ".join(lines).split()))
