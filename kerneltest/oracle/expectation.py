"""The expected outputs of a case with their bounds, and the rounding noise of the oracle itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, DType, ShapeDtype, float_format, is_float, widen
from kerneltest.core.precision import Precision
from kerneltest.numerics.bounds import Bound, Limit, magnitude
from kerneltest.numerics.rounding_bounds import RoundingLimit, SampledLimit
from kerneltest.numerics.spread import ErrorShare, median

_NOISE = 2.0**-40  # of a typical input: 8,000 roundings of float64

Outputs = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """The accepted values of outputs on a backend. Tuples have an array for each output, in its shape.

    Attributes:
      values: the expected values: float64, int64 or bool.
      bounds: the absolute error allowed of each element: 0 admits only the value rounded to the output's dtype, inf
        admits any value.
      bitwise: whether every bit must be equal, including the sign of a zero.
      alternatives: for each output, further arrays whose integers or booleans are as right as those of `values`; () if
        there are none.
      defined: bool, True for the elements whose value the oracle defines; () if it defines all.
      shares: returns the error budget of the output of a number, the largest share first; () if it is unknown.
      note: effects that the bounds could not take into account, in words; "" if there are none.
      sampled: whether the bounds are those of samples of the oracle, wherever they are of its rounding.
      own_error: returns how far each output of the oracle itself is off in float64, about; () if it is unknown.
    """

    values: Outputs
    bounds: Outputs
    bitwise: bool = False
    alternatives: tuple[Outputs, ...] = ()
    defined: Outputs = ()
    shares: Callable[[int], tuple[ErrorShare, ...]] = lambda output: ()
    note: str = ""
    sampled: bool = True
    own_error: Callable[[], Outputs] = tuple


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected outputs of a case, whatever backend they are compared on."""

    values: Outputs  # the oracle's outputs, float64, int64 or bool; zero where they are undefined
    flushed: Outputs | None  # the outputs for inputs with subnormal numbers flushed to zero; None if no input has any
    # the limit of each output's error, before it is rounded to its dtype; None for bit for bit
    bounds: Sequence[Limit] | None
    # for each output a boolean array of its shape: where the oracle defines it; by default everywhere
    defined: Outputs = ()
    # a note on how the bounds were computed if the oracle cannot be tracked on any backend; else ""
    unfollowed: str = ""
    # the limits of each output for a kernel that is evaluated in float64; None if the outputs are compared bit for bit
    formula: Sequence[Limit] | None = None
    # the limits that its outputs may reach without being wrong, since float32 loses as much; None for a kernel of
    # float64
    floor: Sequence[SampledLimit] | None = None
    # returns how far each output of the oracle itself is off in float64, about; () if it is unknown
    own_error: Callable[[], Outputs] = tuple

    def __post_init__(self) -> None:
        if not self.defined:
            object.__setattr__(self, "defined", tuple(np.broadcast_to(np.True_, value.shape) for value in self.values))

    def on(self, outputs: Sequence[ShapeDtype | Array], precision: Precision) -> ExpectedOutputs:
        """Returns what is accepted of outputs, which have the kernel's dtypes, on a backend of some precision."""
        return ExpectedOutputs(
            self.values,
            self.all_bounds(outputs, precision),
            alternatives=self.all_alternatives(precision),
            defined=self.defined,
            shares=lambda output: self.shares(output, precision),
            note=self.note(precision),
            sampled=not self.unfollowed
            and all(b.is_sampled(precision) for b in self.bounds or () if isinstance(b, RoundingLimit)),
            own_error=self.own_error,
        )

    def bound(self, output: int, output_dtype: DType, precision: Precision) -> Array:
        """Returns the largest absolute error of an output, including its rounding to a dtype.

        It is float64, in the output's shape: zero for exact elements, infinite for undefined ones.
        """
        if not is_float(output_dtype):
            return np.where(self.defined[output], 0.0, np.inf)
        value, fmt = np.asarray(self.values[output], np.float64), float_format(output_dtype)
        size = magnitude(value)
        total = before = np.zeros(value.shape)
        if self.bounds is not None:
            limit = self.bounds[output]
            before = limit.at(precision)
            if isinstance(limit, Bound):  # a closed form holds only for finite values; NaN must still meet NaN
                before = np.where(np.isfinite(value), before, 0.0)
            if before.any():
                with np.errstate(over="ignore"):
                    total = before + fmt.ulp(size + magnitude(before)) / 2
        if precision.flushes:
            threshold = fmt.smallest_normal if fmt.min_exponent <= -126 else 0.0
            if self.flushed is not None:
                with np.errstate(all="ignore"):
                    moved = magnitude(np.asarray(self.flushed[output], np.float64) - value)
                # A comparison may read zero where a move keeps the number, so an input may be returned unchanged.
                total = total + moved + np.where(size < threshold, threshold, 0.0)
            total = total + np.where(size < threshold + before, size, 0.0) * (threshold > 0)
        return np.where(self.defined[output], total, np.inf)

    def alternatives(self, output: int, precision: Precision) -> Outputs:
        """Returns further correct results of an integer or boolean output, each in the output's shape."""
        if is_float(self.values[output].dtype):
            return ()
        if self.bounds is not None and isinstance(bound := self.bounds[output], RoundingLimit):
            return bound.alternatives(precision)
        return (self.flushed[output],) if precision.flushes and self.flushed is not None else ()

    def all_bounds(self, outputs: Sequence[ShapeDtype | Array], precision: Precision) -> Outputs:
        return tuple(self.bound(i, output.dtype, precision) for i, output in enumerate(outputs))

    def all_alternatives(self, precision: Precision) -> tuple[Outputs, ...]:
        return tuple(self.alternatives(i, precision) for i in range(len(self.values)))

    def shares(self, output: int, precision: Precision) -> tuple[ErrorShare, ...]:
        """Returns the parts of an output's bound, the largest first; () if they are unknown."""
        bound = self.bounds[output] if self.bounds is not None else None
        return bound.shares(precision) if isinstance(bound, SampledLimit) else ()

    def note(self, precision: Precision) -> str:
        """Returns a note on what the bounds could not take into account, or ""."""
        found = (b.note(precision) for b in self.bounds or () if isinstance(b, RoundingLimit))
        return next(filter(None, found), self.unfollowed)


def oracle_noise(arguments: Mapping[str, Array]) -> float:
    """Returns the largest absolute error of the oracle itself, in float64, where the true result is zero."""
    typical = 0.0
    for values in arguments.values():
        sizes = np.abs(np.asarray(widen(values), np.float64))
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if sizes.size:  # the median, so that one huge element does not count
            typical = max(typical, median(sizes))
    return _NOISE * typical
