"""Devices of other machines: kernels can be planned for them here, but not run."""

from collections.abc import Callable, Mapping
from typing import Any

from kerneltest.backends.base import Artifact, Backend, Executable, FastPath, ProductionExecutable
from kerneltest.backends.delegating import DelegatingBackend
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.tracing import Traced


class RemoteBackend(DelegatingBackend):
    """A backend as another machine serves it."""

    def __init__(self, wrapped: Backend, reason: str, facts: Mapping[str, str]) -> None:
        """Initialises the instance.

        Args:
          wrapped: the same backend on this machine.
          reason: why the other machine cannot serve it; "" if it can.
          facts: recorded about the device.
        """
        super().__init__(wrapped)
        self._reason, self._facts = reason, facts

    def unavailable(self) -> str:
        return self._reason

    def prepare(self, traced: Traced) -> Executable | Artifact:
        raise self._failure()

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> FastPath | None:
        return None

    def prepare_at_scale(self, traced: Traced) -> ProductionExecutable:
        raise self._failure()

    def environment(self) -> dict[str, Any]:
        return dict(self._facts)

    def _failure(self) -> Failure:
        return Failure(Verdict.UNAVAILABLE, f"{self.id} is on another machine")
