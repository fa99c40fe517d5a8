"""The guard around evidence: it neither changes nor delays the verdict that it is about."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

from kerneltest.core.blame import Origin, internal_failure, origin_of
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
