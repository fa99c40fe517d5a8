"""A device that another machine has: it can be planned for here, and not run."""

from collections.abc import Mapping
from typing import Any

from kerneltest.backends.base import Artifact, Backend, Executable
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.tracing import Traced


class Elsewhere(Backend):
    """A backend as another machine has it, or lacks it.

    Attributes:
      here: the same of this machine.
    """

    def __init__(self, here: Backend, reason: str, facts: Mapping[str, str]) -> None:
        """Args:
        here: the same of this machine.
        reason: why the other cannot serve it; "" where it can.
        facts: what is recorded of the device.
        """
        self.here, self.id, self._reason, self._facts = here, here.id, reason, facts
        self.tier, self.costly = here.tier, here.costly  # type: ignore[misc]
        self.runs_jaxpr, self.scales = here.runs_jaxpr, here.scales  # type: ignore[misc]

    @property
    def platform(self) -> str:
        return self.here.platform

    def unavailable(self) -> str:
        return self._reason

    def unsupported_reason(self, traced: Traced) -> str:
        return self.here.unsupported_reason(traced)

    def prepare(self, traced: Traced) -> Executable | Artifact:
        raise Failure(Verdict.UNAVAILABLE, f"{self.id} is on another machine")

    def environment(self) -> dict[str, Any]:
        return dict(self._facts)
