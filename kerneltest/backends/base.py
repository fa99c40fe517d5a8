"""The interface of backends, of executables, and of artifacts."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.plan.production_sizes import PositionCodedArray
from kerneltest.trace.local_kernels import exchange_in
from kerneltest.trace.tracing import Traced, device_problem

Outputs = tuple[Array, ...]
DType = np.dtype[Any]


class Executable(Protocol):
    """A kernel prepared for one signature; `precision` is the rounding of the machine that it runs on."""

    @property
    def precision(self) -> Precision: ...

    def run(self, leaves: Sequence[Array]) -> Outputs:
        """Returns the outputs, once all are complete; a Failure has `runtime_error` or a more precise verdict."""


@runtime_checkable
class BatchExecutable(Executable, Protocol):
    """An executable that can run several cases at once."""

    def run_batch(self, cases: Sequence[Sequence[Array]]) -> Sequence[Outputs]:
        """Returns the outputs of each case, given by its inputs. Failure: as `run` does for any of them."""


@dataclass(frozen=True, eq=False, slots=True)
class OutputSamples:
    """Some elements of an output that is too large to be judged as a whole."""

    shape: tuple[int, ...]
    dtype: DType
    offsets: Array  # flat, int64 (n,)
    values: Array  # the elements there (n,)
    undefined: Array  # whether an element depends on memory that was never written, bool (n,)
    # Flat offsets of elements that no program writes, as far as known, int64 (k,).
    unwritten: Array = field(default_factory=lambda: np.zeros(0, np.int64))


class ProductionExecutable(Protocol):
    """A kernel prepared for production sizes, with the rounding of its machine."""

    @property
    def precision(self) -> Precision: ...

    def run(self, leaves: Sequence[PositionCodedArray]) -> tuple[OutputSamples, ...]:
        """Returns some elements of each output. Failure: it is wrong; `unavailable` if it cannot run at these sizes."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """The result of a tier that computes no values.

    Attributes:
      kernels: the number of Pallas calls that were taken there.
      facts: the compiler's report by kernel: registers per thread, bytes of shared memory, ...
      advice: facts that the kernel's author may want to change, in words.
      files: makes a text for each file name: Triton IR and assembly.
    """

    kernels: int
    facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    files: Callable[[], Mapping[str, str]] = dict


class ContradictedError(Exception):
    """A fast path computes something else than JAX does, in words."""

    def __init__(self, said: str, *runs: tuple[Callable[[Sequence[Array]], Outputs], Outputs]) -> None:
        super().__init__(said)
        self.runs = runs  # if two runs of one case were compared: for each a way to repeat it, and its results


Inputs = Callable[[], Sequence[Array]]
Agree = Callable[[Outputs, Outputs, Precision], bool]


class FastPath(Protocol):
    """A backend's own way to run cases without compiling each signature; cases that do not pass run again, compiled."""

    def covers(self, traced: Traced) -> bool:
        """Checks whether it can run a kernel. If so, nothing needs to be compiled ahead."""

    def prepare_checked(self, traced: Traced, inputs: Inputs, agree: Agree) -> Executable | None:
        """Returns the kernel's executable, checked on one case; None if it must not be used.

        `agree` compares the outputs for `inputs`, which are made only then, with those of compiled code. Raises a
        ContradictedError when they do not agree; later calls return None.
        """

    def is_trusted(self, traced: Traced) -> bool:
        """Checks whether `prepare_checked` has returned an executable for a kernel."""

    def is_contradicted(self, traced: Traced) -> bool:
        """Checks whether compiled code has been seen to compute something else than this path, which JAX confirms."""

    def prepare_unchecked(self, traced: Traced) -> Executable | None:
        """Returns the executable of a kernel, unchecked; None if there is none."""


class Backend(ABC):
    """A place to run kernels, or a stage to take them to.

    Attributes:
      id: as users select it and records name it.
      tier: how far it takes a kernel.
      costly: a run costs as much as a compilation. Then each family runs on only some signatures, and each signature
        with only some families, but each at least once.
      runs_jaxpr: it runs the whole traced function as it is, so that rewritten functions can be run as well.
      supports_scale: it can run a kernel at production sizes, by `prepare_at_scale`.
      device_platform: the platform of JAX's device that it needs; "" for any.
      platform: the platform for which kernels are traced: `cuda`, `rocm`, `tpu` or a TPU generation; "" for any.
    """

    id: str
    tier: ClassVar[Tier]
    costly: ClassVar[bool] = False
    runs_jaxpr: ClassVar[bool] = False
    supports_scale: ClassVar[bool] = False
    device_platform: ClassVar[str] = ""

    def unavailable(self) -> str:
        """Returns why this machine cannot serve it, or "". The default checks that JAX finds a device."""
        return device_problem(self.device_platform)

    def unsupported_reason(self, traced: Traced) -> str:
        """Returns why it is not applicable to a kernel, whatever the values, or ""."""
        return ""

    def unavailable_for(self, traced: Traced) -> str:
        """Returns why it cannot run a kernel on this machine, though it runs others, or ""."""
        if self.tier.gives_values:
            return traced.not_local
        return exchange_in(call.equation for call in traced.calls)  # they are compiled one by one

    @property
    def platform(self) -> str:
        return ""

    @abstractmethod
    def prepare(self, traced: Traced) -> Executable | Artifact:
        """Returns an executable, or an artifact if the tier computes no values, of one signature.

        Failure: with verdict `unimplemented`, `resource_exceeded` or `compile_error`.
        """

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> FastPath | None:
        """Returns a faster way to run the cases of a pairing in a dtype, or None; `count` is called for each kernel."""
        return None

    def prepare_at_scale(self, traced: Traced) -> ProductionExecutable:
        """Prepares a kernel for sizes too large to hold, if the backend `supports_scale`; raises as `prepare`."""
        raise NotImplementedError

    def lowering_backend(self) -> str:
        """Returns the id of another backend that reports whether a kernel lowers for this one, or ""."""
        return ""

    def with_program_orders(self, count: int) -> "Backend":
        """Returns the same backend, which also runs programs in `count` random orders if it can."""
        return self

    def environment(self) -> dict[str, Any]:
        """Returns facts about the device to record for reports."""
        return {}


class DelegatingBackend(Backend):
    """A backend that forwards to `wrapped` what subclasses do not override; its own id may differ."""

    def __init__(self, wrapped: Backend, id: str = "") -> None:  # noqa: A002
        self.wrapped, self.id = wrapped, id or wrapped.id

    def prepare(self, traced: Traced) -> Executable | Artifact:
        return self.wrapped.prepare(traced)

    def with_program_orders(self, count: int) -> Backend:
        other = copy.copy(self)
        other.wrapped = self.wrapped.with_program_orders(count)
        return other


for _name in {"tier", *(name for name in vars(Backend) if not name.startswith("_"))} - vars(DelegatingBackend).keys():
    setattr(DelegatingBackend, _name, property(attrgetter(f"wrapped.{_name}")))


class UnavailableBackend(DelegatingBackend):
    """A backend that cannot run one kernel on this machine, or for which that kernel could not be planned."""

    def __init__(self, wrapped: Backend, failure: Failure) -> None:
        super().__init__(wrapped)
        self.failure = failure  # the only outcome of the kernel on it

    def unavailable(self) -> str:
        return str(self.failure)
