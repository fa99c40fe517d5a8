"""Checks of users' backends: a wrong exception or result ends one case and names the backend."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.base import (
    Agree,
    Artifact,
    BatchExecutable,
    DelegatingBackend,
    Executable,
    FastPath,
    Inputs,
    Outputs,
    OutputSamples,
    ProceduralArray,
    ProductionExecutable,
)
from kerneltest.backends.jitted import poisons_device
from kerneltest.core.details import DeviceLost, Raised, Stated
from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.core.failures import Failure, convert_exceptions, format_exception, raises_for_user
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.tracing import Traced


@contextmanager
def _convert_exceptions(backend: str) -> Iterator[None]:
    try:
        with convert_exceptions(f"backend {backend}", Verdict.RUNTIME_ERROR, with_source=True):
            yield
    except Failure as failure:
        detail = failure.detail
        if isinstance(detail, Raised) and poisons_device(detail.said):
            raise Failure(failure.verdict, DeviceLost(detail.error, detail.said, detail.who)) from failure
        raise


class UserBackend(DelegatingBackend):
    """A backend that `kt.backend` registered. Its exceptions become failures, and its results are checked."""

    def unavailable(self) -> str:
        try:
            return self.wrapped.unavailable()
        except Exception as error:
            return f"backend {self.id} raised {format_exception(error)} when asked whether it is available"

    def unsupported_reason(self, traced: Traced) -> str:
        try:
            return self.wrapped.unsupported_reason(traced)
        except Exception:
            return ""  # `prepare` reports it for each case

    def unavailable_for(self, traced: Traced) -> str:
        try:
            return self.wrapped.unavailable_for(traced)
        except Exception as error:
            return f"backend {self.id} raised {format_exception(error)} when asked whether it can run the kernel"

    def prepare(self, traced: Traced) -> Executable | Artifact:
        with _convert_exceptions(self.id):
            self.wrapped.unsupported_reason(traced)
            prepared = self.wrapped.prepare(traced)
        if self.tier.gives_values:
            return _checked(self.id, prepared, traced)
        if not isinstance(prepared, Artifact):
            sentence = "backend {backend} prepared {value} instead of a kt.Artifact"
            values = {"backend": self.id, "value": repr(prepared)}
            raise Failure(Verdict.RUNTIME_ERROR, Stated(sentence, values))
        return prepared

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> FastPath | None:
        try:
            found = self.wrapped.fast_path(compiled, count)
        except Exception:
            return None  # all cases run on the executables of `prepare`
        return None if found is None else CheckedFastPath(self.id, found)

    def prepare_at_scale(self, traced: Traced) -> ProductionExecutable:
        with _convert_exceptions(self.id):
            return CheckedAtScale(self.id, self.wrapped.prepare_at_scale(traced), traced.outputs)

    def lowering_backend(self) -> str:
        try:
            return self.wrapped.lowering_backend()
        except Exception:
            return ""

    def environment(self) -> dict[str, Any]:
        try:
            return self.wrapped.environment()
        except Exception as error:
            return {"environment": f"unknown ({format_exception(error)})"}


@dataclass(frozen=True, slots=True)
class CheckedExecutable:
    """An executable of a user's backend, whose outputs must have the kernel's shapes and dtypes."""

    backend: str
    wrapped: Executable
    outputs: tuple[ShapeDtype, ...]

    @property
    @raises_for_user
    def precision(self) -> Precision:
        with _convert_exceptions(self.backend):
            return self.wrapped.precision

    @raises_for_user
    def run(self, leaves: Sequence[Array]) -> Outputs:
        with _convert_exceptions(self.backend):
            outputs = tuple(map(np.asarray, self.wrapped.run(leaves)))
        _check_outputs(self.backend, outputs, self.outputs)
        return outputs


@dataclass(frozen=True, slots=True)
class CheckedBatchExecutable(CheckedExecutable):
    """The same for one that runs several cases at once."""

    wrapped: BatchExecutable

    @raises_for_user
    def run_batch(self, cases: Sequence[Sequence[Array]]) -> Sequence[Outputs]:
        with _convert_exceptions(self.backend):
            results = [tuple(map(np.asarray, outputs)) for outputs in self.wrapped.run_batch(cases)]
        if len(results) != len(cases):
            sentence = "backend {backend} returned outputs for {returned} of {cases} cases"
            detail = Stated(sentence, {"backend": self.backend, "returned": len(results), "cases": len(cases)})
            raise Failure(Verdict.RUNTIME_ERROR, detail)
        for outputs in results:
            _check_outputs(self.backend, outputs, self.outputs)
        return results


@dataclass(frozen=True, slots=True)
class CheckedAtScale:
    """A kernel that a user's backend prepared for production sizes."""

    backend: str
    wrapped: ProductionExecutable
    outputs: tuple[ShapeDtype, ...]

    @property
    def precision(self) -> Precision:
        with _convert_exceptions(self.backend):
            return self.wrapped.precision

    def run(self, leaves: Sequence[ProceduralArray]) -> tuple[OutputSamples, ...]:
        with _convert_exceptions(self.backend):
            samples = tuple(self.wrapped.run(leaves))
            _check_outputs(self.backend, samples, self.outputs)
        return samples


@dataclass(frozen=True, slots=True)
class CheckedFastPath:
    """The fast path of a user's backend."""

    backend: str
    wrapped: FastPath

    def covers(self, traced: Traced) -> bool:
        with _convert_exceptions(self.backend):
            return self.wrapped.covers(traced)

    def prepare_checked(self, traced: Traced, inputs: Inputs, agree: Agree) -> Executable | None:
        found = self.wrapped.prepare_checked(traced, inputs, agree)
        return None if found is None else _checked(self.backend, found, traced)

    def is_trusted(self, traced: Traced) -> bool:
        with _convert_exceptions(self.backend):
            return self.wrapped.is_trusted(traced)

    def is_contradicted(self, traced: Traced) -> bool:
        with _convert_exceptions(self.backend):
            return self.wrapped.is_contradicted(traced)

    def prepare_unchecked(self, traced: Traced) -> Executable | None:
        found = self.wrapped.prepare_unchecked(traced)
        return None if found is None else _checked(self.backend, found, traced)


@raises_for_user
def _checked(backend: str, prepared: Any, traced: Traced) -> CheckedExecutable:
    if hasattr(prepared, "run_batch"):
        return CheckedBatchExecutable(backend, prepared, traced.outputs)
    return CheckedExecutable(backend, prepared, traced.outputs)


def _check_outputs(
    backend: str, outputs: Sequence[ShapeDtype | OutputSamples | Array], expected: Sequence[ShapeDtype]
) -> None:
    """Raises Failure if outputs have other shapes or dtypes than expected."""
    returned, wanted = (", ".join(f"{x.dtype}{list(x.shape)}" for x in arrays) for arrays in (outputs, expected))
    if returned != wanted:
        sentence = "backend {backend} returned {returned}, but the kernel's outputs are {wanted}"
        values = {"backend": backend, "returned": returned, "wanted": wanted}
        raise Failure(Verdict.RUNTIME_ERROR, Stated(sentence, values))
