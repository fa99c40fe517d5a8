"""Exceptions of kerneltest that cost no verdict: the guard around evidence, and the fast paths that fail."""

import math
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from kerneltest.core.blame import Origin, describe_internal_error, internal_failure, origin_of, underlying_exception
from kerneltest.core.details import ISSUES
from kerneltest.core.failures import Failure

_T = TypeVar("_T")


class Guard:
    """Collects evidence. Whatever raises or comes too late is left out.

    Attributes:
      failures: the `internal_error` for each exception of kerneltest; those of user code and JAX are ignored.
      deadline: when to stop, in seconds of the monotonic clock.
    """

    def __init__(self, failures: list[Failure], seconds: float = math.inf) -> None:
        """Initialises the instance.

        Args:
          failures: the list to which failures are added.
          seconds: the time limit.
        """
        self.failures = failures
        self.deadline = time.monotonic() + seconds

    def collect(self, doing: str, make: Callable[[], _T], default: _T, *reraised: type[Exception]) -> _T:
        """Returns the result of a function, or a default if it raises or the time is over.

        Args:
          doing: what the function does, as a participle.
          make: the function.
          default: the result in its place.
          *reraised: exceptions that pass, such as those of a full disk.
        """
        if time.monotonic() > self.deadline:
            return default
        try:
            return make()
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, GeneratorExit, *reraised)):
                raise
            cause = error.__cause__ if isinstance(error, Failure) else error
            if cause is not None and origin_of(cause) is Origin.KERNELTEST:
                self.failures.append(internal_failure(cause, doing))
            return default


class RecoveryWarning(UserWarning):
    """kerneltest raised an exception where it has another way to the same result."""


def warn_of_recovery(error: Exception, doing: str, *expected: type[Exception]) -> None:
    """Warns of an exception of kerneltest after which it goes another way. Exceptions of others say nothing.

    Args:
      error: the exception, or a failure that it caused.
      doing: what kerneltest was doing, as a participle.
      *expected: exceptions by which kerneltest itself says that it must go another way.
    """
    cause = underlying_exception(error)
    if cause is None or isinstance(cause, expected) or origin_of(cause) is not Origin.KERNELTEST:
        return
    detail = describe_internal_error(cause, doing)
    text = (
        "kerneltest took a slower way after an exception of its own. No verdict depends on it. Please report it at "
        f"{ISSUES}:\n{detail.report_text()}"
    )
    warnings.warn(text, RecoveryWarning, stacklevel=2)
