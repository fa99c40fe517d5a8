"""Bounds of a correct kernel's error, and the terms that error models build them from."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kerneltest.core.details import Stated
from kerneltest.core.dtypes import Array, FloatFormat, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.core.verdicts import Verdict

FAILURE = 2.0**-40
"""The probability, for each element, that a correct kernel exceeds a probabilistic bound."""

Evaluate = Callable[[Mapping[str, Array]], tuple[Array, ...]]
EvaluateAll = Callable[[Sequence[Mapping[str, Array]]], Iterable[tuple[Array, ...]]]


class Limit(Protocol):
    """The bound of one output, which depends on the backend. An error model returns one for each output."""

    def at(self, precision: Precision) -> Array:
        """Returns the largest absolute error of each element before it is rounded to the output's dtype.

        It is float64, in the output's shape and units; infinite for elements that are not checked.
        """
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit in closed form: the largest absolute error of each element, before it is rounded to the output's dtype.

    Attributes:
      fixed: the part that is the same on every backend: float64, in the output's shape and units.
      products: |A||B| of a matrix product, which is multiplied by the roundoff of rounding both operands.
      operands: the sum of |a| and |b| over the products, which is multiplied by the underflow of that rounding.
      roundings: the number of roundings in the accumulation format, each of which may underflow.
      accumulate: the accumulation format.
    """

    fixed: Array
    products: Array | None = None
    operands: Array | None = None
    roundings: float = 0.0
    accumulate: FloatFormat = FLOAT32

    def at(self, precision: Precision) -> Array:
        """Returns the bound on a backend: float64, in the output's shape."""
        underflow = self.accumulate.smallest_normal if precision.flushes else self.accumulate.smallest_subnormal / 2
        total = self.fixed + self.roundings * underflow
        if (u := precision.operand_roundoff("float32")) and self.products is not None and self.operands is not None:
            total = total + (2 * u + u * u) * self.products
            total = total + u * precision.dot_input["float32"].smallest_normal * self.operands
        return np.asarray(total)


@dataclass(frozen=True, slots=True)
class OracleCase:
    """The oracle's side of a case."""

    evaluate: Evaluate  # evaluates the oracle: from leaves in float64 or int64 to its outputs
    leaves: Mapping[str, Array]  # the array arguments by path, widened to float64 or int64
    values: tuple[Array, ...]  # the oracle's outputs for them
    formats: Mapping[str, FloatFormat]  # the formats of the float leaves in the kernel's dtypes, by path
    # evaluates the oracle on leaves that may be tracked arrays; they are not checked
    watched: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    oracle: Callable[..., Any]  # the user's function, which identifies the oracle across cases
    jax_in_float64: bool = field(default=False, kw_only=True)  # whether JAX computes in float64

    def check_float64(self, in_jax: bool) -> None:
        """Raises a `Failure` if the oracle, if it computes `in_jax`, does so in float32, as JAX does by default."""
        if in_jax and not self.jax_in_float64:
            sentence = (
                "oracle {oracle} computes with JAX, in float32. An oracle is the reference in float64: write it in "
                "NumPy, with np.exp for jnp.exp, or set jax_enable_x64"
            )
            name = getattr(self.oracle, "__name__", repr(self.oracle))
            raise Failure(Verdict.ORACLE_ERROR, Stated(sentence, {"oracle": name}))


def gamma(n: int, u: float) -> float:
    """Returns how far n roundings, of unit roundoff u each, may move a result, relative to the size of its terms.

    `n u / (1 - n u)` (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1) while that is below
    1. Beyond that the lemma guarantees no digit. The result is then `exp(l sqrt(n) u + n u^2 / (1 - u)) - 1`, which
    fails with probability `FAILURE` if roundings are independent with mean zero, with l from
    `2 n exp(-l^2 (1 - u)^2 / 2) = FAILURE` (Higham and Mary, "A new approach to probabilistic rounding error analysis",
    2019, theorem 3.1). A sum that stagnates violates that assumption and exceeds it.
    """
    if 2 * n * u < 1:
        return n * u / (1 - n * u)
    deviations = math.sqrt(2 * math.log(2 * n / FAILURE)) / (1 - u)
    exponent = deviations * math.sqrt(n) * u + n * u * u / (1 - u)
    return math.expm1(exponent) if exponent < 700 else math.inf


def scale_magnitudes(factor: float, magnitudes: Array) -> Array:
    """Returns `factor * magnitudes`, and zero for zero magnitudes even if the factor is infinite."""
    with np.errstate(all="ignore"):
        return np.where(magnitudes == 0, 0.0, factor * magnitudes)


def distance(near: Array, value: Array) -> Array:
    """Returns the distance of each element from its perturbed value.

    It is zero if the element is not finite, and infinite if only the perturbed value is not.
    """
    with np.errstate(all="ignore"):
        moved = np.abs(np.asarray(near, np.float64) - np.asarray(value, np.float64))
    return np.where(np.isfinite(value), np.where(np.isnan(moved), np.inf, moved), 0.0)


def magnitude(value: Array) -> Array:
    """Returns |value|, and zero where it is not finite."""
    return np.where(np.isfinite(value), np.abs(np.asarray(value, np.float64)), 0.0)


# In place of infinities, of NaN, and whether the numbers that are larger than others are smaller instead. Numbers of
# float64 keep 22 bits beside the largest one.
_NEAR = [(2.0**exponent, 0.125, turned) for turned in (0, 2) for exponent in (16, 23, 30)]
_NEAR += [(2.0**16, number, 0) for number in (-(2.0**-40), 2.0**31, -(2.0**31))]


def limits(evaluate: EvaluateAll, wide: Mapping[str, Array]) -> tuple[Array, ...]:
    """Returns what results tend to as large numbers in place of infinite inputs grow, with numbers in place of NaN.

    An infinity is the largest number of its sign. An element is NaN if it depends on which infinity is larger or on the
    number in place of a NaN. It does in `inf - inf`, and not in `0 * inf`, `0 * nan` and `inf * inf - inf`.
    """
    floats = {path: value for path, value in wide.items() if is_float(value.dtype)}
    scale = max((float(magnitude(value).max(initial=0)) for value in floats.values()), default=0.0) or 1.0
    rng = np.random.default_rng(0)
    factors = {path: 0.5 + rng.random(value.shape) for path, value in floats.items()}

    def near(large: float, number: float, turned: int) -> dict[str, Array]:
        inputs = dict(wide)
        for path, value in floats.items():
            replaced = np.where(np.isnan(value), number, np.copysign(large, value)) * np.abs(turned - factors[path])
            inputs[path] = np.where(np.isfinite(value), value, scale * replaced)
        return inputs

    if all(np.isfinite(value).all() for value in floats.values()):
        results = [*evaluate([wide])] * len(_NEAR)
    else:
        results = [*evaluate([near(*numbers) for numbers in _NEAR])]
    found = []
    for rows in zip(*results, strict=True):
        moved = np.stack(rows).astype(np.float64)
        with np.errstate(all="ignore"):
            size = min(scale, float(magnitude(moved).max(initial=0)))  # results may be far smaller than the inputs
            equal = np.abs(moved - moved[0]) <= 2.0**-10 * np.abs(moved[0]) + 2.0**-21 * size
            grows = (moved[[1, 2, 4, 5]] / moved[[0, 1, 3, 4]] > 2).all(0) & (moved[0] * moved[3] > 0)
        infinity = np.copysign(np.finfo(np.float64).max, moved[0])
        found.append(np.select([equal.all(0), grows & equal[6:].all(0)], [moved[0], infinity], np.nan))
    return tuple(found)
