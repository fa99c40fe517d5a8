"""Which numbers an array of data may hold."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import is_float


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from a least to a greatest one.

    Attributes:
      low, high: its ends, which belong to it; an infinite one is an infinity that may occur.
      finite: neither infinities nor NaN occur, wherever the ends are.
      nonzero: no zero occurs, nor a subnormal number, which hardware may take for zero.
      extremes: the dtype's largest numbers occur, and its smallest.
    """

    low: float = -math.inf
    high: float = math.inf
    finite: bool = False
    nonzero: bool = False
    extremes: bool = True

    @property
    def bounded(self) -> bool:
        """Whether both ends are numbers."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def everything(self) -> bool:
        """Whether every value of the dtype is in it, NaN included."""
        return self == EVERYTHING

    @property
    def unbounded(self) -> bool:
        """Whether neither end is a number."""
        return self.low == -math.inf and self.high == math.inf

    @property
    def reaches_extremes(self) -> bool:
        """Whether the dtype's largest numbers of either sign are in it."""
        return self.unbounded and self.extremes

    @property
    def admits_nan(self) -> bool:
        return not self.finite and not self.bounded

    def admits_infinity(self, sign: int) -> bool:
        """Whether the infinity of a sign is in it."""
        return not self.finite and (self.high == math.inf if sign > 0 else self.low == -math.inf)

    @property
    def admits_zero(self) -> bool:
        return not self.nonzero and self.low <= 0 <= self.high

    def ends(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        """The least and the greatest number of a dtype in it; one past the other where there is none.

        An end that is infinite stays so.
        """
        if not is_float(dtype):
            return _where_finite(math.ceil, self.low), _where_finite(math.floor, self.high)
        most = float(ml_dtypes.finfo(dtype).max)

        def within(end: float, towards: float) -> float:
            number = np.asarray(end).astype(dtype)
            past = float(number) < end if towards > 0 else float(number) > end
            return float(np.nextafter(number, np.asarray(towards).astype(dtype)) if past else number)

        low = _where_finite(lambda end: within(max(end, -most), most), self.low)
        return low, _where_finite(lambda end: within(min(end, most), -most), self.high)

    def __str__(self) -> str:
        words = [] if self.unbounded and self.extremes else [f"from {self.low:g} to {self.high:g}"]
        words += ["finite"] * (self.finite and not self.bounded) + ["not zero"] * self.nonzero
        return ", ".join(words)


def _where_finite(change: Callable[[float], float], end: float) -> float:
    return change(end) if math.isfinite(end) else end


EVERYTHING = Interval()

Domain = Interval | Mapping[str, Interval]


def interval(
    low: float = -math.inf,
    high: float = math.inf,
    *,
    finite: bool = False,
    nonzero: bool = False,
    extremes: bool = True,
) -> Interval:
    """A domain: the numbers from a least to a greatest one, both included.

        kt.array("n", domain=kt.interval(finite=True))   # signed zeros, subnormal and huge numbers, no NaN or infinity
        kt.array("n", domain=kt.interval(nonzero=True))  # a divisor

    Args:
      low, high: the ends. Where one is infinite, that infinity and NaN occur too, unless `finite` says otherwise:
        a score that a mask may set to -inf is `kt.interval(high=100)`.
      finite: neither infinities nor NaN occur.
      nonzero: no zero occurs, nor a subnormal number, which hardware may take for zero.
      extremes: where neither end is a number, the dtype's largest and smallest (subnormal) numbers occur.

    Raises:
      ValueError: ends that are no numbers, or an empty interval.
    """
    if not all(isinstance(end, (Real, np.number)) and not math.isnan(end) for end in (low, high)):
        raise ValueError(f"interval: its ends are numbers, not {low!r} and {high!r}")
    if low > high or (nonzero and low == high == 0):
        raise ValueError(f"interval: nothing lies from {low} to {high}" + ", zero left out" * nonzero)
    return Interval(float(low), float(high), finite, nonzero, extremes)


def domain_of(given: Any, dtypes: tuple[str, ...]) -> Domain:
    """The domain that an author gave: a pair of ends, an interval, one for each dtype, or None for everything.

    Raises:
      ValueError: it is none of these; says how it is written.
    """
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in dtypes]:
            raise ValueError(
                f"its domain is given for {unknown[0]!r}, which is none of its dtypes: {', '.join(dtypes)}"
            )
        return {name: _interval(given.get(name)) for name in dtypes}
    return _interval(given)


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
