"""The guard around what pytest calls: an exception of kerneltest ends the run in words, not as INTERNALERROR."""

import functools
import inspect
import sys
from collections.abc import Callable, Generator, MutableMapping
from typing import Any, NoReturn, TypeVar

import pytest

from kerneltest.core.failures import Failure, Origin, describe_internal_error, exception_text, origin_of
from kerneltest.core.media import lines_for_terminal

# Hooks before and after a session, where pytest does not expect `pytest.exit`.
_OUTSIDE_OF_SESSION = ("pytest_addoption", "pytest_unconfigure")

_C = TypeVar("_C", bound=type)


def guard_hooks(namespace: MutableMapping[str, Any]) -> None:
    """Guards every hook in the namespace of a module or a class."""
    for name, hook in list(namespace.items()):
        if name.startswith("pytest_") and inspect.isfunction(hook):
            guard = _guard_generator if inspect.isgeneratorfunction(hook) else _guard
            namespace[name] = guard(hook, f"in pytest's hook {name.removeprefix('pytest_')}")


def guard_members(*names: str) -> Callable[[_C], _C]:
    """Guards those methods of a class of items that pytest calls outside of a test."""

    def guard(cls: _C) -> _C:
        for name in names:
            setattr(cls, name, _guard(getattr(cls, name), f"in {cls.__name__}.{name}"))
        return cls

    return guard


def _guard(function: Callable[..., Any], doing: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            _raise_in_words(error, doing, function.__name__)

    return guarded


# Guards a wrapper of other hooks. What those raise passes through it.
def _guard_generator(hook: Callable[..., Generator[Any, Any, Any]], doing: str) -> Callable[..., Any]:
    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        wrapper = hook(*args, **kwargs)
        others: BaseException | None = None
        try:
            started = next(wrapper)
            try:
                result = yield started
            except BaseException as error:
                others = error
                wrapper.throw(error)
            else:
                wrapper.send(result)
        except StopIteration as end:
            return end.value
        except Exception as error:
            # Python makes a `RuntimeError` of a `StopIteration` that passes through a generator, as pluggy expects it.
            if error is others or (isinstance(others, StopIteration) and error.__cause__ is others):
                raise
            _raise_in_words(error, doing, hook.__name__)

    return guarded


def _raise_in_words(error: Exception, doing: str, name: str) -> NoReturn:
    passes = (pytest.UsageError, pytest.exit.Exception, pytest.Collector.CollectError, Failure)
    if isinstance(error, passes) or origin_of(error) is not Origin.KERNELTEST:
        raise error
    if isinstance(error, OSError):  # such as that of a full disk
        text, status = describe_os_error(error), pytest.ExitCode.TESTS_FAILED
    else:
        detail = describe_internal_error(error, doing)
        text, status = lines_for_terminal(f"{detail.text()}\n{detail.report_text()}"), pytest.ExitCode.INTERNAL_ERROR
    if name in _OUTSIDE_OF_SESSION:
        print(text, file=sys.stderr)
        raise SystemExit(int(status)) from error
    pytest.exit(text, returncode=status)


def describe_os_error(error: OSError) -> str:
    """Returns an error of the operating system that keeps kerneltest from reading or writing a file, in words."""
    if error.filename is None:
        return lines_for_terminal(f"kerneltest cannot read or write its files: {exception_text(error)}")
    return lines_for_terminal(f"kerneltest cannot read or write {error.filename}: {error.strerror}")
