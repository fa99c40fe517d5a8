"""What a backend is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kerneltest.core.dtypes import Array
from kerneltest.declare.bounds import Precision
from kerneltest.jaxprs.trace import Traced


class BackendError(Exception):
    """A kernel that a backend could not prepare or run.

    Attributes:
      verdict: what that is called.
      stderr: what the process that failed wrote last, where there was one.
    """

    def __init__(self, verdict: str, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.verdict = verdict
        self.stderr = stderr


class Executable(Protocol):
    """A kernel prepared for one signature.

    Attributes:
      precision: what running it does to its numbers.
    """

    @property
    def precision(self) -> Precision: ...

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        """The outputs, once they are all there.

        Raises:
          BackendError: with verdict `runtime_error` or a sharper one.
        """
        ...


@dataclass(frozen=True, slots=True)
class Artifact:
    """A kernel taken as far as its tier goes, which gives no values.

    Attributes:
      kernels: how many Pallas calls were taken there.
      facts: by kernel, what the compiler tells: registers a thread, bytes of shared memory, ...
      advice: what in those facts its author may want to change.
      files: makes file names and texts: Triton IR and assembly.
    """

    kernels: int
    facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    files: Callable[[], Mapping[str, str]] = dict


class Backend(Protocol):
    """A place to run kernels, or a stage to take them to.

    Attributes:
      id: as users select it and records name it.
      tier: `interpret`, `lower`, `compile`, `simulate` or `device`.
      costly: a run costs as much as a compilation, so not every family is run on every signature, but each of either
        at least once.
    """

    @property
    def id(self) -> str: ...

    @property
    def tier(self) -> str: ...

    @property
    def costly(self) -> bool: ...

    def unavailable(self) -> str:
        """Why this machine cannot serve it, or ""."""
        ...

    def refuses(self, traced: Traced) -> str:
        """Why it cannot serve this kernel, whatever its values, or ""."""
        ...

    def prepare(self, traced: Traced) -> Executable | Artifact:
        """Takes one signature as far as it goes: tiers `lower` and `compile` end in an artifact.

        Raises:
          BackendError: with verdict `unimplemented`, `resource_exceeded` or `compile_error`.
        """
        ...

    def environment(self) -> dict[str, Any]:
        """What to record about the device, for reports."""
        ...
