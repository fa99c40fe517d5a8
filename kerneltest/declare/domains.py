"""Domains: the numbers that an array of data may hold."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, cast, is_float, is_integer
from kerneltest.declare.problems import hide_frames

DType = np.dtype[Any]
SCALE = "float8_e8m0fnu"  # a dtype with neither a zero nor a sign: powers of two
_LARGEST_SCALE = 12  # as an exponent: a product with it stays finite in most formats


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from a least to a greatest one."""

    # low, high: its ends, which belong to it; an infinite one is an infinity that may occur
    low: float = -math.inf
    high: float = math.inf
    finite: bool = False  # infinities and NaN do not occur, whatever the ends are
    nonzero: bool = False  # neither zero nor subnormal numbers, which hardware may flush to zero, occur
    extremes: bool = True  # the dtype's largest and smallest numbers occur

    @property
    def bounded(self) -> bool:
        """True if both ends are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def everything(self) -> bool:
        """True if it contains every value of a dtype, NaN included."""
        return self == EVERYTHING

    @property
    def unbounded(self) -> bool:
        """True if both ends are infinite."""
        return self.low == -math.inf and self.high == math.inf

    @property
    def reaches_extremes(self) -> bool:
        """True if it contains the dtype's largest numbers of either sign."""
        return self.unbounded and self.extremes

    @property
    def admits_nan(self) -> bool:
        return not self.finite and not self.bounded

    def admits_infinity(self, sign: int) -> bool:
        return not self.finite and (self.high == math.inf if sign > 0 else self.low == -math.inf)

    @property
    def admits_zero(self) -> bool:
        return not self.nonzero and self.low <= 0 <= self.high

    def ends(self, dtype: DType) -> tuple[float, float]:
        """Returns the least and greatest number of a dtype in it: infinite ends too; if none, least > greatest."""
        if not is_float(dtype):
            return _where_finite(math.ceil, self.low), _where_finite(math.floor, self.high)
        most = float(ml_dtypes.finfo(dtype).max)

        def within(end: float, towards: float) -> float:
            number = cast(np.asarray(end), dtype)
            past = float(number) < end if towards > 0 else float(number) > end
            return float(np.nextafter(number, np.asarray(towards).astype(dtype)) if past else number)

        low = _where_finite(lambda end: within(max(end, -most), most), self.low)
        return low, _where_finite(lambda end: within(min(end, most), -most), self.high)

    def finite_range(self, dtype: DType) -> tuple[float, float]:
        if dtype == np.bool_:
            return 0, 1
        low, high = self.ends(dtype)
        if is_float(dtype):
            floats = ml_dtypes.finfo(dtype)
            least = 1.0 if dtype.name == SCALE else float(floats.min)
            return max(low, least), min(high, float(floats.max))
        integers = ml_dtypes.iinfo(dtype)
        return max(low, int(integers.min)), min(high, int(integers.max))

    def cast(self, values: Array, dtype: DType) -> Array:
        """Returns values moved into it, in a dtype: integers wrap around, finite floats stay finite.

        Those of a scale (`float8_e8m0fnu`) are its exponents.
        """
        if dtype.name == SCALE:
            values = np.exp2(np.clip(np.rint(np.asarray(values, np.float64)), -_LARGEST_SCALE, _LARGEST_SCALE))
        if not self.unbounded:
            low, high = self.ends(dtype)
            if self.bounded:
                values = np.where((values < low) | (values > high), low + np.abs(values) % (high - low or 1), values)
            values = np.clip(values, low, high)
        elif is_integer(dtype) and dtype.itemsize < 8:
            info = ml_dtypes.iinfo(dtype)
            span = int(info.max) - int(info.min) + 1
            values = (np.asarray(values, np.int64) - int(info.min)) % span + int(info.min)
        if is_float(dtype):
            most = float(ml_dtypes.finfo(dtype).max)
            values = np.where(np.isfinite(values), np.clip(values, -most, most), values)
        return cast(values, dtype)

    def replace_zeros(self, values: Array, dtype: DType) -> Array:
        """Returns `values` with zeros and subnormal numbers replaced by 1, or by the number of the domain next to 1."""
        if self.high >= 1:
            nonzero = max(1.0, self.low)
        else:
            nonzero = self.high if self.high > 0 else min(max(-1.0, self.low), self.high)
        small = float(ml_dtypes.finfo(dtype).smallest_normal) if is_float(dtype) else 1
        tiny = np.abs(np.asarray(values, np.float64)) < small
        return np.where(tiny, nonzero, values).astype(values.dtype)

    def __str__(self) -> str:
        words = [] if self.unbounded and self.extremes else [f"from {self.low:g} to {self.high:g}"]
        words += ["finite"] * (self.finite and not self.bounded) + ["not zero"] * self.nonzero
        return ", ".join(words)


def _where_finite(change: Callable[[float], float], end: float) -> float:
    return change(end) if math.isfinite(end) else end


EVERYTHING = Interval()

Domain = Interval | Mapping[str, Interval]


@hide_frames
def interval(
    low: float = -math.inf,
    high: float = math.inf,
    *,
    finite: bool = False,
    nonzero: bool = False,
    extremes: bool = True,
) -> Interval:
    """Returns a domain: the numbers from a least to a greatest one, both included.

        kt.array("n", domain=kt.interval(finite=True))   # signed zeros, subnormal and huge numbers, no NaN or infinity
        kt.array("n", domain=kt.interval(nonzero=True))  # a divisor

    Args:
      low, high: the ends. If one is infinite, that infinity and NaN occur too unless `finite` excludes them: a score
        that a mask may set to -inf is `kt.interval(high=100)`.
      finite: infinities and NaN do not occur.
      nonzero: neither zero nor subnormal numbers, which hardware may flush to zero, occur.
      extremes: the dtype's largest and smallest (subnormal) numbers occur, provided that both ends are infinite.

    Raises:
      ValueError: an end is not a number, or the interval is empty.
    """
    if not all(isinstance(end, (Real, np.number)) and not math.isnan(end) for end in (low, high)):
        raise ValueError(f"interval: the ends are numbers, not {low!r} and {high!r}")
    if low > high or (nonzero and low == high == 0):
        raise ValueError(f"interval: it contains no number from {low} to {high}" + " other than zero" * nonzero)
    return Interval(float(low), float(high), finite, nonzero, extremes)


def parse_domain(declared: Any, dtypes: tuple[str, ...]) -> Domain:
    """Returns the domain of a pair of ends, an interval, one of these by dtype, or None for all; else a ValueError."""
    if isinstance(declared, Mapping):
        if unknown := [name for name in declared if name not in dtypes]:
            raise ValueError(
                f"its domain is given for {unknown[0]!r}, which is not among its dtypes: {', '.join(dtypes)}"
            )
        return {name: _interval(declared.get(name)) for name in dtypes}
    return _interval(declared)


def _interval(given: Any) -> Interval:
    if given is None:
        return EVERYTHING
    if isinstance(given, Interval):
        return given
    pair = isinstance(given, (tuple, list)) and len(given) == 2
    if not pair or not all(isinstance(end, (Real, np.number)) and not math.isnan(end) for end in given):
        raise ValueError(
            f"its domain is the least and the greatest value, as in domain=(0, 1), or kt.interval(...), not {given!r}"
        )
    if given[0] > given[1]:
        raise ValueError(f"its domain {given} is empty")
    return Interval(float(given[0]), float(given[1]), extremes=False)
