"""A user's backend, held to what a backend may do: what else it raises or gives ends one case, and names it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.base import Artifact, Backend, Executable
from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.core.failures import Failure, convert_exceptions, format_exception
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.tracing import Traced


class Guarded(Backend):
    """A backend that `kt.backend` registered.

    Attributes:
      made: the user's own.
    """

    def __init__(self, made: Backend, id: str) -> None:  # noqa: A002
        self.made, self.id = made, id
        self.tier, self.costly, self.runs_jaxpr = made.tier, made.costly, made.runs_jaxpr  # type: ignore[misc]

    @property
    def platform(self) -> str:
        return self.made.platform

    def unavailable(self) -> str:
        try:
            return self.made.unavailable()
        except Exception as error:
            return f"backend {self.id} raised {format_exception(error)} when it was asked"

    def unsupported_reason(self, traced: Traced) -> str:
        try:
            return self.made.unsupported_reason(traced)
        except Exception:
            return ""  # each case will tell

    def prepare(self, traced: Traced) -> Executable | Artifact:
        with convert_exceptions(f"backend {self.id}", Verdict.RUNTIME_ERROR, located=True):
            self.made.unsupported_reason(traced)
            prepared = self.made.prepare(traced)
        if self.tier.gives_values:
            return _Checked(self.id, prepared, traced.outputs)  # type: ignore[arg-type]
        if not isinstance(prepared, Artifact):
            raise Failure(Verdict.RUNTIME_ERROR, f"backend {self.id} prepared {prepared!r}, and no kt.Artifact")
        return prepared

    def in_orders(self, count: int) -> Backend:
        return Guarded(self.made.in_orders(count), self.id)

    def environment(self) -> dict[str, Any]:
        try:
            return self.made.environment()
        except Exception as error:
            return {"environment": f"unknown ({format_exception(error)})"}


@dataclass(frozen=True, slots=True)
class _Checked:
    """What a user's backend prepared."""

    backend: str
    made: Executable
    outputs: tuple[ShapeDtype, ...]

    @property
    def precision(self) -> Precision:
        with convert_exceptions(f"backend {self.backend}", Verdict.RUNTIME_ERROR, located=True):
            return self.made.precision

    def run(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        with convert_exceptions(f"backend {self.backend}", Verdict.RUNTIME_ERROR, located=True):
            outputs = tuple(np.asarray(output) for output in self.made.run(leaves))
        given, wanted = ([f"{each.dtype}{list(each.shape)}" for each in arrays] for arrays in (outputs, self.outputs))
        if given != wanted:
            message = (
                f"backend {self.backend} gave {', '.join(given)}, and the kernel's outputs are {', '.join(wanted)}"
            )
            raise Failure(Verdict.RUNTIME_ERROR, message)
        return outputs
