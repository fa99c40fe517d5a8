"""Compares a kernel's outputs with what was expected: by class for special values, by bound for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, cast, float_format, is_float
from kerneltest.core.verdicts import Verdict

ULP_BUCKETS = 16
_VANISHING = 2.0**-125  # of float32 may be flushed to zero, or nearly
_FLUSHED = 2.0**-100  # what float32's flushed subnormal numbers add up to stays far below it


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output, element by element.

    Attributes:
      actual: as the kernel gave it.
      expected: the oracle's value, before rounding.
      bound: the largest absolute error allowed.
      wrong: where the two disagree.
      special: where they differ in class: NaN, an infinity and its sign, a signed zero.
      compared: how many elements had a bound that says something, or a special expectation.
      used: the largest error as a fraction of its bound, both without the rounding of the output itself, over elements
        whose bound is not zero; None without any.
      vacuous: zeros would be within the bound of every finite element, though some should not be zero.
      ulps: finite floats by their distance from the rounded expectation, as `ulp_histogram` counts them.
    """

    actual: Array
    expected: Array
    bound: Array
    wrong: Array
    special: Array
    compared: int
    used: float | None
    vacuous: bool = False
    ulps: tuple[int, ...] = ()

    @property
    def verdict(self) -> Verdict:
        count = int(self.wrong.sum())
        if not count:
            return Verdict.PASS
        return Verdict.SPECIAL_MISMATCH if 2 * int((self.wrong & self.special).sum()) >= count else Verdict.MISMATCH

    @property
    def worst(self) -> tuple[int, ...]:
        """Where the disagreement is greatest: a difference in class first, then the largest error."""
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
    others: Sequence[Array] = (),
) -> Comparison:
    """Judges one output. Where zeros would pass in place of all its finite elements, none of these counts as compared.

    Args:
      actual: any shape, the kernel's dtype.
      expected: the same shape, float64, int64 or bool; it is rounded (integers: wrapped) to the kernel's dtype once.
      bound: the same shape, absolute; zero demands the rounded value itself, infinity asks nothing.
      signed_zeros: whether -0 and +0 differ.
      noise: how much of an expected value may be the oracle's own rounding of a zero.
      others: what integers and booleans may be instead, element by element; the same shape each.
    """
    if not is_float(actual.dtype):
        asked = np.isfinite(bound)
        wrong = np.asarray((actual != cast(expected, actual.dtype)) & asked)
        for other in others:
            wrong &= actual != cast(other, actual.dtype)
        return Comparison(actual, expected, bound, wrong, np.zeros(wrong.shape, bool), int(asked.sum()), None)
    exact = np.asarray(expected, np.float64)
    with np.errstate(all="ignore"):  # never-written memory may hold signalling NaNs
        got = actual.astype(np.float64)
        rounded = cast(exact, actual.dtype).astype(np.float64)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        nowhere = np.zeros(same.shape, bool)
        if not (signed_zeros or bound.any()) and same.all():  # as structural cases are
            counts = ulp_histogram(np.zeros(int(np.isfinite(rounded).sum())))
            return Comparison(actual, exact, bound, nowhere, nowhere, same.size, None, ulps=counts)
        error = np.abs(got - exact)
        plain = not signed_zeros and np.isfinite(got + rounded + bound).all()  # as nearly always
        if plain:
            finite, ignored, special = np.ones(same.shape, bool), nowhere, nowhere
            wrong = ~(same | (error <= bound))
            judged = counted = finite
        else:
            finite, ignored = np.isfinite(exact), np.isinf(bound)
            within = finite & np.isfinite(got) & (error <= bound)
            limit = float_format(actual.dtype).overflow
            overflowed = finite & np.isinf(got) & (np.sign(got) == np.sign(exact)) & (np.abs(exact) + bound >= limit)
            zeros = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded)) & np.array(signed_zeros)
            wrong = ~(same | within | overflowed | ignored) | (zeros & ~ignored)
            special = (np.isnan(got) != np.isnan(rounded)) | zeros
            special |= (np.isinf(got) | np.isinf(rounded)) & ~same
            judged = finite & np.isfinite(got) & np.isfinite(bound)
            counted = np.isfinite(rounded) & np.isfinite(got) & ~ignored
    # What may be flushed uses up all that it is allowed, and says nothing of a kernel's rounding.
    vanished = (got == 0) & (np.abs(exact) < _VANISHING)
    judged = judged & (bound > 0) & ~vanished
    used = _used(got[judged], exact[judged], bound[judged], actual.dtype) if judged.any() else None
    distance = np.abs(got[counted] - rounded[counted]) / float_format(actual.dtype).ulp(rounded[counted])
    vacuous = _zeros_would_pass(exact, bound, noise, actual.dtype)
    compared = int(wrong.size - (finite if vacuous else ignored).sum())
    return Comparison(actual, exact, bound, wrong, special, compared, used, vacuous, ulp_histogram(distance))


def _used(got: Array, exact: Array, bound: Array, dtype: np.dtype[Any]) -> float:
    """The largest error / bound of some elements, both before the result was rounded to the output's dtype."""
    fmt = float_format(dtype)
    # A power of two has finer neighbours towards zero.
    inward = np.where(np.abs(exact) < np.abs(got), 1 - 2.0**-30, 1.0)
    error = np.abs(got - exact)
    before, room = error - fmt.ulp(got * inward) / 2, bound - fmt.ulp(exact) / 2
    return float(np.max(np.where(room > 0, np.maximum(before, 0.0) / np.where(room > 0, room, 1.0), error / bound)))


def _zeros_would_pass(exact: Array, bound: Array, noise: float, dtype: np.dtype[Any]) -> bool:
    """Whether zeros are within the bound of every finite element, though some should not be zero."""
    size = np.where(np.isfinite(exact), np.abs(exact), 0.0)
    telling = size > max(noise, float_format(dtype).smallest_normal, _FLUSHED)
    return bool(telling.any() and (bound >= size)[telling].all())


def ulp_histogram(distance: Array) -> tuple[int, ...]:
    """Counts of distances in units in the last place: first those of 0, then those below 2, 4, 8, ...

    The last of at most `ULP_BUCKETS` holds all that are larger; empty ones at the end are left out.
    """
    if not distance.any():
        return (distance.size,) if distance.size else ()
    _, exponent = np.frexp(distance)
    bucket = np.minimum(np.maximum(exponent, 1), ULP_BUCKETS - 1) * (distance > 0)
    return tuple(np.bincount(bucket).tolist())


def describe(comparison: Comparison, index: tuple[int, ...]) -> str:
    """`got 3.5, expected 3.25 +- 0.01` for one element."""
    got, wanted = _text(comparison.actual[index]), _text(comparison.expected[index])
    bound = float(comparison.bound[index])
    how = f" ± {bound:.3g}" if bound > 0 and np.isfinite(comparison.expected[index]) else ""
    return f"got {got}, expected {wanted}{how}"


def _text(value: Any) -> str:
    number = value.item() if hasattr(value, "item") else value
    return f"{number:.9g}" if isinstance(number, float) else str(number)
