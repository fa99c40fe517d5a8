"""What a backend is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.trace.tracing import Traced, device_problem


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
          Failure: with verdict `runtime_error` or a sharper one.
        """
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Samples:
    """Some elements of an output that is too large to be judged as a whole.

    Attributes:
      shape, dtype: of the output.
      offsets: flat, int64 (n,).
      values: the elements there (n,).
      undefined: which of them depend on memory that nobody wrote, bool (n,).
      unwritten: flat offsets of elements that are known to be written by no program, int64 (k,).
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offsets: Array
    values: Array
    undefined: Array
    unwritten: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class Content(Protocol):
    """What an array argument holds: an element follows from where it is.

    Attributes:
      shape, dtype: as of any array.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def at(self, indices: Sequence[Any], xp: Any = np) -> Any:
        """The elements at some places: arrays of `xp` of 64-bit integers, one for each axis, that broadcast."""
        ...


class AtScale(Protocol):
    """A kernel prepared for sizes that users run.

    Attributes:
      precision: what running it does to its numbers.
    """

    @property
    def precision(self) -> Precision: ...

    def run(self, leaves: Sequence[Content]) -> tuple[Samples, ...]:
        """Some elements of each output.

        Raises:
          Failure: what the kernel did and must not; `unavailable`, where it cannot be run at these sizes.
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


@runtime_checkable
class Together(Executable, Protocol):
    """What runs several cases at once."""

    def run_all(self, cases: Sequence[Sequence[Array]]) -> Sequence[tuple[Array, ...]]:
        """The outputs of each, from the inputs of each; raises as `run` does where it would for any of them."""
        ...


class Evaluation(Executable, Protocol):
    """A kernel that runs without a compiler: what it takes is time, and no executable."""

    def is_faithful(self, leaves: Sequence[Array]) -> bool:
        """Whether what stands in for the backend gives the same bits as that for some inputs."""
        ...


class Backend(ABC):
    """A place to run kernels, or a stage to take them to.

    Attributes:
      id: as users select it and records name it.
      tier: how far it takes a kernel.
      costly: a run costs as much as a compilation, so not every family is run on every signature, but each of either
        at least once.
      runs_jaxpr: it runs the whole traced function as it is, so that a rewritten one says something.
      scales: it can run a kernel for sizes that are too large to hold, by `at_scale`.
      platform: what kernels are traced for: `cuda`, `rocm`, `tpu` or a TPU generation; "" for any.
    """

    id: str
    tier: ClassVar[Tier]
    costly: ClassVar[bool] = False
    runs_jaxpr: ClassVar[bool] = False
    scales: ClassVar[bool] = False

    def unavailable(self) -> str:
        """Why this machine cannot serve it, or "". By default it needs a JAX that starts, on whatever device."""
        return device_problem()

    def unsupported_reason(self, traced: Traced) -> str:
        """Why it is not for this kernel, whatever its values, or ""."""
        return ""

    @property
    def platform(self) -> str:
        return ""

    @abstractmethod
    def prepare(self, traced: Traced) -> Executable | Artifact:
        """Takes one signature as far as it goes: an artifact where the tier gives no values.

        Raises:
          Failure: with verdict `unimplemented`, `resource_exceeded` or `compile_error`.
        """

    def uncompiled(self, traced: Traced) -> Evaluation | None:
        """What runs it without a compiler, right within the same bounds; None where nothing does."""
        return None

    def at_scale(self, traced: Traced) -> AtScale:
        """The kernel for sizes that may be too large to hold, from a backend that `scales`.

        Raises:
          Failure: as `prepare` does.
        """
        raise NotImplementedError

    def lowered_by(self) -> str:
        """The backend that says whether a kernel lowers for this one, where that is another; else ""."""
        return ""

    def in_orders(self, count: int) -> "Backend":
        """The same, which also runs programs in so many random orders, where it can."""
        return self

    def environment(self) -> dict[str, Any]:
        """What to record about the device, for reports."""
        return {}
