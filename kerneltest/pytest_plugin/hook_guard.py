"""The guard around hooks: an exception of kerneltest ends the session in words, not as INTERNALERROR."""

import functools
import inspect
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from kerneltest.core.blame import Origin, describe_internal_error, origin_of
from kerneltest.core.failures import Failure


def guard_hooks(namespace: MutableMapping[str, Any]) -> None:
    """Guards every hook in a module's or a class's namespace, except generators, which others raise into."""
    for name, hook in list(namespace.items()):
        if name.startswith("pytest_") and inspect.isfunction(hook) and not inspect.isgeneratorfunction(hook):
            namespace[name] = _guard(hook)


def _guard(hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return hook(*args, **kwargs)
        except (pytest.UsageError, pytest.exit.Exception, pytest.Collector.CollectError, OSError):
            raise
        except Exception as error:
            if isinstance(error, Failure) or origin_of(error) is not Origin.KERNELTEST:
                raise
            detail = describe_internal_error(error, f"in pytest's hook {hook.__name__.removeprefix('pytest_')}")
            pytest.exit(f"{detail.text()}\n{detail.report_text()}", returncode=pytest.ExitCode.INTERNAL_ERROR)

    return guarded
