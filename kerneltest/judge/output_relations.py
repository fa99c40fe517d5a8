"""Relations between what a kernel computes and what its oracle does, such as a transposition or a shift by a row.

They hold everywhere or not at all, and say as much of a wrong oracle as of a wrong kernel.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from kerneltest.core.dtypes import Array, cast, float_format, is_float
from kerneltest.judge.mismatch_context import MismatchContext

_ENOUGH = 3  # different values, so that no relation holds by chance
_ROUNDINGS = 8.0  # of the output's dtype, by which a related value may differ
_CLEARLY = 4.0  # times as many: values so far apart are not equal
_MOST_SHIFTED = 2  # rows

# What an oracle or a kernel may lack, and the relation of the kernel's output to the oracle's.
_FUNCTIONS: tuple[tuple[Callable[[Array], Array], str], ...] = (
    (np.square, "the square of the expected value"),
    (np.sqrt, "the square root of the expected value"),
    (lambda x: 1 / x, "the reciprocal of the expected value"),
    (np.exp, "the exponential of the expected value"),
    (np.log, "the logarithm of the expected value"),
    (np.abs, "the absolute value of the expected one"),
    (lambda x: 1 - x, "one less the expected value"),
)


def output_relation(mismatch: MismatchContext) -> str:
    """Returns the relation of a wrong output to the expected one, in words; "" if none holds."""
    expected = np.asarray(mismatch.comparison.expected, np.float64)
    asked = np.isfinite(mismatch.comparison.bound)
    if not mismatch.inputs_are_finite or len(np.unique(expected[asked])) < _ENOUGH:
        return ""
    got = mismatch.comparison.actual.astype(np.float64)
    for values, part, words in _candidates(mismatch, got, expected):
        if _equals(mismatch, got[part], values, asked[part]) and _differs(
            mismatch, expected[part], values, asked[part]
        ):
            return words
    return ""


def _equals(mismatch: MismatchContext, got: Array, values: Array, asked: Array) -> bool:
    """Returns whether the output equals other values, as far as the rounding of its dtype lets one see it."""
    dtype = mismatch.comparison.actual.dtype
    if got.shape != values.shape or len(np.unique(got[asked])) < _ENOUGH:
        return False
    with np.errstate(all="ignore"):
        same = (np.abs(got - values) <= _roundings(mismatch, got, values)) | (np.isnan(got) & np.isnan(values))
        same |= cast(values, dtype).astype(np.float64) == got
    return bool((same | ~asked).all())


def _differs(mismatch: MismatchContext, expected: Array, values: Array, asked: Array) -> bool:
    """Returns whether other values are clearly not the expected ones in most places."""
    with np.errstate(all="ignore"):
        apart = ~(np.abs(expected - values) <= _CLEARLY * _roundings(mismatch, expected, values))
    return bool(np.mean(apart[asked]) > 1 / 2)


def _roundings(mismatch: MismatchContext, one: Array, other: Array) -> Array:
    """Returns how far apart rounding may bring two numbers."""
    dtype = mismatch.comparison.actual.dtype
    unit = float_format(dtype).unit_roundoff if is_float(dtype) else 0.0
    return _ROUNDINGS * unit * (np.abs(one) + np.abs(other))


_Candidate = tuple[Array, tuple[slice, ...], str]


def _candidates(mismatch: MismatchContext, got: Array, expected: Array) -> Iterator[_Candidate]:
    """Yields other values, the part of the output that they are compared with, and the relation in words."""
    whole = (slice(None),) * expected.ndim
    names = [axis.name for axis in mismatch.axes]
    for order in itertools.permutations(range(expected.ndim)):
        turned = expected.transpose(order)
        if list(order) != sorted(order) and turned.shape == expected.shape:
            yield turned, whole, f"it is the expected output with its axes in the order {', '.join(map(str, order))}"
    for place, name in enumerate(names):
        length = expected.shape[place]
        yield np.flip(expected, place), whole, f"it is the expected output reversed along {name}"
        for by in range(1, min(_MOST_SHIFTED, length - 1) + 1):
            words = f"{by} place{'s' * (by > 1)} of {name}"
            yield (
                _take(expected, place, slice(by, None)),
                _part(whole, place, slice(None, -by)),
                f"each is the expected value {words} further on",
            )
            yield (
                _take(expected, place, slice(None, -by)),
                _part(whole, place, slice(by, None)),
                f"each is the expected value {words} further back",
            )
    with np.errstate(all="ignore"):
        difference = float(np.median(got - expected))
        yield (
            expected + difference,
            whole,
            f"each is {abs(difference):.4g} too {'large' if difference > 0 else 'small'}",
        )
        for function, words in _FUNCTIONS:
            yield function(expected), whole, f"each is {words}"
        for place, name in enumerate(names):
            ratio = np.median(got / expected, axis=place, keepdims=True)
            if expected.shape[place] >= _ENOUGH:
                yield expected * ratio, whole, f"along {name}, each is the expected value times one factor"


def _take(values: Array, place: int, part: slice) -> Array:
    return values[_part((slice(None),) * values.ndim, place, part)]


def _part(whole: tuple[slice, ...], place: int, part: slice) -> tuple[slice, ...]:
    return (*whole[:place], part, *whole[place + 1 :])
