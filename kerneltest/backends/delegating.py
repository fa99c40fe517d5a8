"""The base class of backends that wrap another one."""

import copy
from collections.abc import Callable
from typing import Any

from kerneltest.backends.base import Artifact, Backend, Executable, FastPath, ProductionExecutable
from kerneltest.trace.tracing import Traced


class DelegatingBackend(Backend):
    """A backend that forwards every member of `Backend` to another one. Subclasses override some of them.

    Attributes:
      wrapped: the other one.
    """

    def __init__(self, wrapped: Backend, id: str = "") -> None:  # noqa: A002
        """Initialises the instance.

        Args:
          wrapped: the backend to forward to.
          id: its own id; by default the wrapped backend's.
        """
        self.wrapped, self.id = wrapped, id or wrapped.id
        self.tier, self.costly = wrapped.tier, wrapped.costly  # type: ignore[misc]
        self.runs_jaxpr, self.supports_scale = wrapped.runs_jaxpr, wrapped.supports_scale  # type: ignore[misc]

    @property
    def platform(self) -> str:
        return self.wrapped.platform

    def unavailable(self) -> str:
        return self.wrapped.unavailable()

    def unsupported_reason(self, traced: Traced) -> str:
        return self.wrapped.unsupported_reason(traced)

    def unavailable_for(self, traced: Traced) -> str:
        return self.wrapped.unavailable_for(traced)

    def prepare(self, traced: Traced) -> Executable | Artifact:
        return self.wrapped.prepare(traced)

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> FastPath | None:
        return self.wrapped.fast_path(compiled, count)

    def prepare_at_scale(self, traced: Traced) -> ProductionExecutable:
        return self.wrapped.prepare_at_scale(traced)

    def lowering_backend(self) -> str:
        return self.wrapped.lowering_backend()

    def with_program_orders(self, count: int) -> Backend:
        other = copy.copy(self)
        other.wrapped = self.wrapped.with_program_orders(count)
        return other

    def environment(self) -> dict[str, Any]:
        return self.wrapped.environment()


class UnavailableBackend(DelegatingBackend):
    """A backend that cannot run one kernel on this machine.

    Args:
      wrapped: the backend.
      reason: why it cannot.
    """

    def __init__(self, wrapped: Backend, reason: str) -> None:
        super().__init__(wrapped)
        self._reason = reason

    def unavailable(self) -> str:
        return self._reason
