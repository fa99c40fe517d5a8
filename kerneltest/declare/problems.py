"""Problems of a declaration: all of them in one error, which shows no frame of kerneltest."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ParamSpec, TypeVar

from kerneltest.core.extension_registry import suggest
from kerneltest.core.failures import DeclarationError
from kerneltest.core.media import lines_for_terminal

Problem = tuple[str, str]  # where a declaration is wrong, and how
Problems = Iterator[Problem]

_MOST = 5  # lines below the first one
_LONGEST = 60  # characters of a value

_P = ParamSpec("_P")
_R = TypeVar("_R")


def refuse(pairing: str, problems: Iterable[Problem]) -> None:
    """Raises a DeclarationError that reports all problems of a declaration, in order, if it has any."""
    lines = [f"{place}: {what}" for place, what in dict.fromkeys(problems)]
    if len(lines) == 1:
        raise DeclarationError(f"pairing {pairing!r}, {lines[0]}")
    if lines:
        shown = lines if len(lines) <= _MOST else [*lines[: _MOST - 1], f"and {len(lines) - _MOST + 1} more"]
        head = f"pairing {pairing!r} has {len(lines)} mistakes:"
        raise DeclarationError("\n".join([head, *(f"  {line}" for line in shown)]))


def explain_misuse(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorates a public function so that a wrong call is refused with its options and an example."""
    return _explained(function, ())


def hide_frames(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorates a function that declares something: errors point at its caller's line; wrong calls are explained."""
    return _explained(function, ValueError)


def _explained(function: Callable[_P, _R], hidden: type[Exception] | tuple[type[Exception], ...]) -> Callable[_P, _R]:
    @functools.wraps(function)
    def declare(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except hidden as error:
            plain = DeclarationError(str(error)) if type(error) is ValueError else error
            raise plain.with_traceback(None) from None
        except TypeError as error:
            if not (misuse := _find_misuse(function, args, kwargs)):
                _check_printable(error)
                raise
        raise DeclarationError(misuse)

    return declare


# Raises an error whose text has control characters, as from the name of a type, once more without them.
def _check_printable(error: TypeError) -> None:
    if (said := lines_for_terminal(str(error))) != str(error):
        raise TypeError(said).with_traceback(error.__traceback__) from None


def _find_misuse(function: Callable[..., object], given: Sequence[object], keywords: Iterable[str]) -> str:
    """Returns why a function cannot be called with some arguments, and how it can; "" if it can."""
    signature = inspect.signature(function)
    try:
        signature.bind(*given, **dict.fromkeys(keywords))
    except TypeError:
        pass
    else:
        return ""
    parameters = signature.parameters.values()
    names = [each.name for each in parameters]
    by_place = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    name = function.__name__
    shown = re.search(rf"kt\.(?:\w+\.)?{name}\((?:[^()]|\([^()]*\))*\)", function.__doc__ or "")
    example = f", as in {shown[0]}" if shown else ""
    if unknown := next((each for each in keywords if each not in names), ""):
        return f"{name}: {unknown!r} is not an option; the options are {', '.join(names)}{suggest(unknown, names)}"
    if len(given) > len(by_place):
        options = ", ".join(f"{each}=" for each in names[len(by_place) :]) or "none is left"
        several = f"; several {by_place[-1]} go into a tuple" if by_place and by_place[-1].endswith("s") else ""
        return f"{name}: {format_given(given[len(by_place)])} needs a name: {options}{several}{example}"
    taken = {*by_place[: len(given)], *keywords}
    lacking = next((each.name for each in parameters if each.default is each.empty and each.name not in taken), "")
    problem = f"it needs {lacking}" if lacking else f"it takes {', '.join(names)}, each once"
    return f"{name}: {problem}{example}"


def format_given(given: object) -> str:
    """Formats a value in the place of a declaration, as its author wrote it if it is a function."""
    module, name = getattr(given, "__module__", None) or "", getattr(given, "__name__", "")
    if callable(given) and name:
        return f"{name} without its parentheses" if module.startswith("kerneltest.") else name
    text = repr(given)
    return text if len(text) <= _LONGEST and "\n" not in text else f"a {type(given).__name__}"
