"""The expression in the oracle's source that computes a value, and the sources of error."""

import functools
import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import numpy as np

_NUMERICS = str(Path(__file__).parent)
_NUMPY = str(Path(np.__file__).parent)

_LONGEST = 48  # characters of an expression in a description


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


@dataclass(frozen=True, slots=True)
class ErrorSource:
    """A source of error: an operation of the oracle, and the part of it that rounds.

    Attributes:
      origin: the expression in the oracle's source.
      kind: `rounding`, `summing`, the format of operands, such as `TF32 operands`, or `cast to bfloat16`.
    """

    origin: ValueOrigin
    kind: str

    @property
    def description(self) -> str:
        """The source in words: "TF32 rounding of the operands of `q @ k.T`"."""
        text = self.origin.text
        if not text:
            return self.kind
        expression = f"`{text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}`"
        if self.kind.endswith(" operands"):
            return f"{self.kind.removesuffix(' operands')} rounding of the operands of {expression}"
        return f"{self.kind} {'in' if self.kind.startswith('cast') else 'of'} {expression}"


BACKWARDS = " in the derivative"
"""The end of the kind of an error that the derivative of an operation makes."""

_NOWHERE = ValueOrigin("", 0, "")
RESULT = ErrorSource(_NOWHERE, "a few roundings of the result")
FLUSHED = ErrorSource(_NOWHERE, "flushed subnormal inputs")
STORED = ErrorSource(_NOWHERE, "rounding of stored outputs")
INPUTS = ErrorSource(_NOWHERE, "a rounding of the inputs")
"""The unit in which the other sources are measured; it is in no bound."""
