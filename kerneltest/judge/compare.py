"""Comparison of an output with its expected values: special values by their class, all others by the bound."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.details import Nondeterministic
from kerneltest.core.dtypes import Array, DType, cast, float_format, is_float, widen
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.dims import AxisExpression
from kerneltest.numerics.bounds import magnitude
from kerneltest.oracle.expectation import ExpectedOutputs
from kerneltest.records.evidence import (
    ERROR_LEVELS,
    ERROR_LIMITS,
    AxisFootprint,
    ErrorMap,
    Pattern,
    PatternKind,
    format_pair,
)

ULP_BUCKETS = 16
_VANISHING = 2.0**-125  # smaller float32 numbers may be flushed to zero, or their parts may
_FLUSHED = 2.0**-100  # far above any sum of flushed float32 subnormals


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one output, element by element. All arrays have the output's shape."""

    actual: Array  # the kernel's output, in its dtype
    expected: Array  # the oracle's values: float64 before rounding, int64 wrapped to the output's dtype, or bool
    bound: Array  # the largest absolute error allowed; inf if any value is
    wrong: Array  # True where `actual` is wrong
    special: Array  # True where the classes differ: NaN, an infinity and its sign, and the sign of zero if it counts
    compared: int  # number of elements with a bound that excludes some value, or with a special expectation
    # the largest error / bound, both without the rounding of the output itself, over elements whose bound is not zero;
    # None if there are none
    bound_fraction: float | None
    # True if zeros would be within the bound of every finite element, although some should not be zero
    vacuous: bool = False
    # number of finite floats by distance from the rounded expectation, as `ulp_histogram` returns them
    ulps: tuple[int, ...] = ()
    approximate: float = 0.0  # the largest error, in ulps of float32, of elements that are right only as approximations
    by_bound: bool = False  # whether the worst element is that of the largest error / `allowed`, and not error

    @property
    def got(self) -> Array:
        """`actual` in float64."""
        with np.errstate(all="ignore"):  # never-written memory may hold signalling NaNs
            return self.actual.astype(np.float64)

    @property
    def wanted(self) -> Array:
        """`expected` in float64."""
        return np.asarray(self.expected, np.float64)

    @property
    def rounded(self) -> Array:
        """`expected` in the dtype of `actual`."""
        return cast(self.expected, self.actual.dtype)

    @property
    def error(self) -> Array:
        """The distance of each element from its expected value, in float64."""
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(self.got - self.wanted))

    @property
    def allowed(self) -> Array:
        """The bounds, but at least half a step: any error of an exact result would be infinitely large."""
        dtype = self.actual.dtype
        return np.maximum(self.bound, float_format(dtype).ulp(magnitude(self.expected)) / 2 if is_float(dtype) else 0.5)

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
            error = self.error / self.allowed if self.by_bound else self.error
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
      noise: the largest expected value that may be a zero with the oracle's own rounding error.
      alternatives: arrays of the same shape that are as right as `expected`, for integers and booleans.
    """
    if not is_float(actual.dtype):
        checked = np.asarray(np.isfinite(bound))
        wrapped = cast(expected, actual.dtype)
        wrong = np.asarray((actual != wrapped) & checked)
        for other in alternatives:
            wrong &= actual != cast(other, actual.dtype)
        return Comparison(actual, widen(wrapped), bound, wrong, np.zeros(wrong.shape, bool), int(checked.sum()), None)
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


def compare_outputs(
    outputs: Sequence[Array], expected: ExpectedOutputs, *, signed_zeros: bool, noise: float = 0.0
) -> list[Comparison]:
    """Compares each of several outputs with its accepted values, as `compare` does."""
    alternatives = expected.alternatives or [()] * len(outputs)
    return [
        compare(actual, value, bound, signed_zeros=signed_zeros, noise=noise, alternatives=others)
        for actual, value, bound, others in zip(outputs, expected.values, expected.bounds, alternatives, strict=True)
    ]


_DOUBTED = 100.0  # an error is believed if it is so many times that of the oracle itself


def without_doubted(
    found: Sequence[Comparison], own_error: Callable[[], Sequence[Array]], noise: float
) -> tuple[Sequence[Comparison], int]:
    """Leaves out wrong elements of which the oracle itself may be off by a hundredth of their error or of itself.

    Args:
      found: the comparison of each output.
      own_error: returns how far the oracle is off, element by element; () if it is unknown. Where its result is not
        finite, another one that is as right, roughly; any is, for an infinity.
      noise: the error that the oracle may have where the result is zero: such an element has no digits to lose.

    Returns:
      The comparisons, and how many elements are no longer compared.
    """
    kept, errors, count = list(found), own_error() if is_wrong(found) else (), 0
    for number, (each, own) in enumerate(zip(found, errors, strict=False)):
        claimed = np.where(np.isfinite(each.error), each.error, magnitude(each.wanted))
        size = magnitude(each.wanted)
        lost = (own >= claimed / _DOUBTED) | ((own >= size / _DOUBTED) & (own > noise))
        finite = np.isfinite(each.wanted)  # of which `own` is an error, and of others a value
        other = agree_roughly(each.actual, np.where(finite, 0, own))
        # A kernel that keeps the NaN of an element whose limit is a number does not return limits: it loses others.
        other &= ~(np.isnan(each.wanted) & np.isnan(each.got) & np.isfinite(own)).any()
        doubted = each.wrong & np.where(finite, lost & (own > 0), other)
        if number_lost := int(doubted.sum()):
            count += number_lost
            kept[number] = replace(
                each,
                bound=np.where(doubted, np.inf, each.bound),
                wrong=each.wrong & ~doubted,
                special=each.special & ~doubted,
                compared=each.compared - number_lost,
            )
    return kept, count


def agree_roughly(actual: Array, other: Array) -> Array:
    """Returns where values are others, or within a hundredth of the largest. The largest float64 is an infinity."""
    limit = np.where(np.abs(other) == np.finfo(np.float64).max, np.copysign(np.inf, other), other)
    largest = magnitude(limit).max(initial=0)
    bound = np.where(np.isinf(other), np.inf, np.maximum(magnitude(limit), largest) / _DOUBTED)
    return ~compare(actual, limit, bound, signed_zeros=False).wrong


def is_wrong(comparisons: Iterable[Comparison]) -> bool:
    """Returns whether any element of any output is wrong."""
    return any(comparison.wrong.any() for comparison in comparisons)


def first_difference(array: str, one: Array, other: Array, differs: Array) -> Nondeterministic:
    """Returns the detail of two runs that gave an array, named in words, with other values in some elements."""
    index = tuple(map(int, np.argwhere(differs)[0]))
    return Nondeterministic(array, index, str(one[index]), str(other[index]), int(differs.sum()), differs.size)


# The largest error / bound, both before the result is rounded to the output's dtype.
def _bound_fraction(got: Array, exact: Array, bound: Array, dtype: DType) -> float:
    fmt = float_format(dtype)
    # The numbers below a power of two have half the spacing of those above it.
    inward = np.where(np.abs(exact) < np.abs(got), 1 - 2.0**-30, 1.0)
    error = np.abs(got - exact)
    before, room = error - fmt.ulp(got * inward) / 2, bound - fmt.ulp(exact) / 2
    with np.errstate(over="ignore"):  # by a bound of a few subnormal numbers
        return float(np.max(np.where(room > 0, np.maximum(before, 0.0) / np.where(room > 0, room, 1.0), error / bound)))


# Whether zeros are within the bound of every finite element, although some should not be zero.
def _zeros_would_pass(exact: Array, bound: Array, noise: float, dtype: DType) -> bool:
    size = magnitude(exact)
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
    got, wanted = format_pair(comparison.actual[index].item(), comparison.expected[index].item(), 9)
    bound = float(comparison.bound[index])
    how = f" ± {bound:.3g}" if bound > 0 and np.isfinite(comparison.expected[index]) else ""
    return f"got {got}, expected {wanted}{how}"


# The map of error / bound over a whole output.

_SIDE = 64  # tiles along each axis at most
_SPECIAL = len(ERROR_LEVELS) - 1
_RIGHT = ERROR_LIMITS.index(1.0) + 1  # the highest level of a right element


def map_errors(comparison: Comparison) -> ErrorMap:
    """Returns the largest error / bound in each tile of an output.

    Where only the rounded value is right, half a unit in its last place takes the place of the bound.
    """
    shape = comparison.actual.shape
    columns, rows = shape[-1] if shape else 1, math.prod(shape[:-1])
    most_columns = _SIDE if rows > 1 else _SIDE * _SIDE
    tile = -(-rows // _SIDE), -(-columns // most_columns)
    levels = _levels(comparison).reshape(rows, columns)
    by_row = np.maximum.reduceat(levels, np.arange(0, rows, tile[0]), axis=0)
    tiles = np.maximum.reduceat(by_row, np.arange(0, columns, tile[1]), axis=1)
    text = "".join(ERROR_LEVELS[level] for level in tiles.ravel())
    return ErrorMap(shape, (tiles.shape[0], tiles.shape[1]), tile, text)


# The position of each element in `ERROR_LEVELS`.
def _levels(comparison: Comparison) -> Array:
    actual, error = comparison.actual, comparison.error
    with np.errstate(all="ignore"):  # special values are set afterwards
        half = float_format(actual.dtype).ulp(comparison.expected) / 2 if is_float(actual.dtype) else 0.5
        used = np.where((actual == comparison.rounded) & (error <= half), 0.0, error) / np.maximum(
            comparison.bound, half
        )
        levels = np.searchsorted(ERROR_LIMITS, np.where(np.isnan(used), 0.0, used)) + 1
    levels = np.where(comparison.wrong, np.maximum(levels, _RIGHT + 1), np.minimum(levels, _RIGHT))
    levels = np.where(comparison.wrong & comparison.special, _SPECIAL, levels)
    return np.where(np.isinf(comparison.bound) & ~comparison.wrong, 0, levels)


# The location of wrong elements in the kernel's own terms: blocks of dims, and the pattern that the elements make.

_FEW = 64  # wrong elements to test before all of them


@dataclass(frozen=True, slots=True)
class OutputAxis:
    """One axis of an output."""

    name: str  # its dim, or `axis 0`, `axis 1`, ... if that is unknown
    length: int  # number of elements along it
    block: int | None  # the dim's block length; None if it has none

    @property
    def blocks(self) -> int:
        """Number of blocks along the axis; 1 if it has no blocks."""
        return -(-self.length // self.block) if self.block else 1


@dataclass(frozen=True, slots=True)
class MismatchLocation:
    """The location of the wrong elements of one output."""

    index: tuple[int, ...]  # the index of the worst element
    block: str  # the block that contains it, such as `m=1 n=0`; "" if there are no blocks
    wrong_blocks: tuple[int, int]  # number of blocks with a wrong element, and number of all blocks
    pattern: Pattern | None  # the pattern that the wrong elements make; None if no rule fits
    footprint: tuple[AxisFootprint, ...] = ()  # the indices along each axis at which elements are wrong


def locate_mismatch(comparison: Comparison, axes: Sequence[OutputAxis]) -> MismatchLocation:
    """Returns the location of a comparison's wrong elements, of which there is at least one."""
    index = comparison.worst_index
    if not index:  # a scalar
        return MismatchLocation(index, "", (1, 1), None)
    block = " ".join(f"{axis.name}={i // axis.block}" for i, axis in zip(index, axes, strict=True) if axis.block)
    touched = np.zeros([axis.blocks for axis in axes], bool)  # whether a block has a wrong element
    places = zip(np.nonzero(comparison.wrong), axes, strict=True)
    touched[tuple(at // (axis.block or max(axis.length, 1)) for at, axis in places)] = True
    pattern = next(filter(None, (rule(comparison, axes) for rule in _RULES)), None)
    footprint = tuple(_footprint(comparison.wrong, place, axis) for place, axis in enumerate(axes))
    return MismatchLocation(index, block, (int(touched.sum()), touched.size), pattern, footprint)


_MOST_RUNS = 256  # of consecutive indices that are recorded


def _footprint(wrong: Array, place: int, axis: OutputAxis) -> AxisFootprint:
    touched = wrong.any(axis=tuple(other for other in range(wrong.ndim) if other != place))
    runs: tuple[int, ...] | None = ()
    if not touched.all():
        ends = np.flatnonzero(np.diff(np.concatenate([[False], touched, [False]]).astype(np.int8)))
        runs = tuple(ends.tolist()) if len(ends) <= 2 * _MOST_RUNS else None
    return AxisFootprint(axis.name, axis.length, axis.block or 0, runs)


def match_axes(
    shapes: Sequence[tuple[int, ...]], dims: Sequence[dict[str, int]], expressions: Sequence[AxisExpression] = ()
) -> tuple[str, ...]:
    """Returns the dim of each axis of an output: the only one with its length in every signature, or "".

    `shapes` and `dims` are those of the signatures; `expressions`, such as `2*h`, are for axes that no dim fits.
    """
    names = []
    for lengths in zip(*shapes, strict=False):
        fitting = [name for name in dims[0] if tuple(dim[name] for dim in dims) == lengths]
        made = [str(extent) for extent in expressions if tuple(map(extent.length, dims)) == lengths]
        names.append(fitting[0] if len(fitting) == 1 else made[0] if made and not fitting else "")
    return tuple(names)


def _past_the_last_full_block(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    for at, axis in zip(np.nonzero(comparison.wrong), axes, strict=True):
        edge = axis.length // axis.block * axis.block if axis.block else 0
        if edge and edge < axis.length and np.min(at) >= edge:
            return Pattern(PatternKind.PAST_THE_LAST_FULL_BLOCK, axis.name, edge)
    return None


# The wrong elements have the expected values of elements a whole number of blocks further along one axis.
def _shifted_by_a_block(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    rounded, where = comparison.rounded, np.argwhere(comparison.wrong)
    few = where[:: -(-len(where) // _FEW)]

    def values_and_sources(places: Array, place: int, by: int) -> tuple[Array, Array]:
        source = places.copy()
        source[:, place] += by
        inside = (source[:, place] >= 0) & (source[:, place] < axes[place].length)
        return comparison.actual[tuple(places[inside].T)], rounded[tuple(source[inside].T)]

    for place, axis in enumerate(axes):
        if not axis.block:
            continue
        for blocks in (*range(1, axis.blocks), *range(-1, -axis.blocks, -1)):
            by = blocks * axis.block
            if not np.equal(*values_and_sources(few, place, by)).all():  # a few elements refute most shifts
                continue
            values, sources = values_and_sources(where, place, by)
            if len(values) < max(2, len(where) // 2):
                continue
            if (values == sources).all() and len(np.unique(sources.astype(np.float64))) > 2:
                return Pattern(PatternKind.SHIFTED, axis.name, blocks)
    return None


def _one_block(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    for at, axis in zip(np.nonzero(comparison.wrong), axes, strict=True):
        if axis.block and axis.blocks > 1 and len(blocks := np.unique(at // axis.block)) == 1:
            return Pattern(PatternKind.ONE_BLOCK, axis.name, int(blocks[0]), axis.blocks)
    return None


def _one_line(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    for place, axis in enumerate(axes):
        at = np.unique(np.nonzero(comparison.wrong)[place])
        if len(at) == 1 and axis.length > 1 and len(axes) > 1:
            return Pattern(PatternKind.ONE_INDEX, axis.name or f"axis {place}", int(at[0]))
    return None


def _everywhere(comparison: Comparison, axes: Sequence[OutputAxis]) -> Pattern | None:
    return Pattern(PatternKind.EVERYWHERE) if comparison.wrong.all() and comparison.wrong.size > 1 else None


Rule = Callable[[Comparison, Sequence[OutputAxis]], Pattern | None]
_RULES: tuple[Rule, ...] = (_shifted_by_a_block, _past_the_last_full_block, _one_line, _one_block, _everywhere)
