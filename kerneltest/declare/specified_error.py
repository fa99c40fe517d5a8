"""The error model behind `kt.tolerance.absolute` and `kt.tolerance.relative`: an error that a specification sets."""

import math
from dataclasses import dataclass
from numbers import Real

from kerneltest.declare.error_model import Dims, Leaves, Measured
from kerneltest.numerics.bounds import Bound
from kerneltest.numerics.closed_forms import specified_bounds


@dataclass(frozen=True, slots=True)
class Specified:
    """The model of `kt.tolerance.absolute` and `kt.tolerance.relative`: `specified_bounds`.

    Attributes:
      kind: `absolute` or `relative`.
      error: the largest error.
      reason: the specification that sets it.
    """

    kind: str
    error: float
    reason: str

    def misfit(self, leaves: Leaves, dims: Dims) -> str:
        if not (isinstance(self.error, Real) and 0 < self.error < math.inf):
            return f"{self.kind}({self.error!r}) is not a positive number; for no error, use exact()"
        if not (isinstance(self.reason, str) and self.reason.strip()):
            return f"{self.kind}({self.error:g}, reason) needs the specification that sets this error, as text"
        return ""

    def bounds(self, measured: Measured) -> tuple[Bound, ...]:
        return specified_bounds(measured.values, self.error, relative=self.kind == "relative")

    def __str__(self) -> str:
        return f"{self.kind}({self.error:g}): {self.reason}"
