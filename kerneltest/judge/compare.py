"""Comparison of an output with its expected values: special values by their class, all others by the bound."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, DType, cast, float_format, is_float, widen
from kerneltest.core.verdicts import Verdict

ULP_BUCKETS = 16
_VANISHING = 2.0**-125  # smaller float32 numbers may be flushed to zero, or their parts may
_FLUSHED = 2.0**-100  # far above any sum of flushed float32 subnormals


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one output, element by element. All arrays have the output's shape.

    Attributes:
      actual: the kernel's output, in its dtype.
      expected: the oracle's values: float64 before rounding, int64 wrapped to the output's dtype, or bool.
      bound: the largest absolute error allowed; inf if any value is.
      wrong: True where `actual` is wrong.
      special: True where the classes differ: NaN, an infinity and its sign, and the sign of zero if it counts.
      compared: number of elements with a bound that excludes some value, or with a special expectation.
      bound_fraction: the largest error / bound, both without the rounding of the output itself, over elements
        whose bound is not zero; None if there are none.
      vacuous: True if zeros would be within the bound of every finite element, although some should not be zero.
      ulps: number of finite floats by distance from the rounded expectation, as `ulp_histogram` returns them.
    """

    actual: Array
    expected: Array
    bound: Array
    wrong: Array
    special: Array
    compared: int
    bound_fraction: float | None
    vacuous: bool = False
    ulps: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the arrays."""
        return sum(each.nbytes for each in (self.actual, self.expected, self.bound, self.wrong, self.special))

    @property
    def verdict(self) -> Verdict:
        """`special_mismatch` if at least half of the wrong elements differ in class, else `mismatch` or `pass`."""
        count = int(self.wrong.sum())
        if not count:
            return Verdict.PASS
        return Verdict.SPECIAL_MISMATCH if 2 * int((self.wrong & self.special).sum()) >= count else Verdict.MISMATCH

    @property
    def worst_index(self) -> tuple[int, ...]:
        """The index of the worst element: one that differs in class if there is any, else the largest error."""
        with np.errstate(all="ignore"):
            error = np.abs(self.actual.astype(np.float64) - self.expected.astype(np.float64))
        rank = np.where(self.wrong, np.where(self.special | np.isnan(error), np.inf, error), -1.0)
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(rank)), rank.shape))


def compare(
    actual: Array,
    expected: Array,
    bound: Array,
    *,
    signed_zeros: bool,
    noise: float = 0.0,
    alternatives: Sequence[Array] = (),
) -> Comparison:
    """Compares one output with its expected values.

    If zeros would pass in place of all finite elements, none of these counts as compared.

    Args:
      actual: the output, of any shape, in the kernel's dtype.
      expected: float64, int64 or bool of the same shape, rounded (integers: wrapped) to the kernel's dtype once.
      bound: absolute error allowed, of the same shape; 0 admits only the rounded value, inf admits any value.
      signed_zeros: whether -0 and +0 differ.
      noise: the largest expected value that may be a zero with the oracle's own rounding error.
      alternatives: arrays of the same shape that are as right as `expected`, for integers and booleans.

    Returns:
      The comparison.
    """
    if not is_float(actual.dtype):
        asked = np.asarray(np.isfinite(bound))
        wrapped = cast(expected, actual.dtype)
        wrong = np.asarray((actual != wrapped) & asked)
        for other in alternatives:
            wrong &= actual != cast(other, actual.dtype)
        return Comparison(actual, widen(wrapped), bound, wrong, np.zeros(wrong.shape, bool), int(asked.sum()), None)
    exact = np.asarray(expected, np.float64)
    with np.errstate(all="ignore"):  # never-written memory may hold signalling NaNs
        got = actual.astype(np.float64)
        rounded = cast(exact, actual.dtype).astype(np.float64)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        nowhere = np.zeros(same.shape, bool)
        if not (signed_zeros or bound.any()) and same.all():  # most structural cases: skip the rest
            counts = ulp_histogram(np.zeros(int(np.isfinite(rounded).sum())))
            return Comparison(actual, exact, bound, nowhere, nowhere, same.size, None, ulps=counts)
        error = np.abs(got - exact)
        plain = not signed_zeros and np.isfinite(got + rounded + bound).all()  # nearly all others
        if plain:
            finite, ignored, special = np.ones(same.shape, bool), nowhere, nowhere
            wrong = np.asarray(~(same | (error <= bound)))
            judged = counted = finite
        else:
            finite, ignored = np.isfinite(exact), np.isinf(bound)
            within = finite & np.isfinite(got) & (error <= bound)
            limit = float_format(actual.dtype).overflow
            overflowed = finite & np.isinf(got) & (np.sign(got) == np.sign(exact)) & (np.abs(exact) + bound >= limit)
            zeros = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded)) & np.array(signed_zeros)
            wrong = np.asarray(~(same | within | overflowed | ignored) | (zeros & ~ignored))
            infinite = (np.isinf(got) | np.isinf(rounded)) & ~same
            special = np.asarray((np.isnan(got) != np.isnan(rounded)) | zeros | infinite)
            judged = finite & np.isfinite(got) & np.isfinite(bound)
            counted = np.isfinite(rounded) & np.isfinite(got) & ~ignored
    # A flushed number uses up its whole bound, which says nothing about the kernel's rounding.
    vanished = (got == 0) & (np.abs(exact) < _VANISHING)
    judged = judged & (bound > 0) & ~vanished
    used = _bound_fraction(got[judged], exact[judged], bound[judged], actual.dtype) if judged.any() else None
    with np.errstate(over="ignore"):  # from the smallest number to the largest there are more ulps than float64 holds
        distance = np.abs(got[counted] - rounded[counted]) / float_format(actual.dtype).ulp(rounded[counted])
    vacuous = _zeros_would_pass(exact, bound, noise, actual.dtype)
    compared = int(wrong.size - (finite if vacuous else ignored).sum())
    return Comparison(actual, exact, bound, wrong, special, compared, used, vacuous, ulp_histogram(distance))


def _bound_fraction(got: Array, exact: Array, bound: Array, dtype: DType) -> float:
    """Returns the largest error / bound, both before the result is rounded to the output's dtype."""
    fmt = float_format(dtype)
    # The numbers below a power of two have half the spacing of those above it.
    inward = np.where(np.abs(exact) < np.abs(got), 1 - 2.0**-30, 1.0)
    error = np.abs(got - exact)
    before, room = error - fmt.ulp(got * inward) / 2, bound - fmt.ulp(exact) / 2
    return float(np.max(np.where(room > 0, np.maximum(before, 0.0) / np.where(room > 0, room, 1.0), error / bound)))


def _zeros_would_pass(exact: Array, bound: Array, noise: float, dtype: DType) -> bool:
    """Checks whether zeros are within the bound of every finite element, although some should not be zero."""
    size = np.where(np.isfinite(exact), np.abs(exact), 0.0)
    telling = size > max(noise, float_format(dtype).smallest_normal, _FLUSHED)
    return bool(telling.any() and (bound >= size)[telling].all())


def ulp_histogram(distance: Array) -> tuple[int, ...]:
    """Returns the histogram of distances in units in the last place: 0, then above 0 and below 2, below 4, below 8, ...

    The last of at most `ULP_BUCKETS` buckets counts all larger distances. Empty buckets at the end are left out.
    """
    if not distance.any():
        return (distance.size,) if distance.size else ()
    _, exponent = np.frexp(np.minimum(distance, np.finfo(np.float64).max))
    bucket = np.minimum(np.maximum(exponent, 1), ULP_BUCKETS - 1) * (distance > 0)
    return tuple(np.bincount(bucket).tolist())


def describe_element(comparison: Comparison, index: tuple[int, ...]) -> str:
    """Returns `got 3.5, expected 3.25 ± 0.01` for one element."""
    values = comparison.actual[index].item(), comparison.expected[index].item()
    got, wanted = _text(values, 9)
    if got == wanted:
        got, wanted = _text(values, 15)
    bound = float(comparison.bound[index])
    how = f" ± {bound:.3g}" if bound > 0 and np.isfinite(comparison.expected[index]) else ""
    return f"got {got}, expected {wanted}{how}"


def _text(values: Sequence[bool | int | float], digits: int) -> list[str]:
    return [f"{value:.{digits}g}" if isinstance(value, float) else str(value) for value in values]
