"""What a backend is."""

from collections.abc import Sequence
from typing import Any, Protocol

from kerneltest.dtypes import Array
from kerneltest.tolerance import Precision
from kerneltest.trace import Traced


class BackendError(Exception):
    """A kernel that a backend could not prepare or run.

    Attributes:
      verdict: what that is called.
    """

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class Executable(Protocol):
    """A kernel prepared for one signature."""

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        """The outputs, once they are all there.

        Raises:
          BackendError: with verdict `runtime_error` or a sharper one.
        """
        ...


class Backend(Protocol):
    """A place to run kernels, or a stage to take them to.

    Attributes:
      id: as users select it and records name it.
      tier: `interpret`, `lower`, `compile`, `simulate` or `device`.
    """

    @property
    def id(self) -> str: ...

    @property
    def tier(self) -> str: ...

    def unavailable(self) -> str:
        """Why this machine cannot serve it, or ""."""
        ...

    def refuses(self, traced: Traced) -> str:
        """Why it cannot serve this kernel, whatever its values, or ""."""
        ...

    def precision(self, traced: Traced) -> Precision:
        """What it does to this kernel's numbers."""
        ...

    def prepare(self, traced: Traced) -> Executable:
        """Compiles one signature.

        Raises:
          BackendError: with verdict `unimplemented`, `resource_exceeded` or `compile_error`.
        """
        ...

    def environment(self) -> dict[str, Any]:
        """What to record about the device, for reports."""
        ...
