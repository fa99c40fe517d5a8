"""Problems of a declaration: all of them in one error, which shows no frame of kerneltest."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

from kerneltest.core.failures import DeclarationError

Problem = tuple[str, str]  # where a declaration is wrong, and how
Problems = Iterator[Problem]

_MOST = 5  # lines below the first one
_LONGEST = 60  # characters of a value

_P = ParamSpec("_P")
_R = TypeVar("_R")


def refuse(pairing: str, problems: Iterable[Problem]) -> None:
    """Raises an error that reports all problems of a declaration, if it has any.

    Args:
      pairing: its name.
      problems: in the order in which they are reported.

    Raises:
      DeclarationError: there is a problem.
    """
    lines = [f"{place}: {what}" for place, what in dict.fromkeys(problems)]
    if len(lines) == 1:
        raise DeclarationError(f"pairing {pairing!r}, {lines[0]}")
    if lines:
        shown = lines if len(lines) <= _MOST else [*lines[: _MOST - 1], f"and {len(lines) - _MOST + 1} more"]
        head = f"pairing {pairing!r} has {len(lines)} mistakes:"
        raise DeclarationError("\n".join([head, *(f"  {line}" for line in shown)]))


def hide_frames(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorates a function that users call to declare something, so that its errors point at their line.

    One frame remains, which pytest and IPython hide.
    """

    @functools.wraps(function)
    def declare(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            raise error.with_traceback(None) from None

    return declare


def format_given(given: object) -> str:
    """Formats a value in the place of a declaration, as its author wrote it if it is a function."""
    module, name = getattr(given, "__module__", None) or "", getattr(given, "__name__", "")
    if callable(given) and name:
        return f"{name} without its parentheses" if module.startswith("kerneltest.") else name
    text = repr(given)
    return text if len(text) <= _LONGEST and "\n" not in text else f"a {type(given).__name__}"
