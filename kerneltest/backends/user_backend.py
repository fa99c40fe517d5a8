"""Checks of users' backends: a wrong exception or result ends one case and names the backend."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.base import (
    Agree,
    Artifact,
    DelegatingBackend,
    Executable,
    FastPath,
    Inputs,
    Outputs,
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


def _refuse(sentence: str, **values: int | str) -> Failure:
    return Failure(Verdict.RUNTIME_ERROR, Stated(f"backend {{backend}} {sentence}", values))


# Returns a method that forwards; if that raises, `fallback` gives a result from the id and the error's text.
def _or_else(name: str, fallback: Callable[[str, str], Any]) -> Any:
    def method(self: DelegatingBackend, *arguments: Any) -> Any:
        try:
            return getattr(self.wrapped, name)(*arguments)
        except Exception as error:
            return fallback(self.id, format_exception(error))

    return method


class UserBackend(DelegatingBackend):
    """A backend that `kt.backend` registered. Its exceptions become failures, and its results are checked."""

    unavailable = _or_else(
        "unavailable", lambda name, error: f"backend {name} raised {error} when asked whether it is available"
    )
    unavailable_for = _or_else(
        "unavailable_for", lambda name, error: f"backend {name} raised {error} when asked whether it can run the kernel"
    )
    unsupported_reason = _or_else("unsupported_reason", lambda *_: "")  # `prepare` reports it for each case
    lowering_backend = _or_else("lowering_backend", lambda *_: "")
    environment = _or_else("environment", lambda _, error: {"environment": f"unknown ({error})"})

    def prepare(self, traced: Traced) -> Executable | Artifact:
        with _convert_exceptions(self.id):
            self.wrapped.unsupported_reason(traced)
            prepared = self.wrapped.prepare(traced)
        if self.tier.gives_values:
            return _checked(self.id, prepared, traced)
        if not isinstance(prepared, Artifact):
            raise _refuse("prepared {value} instead of a kt.Artifact", backend=self.id, value=repr(prepared))
        return prepared

    def fast_path(self, compiled: Callable[[Traced], Executable], count: Callable[[], None]) -> FastPath | None:
        try:
            found = self.wrapped.fast_path(compiled, count)
        except Exception:
            return None  # all cases run on the executables of `prepare`
        return None if found is None else _CheckedFastPath(self.id, found)

    def prepare_at_scale(self, traced: Traced) -> ProductionExecutable:
        with _convert_exceptions(self.id):
            prepared = self.wrapped.prepare_at_scale(traced)
        return _CheckedExecutable(self.id, prepared, traced.outputs, convert=lambda samples: samples)


# An executable of a user's backend, whose outputs must have the kernel's shapes and dtypes. At production sizes, inputs
# are procedural arrays and outputs are samples, which `convert` keeps.
@dataclass(frozen=True, slots=True)
class _CheckedExecutable:
    backend: str
    wrapped: Any
    outputs: tuple[ShapeDtype, ...]
    convert: Callable[[Any], Any] = np.asarray

    @property
    @raises_for_user
    def precision(self) -> Precision:
        with _convert_exceptions(self.backend):
            precision: Precision = self.wrapped.precision
            return precision

    @raises_for_user
    def run(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        with _convert_exceptions(self.backend):
            return self._check(tuple(map(self.convert, self.wrapped.run(leaves))))

    def _check(self, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        returned, wanted = (", ".join(f"{x.dtype}{list(x.shape)}" for x in part) for part in (outputs, self.outputs))
        if returned != wanted:
            sentence = "returned {returned}, but the kernel's outputs are {wanted}"
            raise _refuse(sentence, backend=self.backend, returned=returned, wanted=wanted)
        return outputs


@dataclass(frozen=True, slots=True)
class _CheckedBatchExecutable(_CheckedExecutable):
    @raises_for_user
    def run_batch(self, cases: Sequence[Sequence[Array]]) -> Sequence[Outputs]:
        with _convert_exceptions(self.backend):
            results = [tuple(map(np.asarray, outputs)) for outputs in self.wrapped.run_batch(cases)]
            if len(results) != len(cases):
                sentence = "returned outputs for {returned} of {cases} cases"
                raise _refuse(sentence, backend=self.backend, returned=len(results), cases=len(cases))
            return [self._check(outputs) for outputs in results]


@raises_for_user
def _checked(backend: str, prepared: Any, traced: Traced) -> Executable:
    kind = _CheckedBatchExecutable if hasattr(prepared, "run_batch") else _CheckedExecutable
    return kind(backend, prepared, traced.outputs)


def _converted(name: str) -> Any:
    def method(self: "_CheckedFastPath", *arguments: Any) -> Any:
        with _convert_exceptions(self.backend):
            return getattr(self.wrapped, name)(*arguments)

    return method


@dataclass(frozen=True, slots=True)
class _CheckedFastPath:
    backend: str
    wrapped: FastPath
    covers = _converted("covers")
    is_trusted = _converted("is_trusted")
    is_contradicted = _converted("is_contradicted")

    def prepare_checked(self, traced: Traced, inputs: Inputs, agree: Agree) -> Executable | None:
        found = self.wrapped.prepare_checked(traced, inputs, agree)
        return None if found is None else _checked(self.backend, found, traced)

    def prepare_unchecked(self, traced: Traced) -> Executable | None:
        found = self.wrapped.prepare_unchecked(traced)
        return None if found is None else _checked(self.backend, found, traced)
