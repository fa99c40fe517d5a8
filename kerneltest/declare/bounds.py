"""What an error model is: how far a correct kernel may be from the oracle, element by element.

A model measures a case once, on the oracle's side, and gives a `Bound` for each output. The bound becomes numbers when
it meets a `Precision`: what a backend does to values.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kerneltest.core.dtypes import TF32, Array, FloatFormat, dtype_named, float_format
from kerneltest.core.precision import FLOAT32 as FLOAT32
from kerneltest.core.precision import Precision
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.dims import Dim

FAILURE = 2.0**-40  # the probability, for each element, that a right kernel exceeds a bound which is no worst case

Evaluate = Callable[[Mapping[str, Array]], tuple[Array, ...]]


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest absolute error of each element of one output, before it is rounded to the output's dtype.

    Attributes:
      fixed: what holds on every backend: float64, the output's shape and units.
      products: |A||B| of a matrix product, times the roundoff of rounding both operands.
      operands: sum of |a| and |b| over the products, times the underflow of that rounding.
      roundings: how many roundings of the accumulation format may each underflow.
      accumulate: the accumulation format.
    """

    fixed: Array
    products: Array | None = None
    operands: Array | None = None
    roundings: float = 0.0
    accumulate: FloatFormat = FLOAT32

    def at(self, precision: Precision) -> Array:
        """The bound on a backend: float64, the output's shape."""
        lost = self.accumulate.smallest_normal if precision.flushes else self.accumulate.smallest_subnormal / 2
        total = self.fixed + self.roundings * lost
        if (u := precision.operand_roundoff("float32")) and self.products is not None and self.operands is not None:
            total = total + (2 * u + u * u) * self.products
            total = total + u * precision.dot_input["float32"].smallest_normal * self.operands
        return np.asarray(total)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a model is given of a case.

    Attributes:
      evaluate: the oracle, from leaves in float64 or int64 to its outputs.
      leaves: the case's array arguments, widened.
      values: the oracle's outputs for them.
      declared: the leaves' declarations.
      dims: the length of each dim.
      formats: of the float leaves, as the kernel gets them.
      watched: the oracle, on leaves that may be watched arrays and are not checked.
      oracle: the function itself, by which is remembered how it can be followed.
      in_kernel_dtypes: evaluates another function on the leaves as the kernel gets them; its outputs as float64.
      statics: the chosen option of each static argument.
    """

    evaluate: Evaluate
    leaves: Mapping[str, Array]
    values: tuple[Array, ...]
    declared: Mapping[str, ArrayArgument]
    dims: Mapping[str, int]
    formats: Mapping[str, FloatFormat]
    watched: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    oracle: Callable[..., Any]
    in_kernel_dtypes: Callable[[Callable[..., object]], tuple[Array, ...]]
    statics: Mapping[str, str] = field(default_factory=dict)

    @property
    def input_formats(self) -> tuple[FloatFormat, ...]:
        """Of the float leaves, in their order."""
        return tuple(self.formats.values())


class Limit(Protocol):
    """What an error model gives for an output: a bound, once it is known where the kernel runs."""

    def at(self, precision: Precision) -> Array:
        """The largest absolute error of each element, before it is rounded to the output's dtype."""
        ...


class Tolerance(Protocol):
    """An error model: any object with these two methods. `str()` of it names it in reports, with its constants."""

    def misfit(self, leaves: Mapping[str, ArrayArgument], dims: Mapping[str, Dim]) -> str:
        """Why the model does not fit the declaration, with the fix; "" if it does. Asked when a pairing is declared.

        Args:
          leaves: the pairing's array arguments, by path.
          dims: its dims, by name.
        """
        ...

    def bounds(self, measured: Measured) -> Sequence[Limit]:
        """A bound for each output of a case. What it raises ends the case as an `oracle_error`.

        Args:
          measured: the case, on the oracle's side. No model sees what the kernel computed.
        """
        ...


def gamma(n: int, u: float) -> float:
    """How far n roundings may move a result, relative to the size of its terms.

    `n u / (1 - n u)` (Higham, Lemma 3.1) while that is below 1. Beyond, where it says nothing of any digit,
    `exp(l sqrt(n) u + n u^2 / (1 - u)) - 1`, which fails with probability `FAILURE` where roundings are independent
    with mean zero: `2 n exp(-l^2 (1 - u)^2 / 2) = FAILURE` (Higham and Mary, "A new approach to probabilistic rounding
    error analysis", 2019, theorem 3.1). A sum that has stopped growing is no such case, and is beyond it.
    """
    if 2 * n * u < 1:
        return n * u / (1 - n * u)
    deviations = math.sqrt(2 * math.log(2 * n / FAILURE)) / (1 - u)
    exponent = deviations * math.sqrt(n) * u + n * u * u / (1 - u)
    return math.expm1(exponent) if exponent < 700 else math.inf


def times(factor: float, magnitudes: Array) -> Array:
    """`factor * magnitudes`, zero where these are: of terms that are all zero no rounding loses anything."""
    with np.errstate(all="ignore"):
        return np.where(magnitudes == 0, 0.0, factor * magnitudes)


def saturated(magnitudes: Array) -> Array:
    """`magnitudes`, infinite where TF32 has no such number."""
    return np.where(magnitudes >= TF32.overflow, np.inf, magnitudes)


def format_of(name: str, measured: Measured) -> FloatFormat:
    """The format called `name`; `input` is the narrowest of the arguments'."""
    if name != "input":
        return float_format(dtype_named(name))
    return max(measured.input_formats, key=lambda f: f.unit_roundoff, default=FLOAT32)


def distance(near: Array, value: Array) -> Array:
    """How far a perturbed value moved, per element."""
    with np.errstate(all="ignore"):
        moved = np.abs(np.asarray(near, np.float64) - np.asarray(value, np.float64))
    # A finite value that its neighbour leaves altogether (an overflow, a NaN) has no finite condition.
    return np.where(np.isfinite(value), np.where(np.isnan(moved), np.inf, moved), 0.0)


def magnitude(value: Array) -> Array:
    """|value|, zero where it is not finite."""
    return np.where(np.isfinite(value), np.abs(np.asarray(value, np.float64)), 0.0)
