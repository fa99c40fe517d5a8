"""The samples of one array of the oracle, and the tape of operations on such arrays."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat, is_float
from kerneltest.core.failures import DeclarationError, Origin, origin_of
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.rounding_model import RoundingModel, ValueOrigin, current_origin, round_to_nearest

# The size of partial sums in the orders in which kernels add: each rounding is relative to one of them.
#
# Kernels add terms in their order, in blocks, in lanes that take every eighth term, or as a tree. A partial sum of
# terms that do not depend on this order is a random walk: `sqrt(sum x^2)` about the part of the total that it has
# reached (Higham and Mary, "Sharper probabilistic backward error analysis for basic linear algebra kernels with random
# data", SIAM J. Sci. Comput. 42, 2020). Terms that do depend on it, such as ascending ones, are added here in groups.
# No order exceeds the sum of all terms of one sign.

_GROUPS = 8  # of terms that follow each other, or that one lane adds
_LANED = 256  # terms of a product: in shorter ones the partial sums of lanes are hardly larger than a random walk


# In any order. `total` are sums, here and below, and `mass` those of the magnitudes of their terms.
def _largest_partial_sum(total: Array, mass: Array) -> Array:
    return np.asarray((mass + np.abs(total)) / 2)


def partial_sums(terms: Array, total: Array, mass: Array) -> Array:
    """Returns how large the partial sums of terms along the first axis are, in the shape of `total`."""
    reached = np.add.accumulate(terms, axis=0)
    largest = np.maximum(reached.max(axis=0), -reached.min(axis=0))
    if len(terms) >= 2 * _GROUPS:
        size = len(terms) // _GROUPS
        lanes = np.add.reduce(terms[: size * _GROUPS].reshape(size, _GROUPS, *terms.shape[1:]), axis=0)
        largest = np.maximum(largest, np.abs(lanes).max(axis=0))
    return _walk(largest, np.add.reduce(terms * terms, axis=0), total, mass)


def accumulated_partial_sums(terms: Array, axis: int, total: Array, mass: Array) -> Array:
    """Returns how large the partial sums of each cumulative sum are: sums of neighbours, as each one is a result."""
    largest = np.maximum.accumulate(np.abs(total), axis=axis)
    return _walk(largest, np.add.accumulate(terms * terms, axis=axis), total, mass)


def product_partial_sums(left: Array, right: Array, total: Array, mass: Array, squares: Array) -> Array:
    """Returns how large the partial sums of a matrix product are; `squares` is `left**2 @ right**2`."""
    terms = left.shape[-1]
    if terms < 4 * _GROUPS:  # of few terms, any partial sum is nearly as large as that of any order
        return _largest_partial_sum(total, mass)
    size = terms // _GROUPS
    a = left[..., : size * _GROUPS].reshape(*left.shape[:-1], _GROUPS, size)
    b = right[..., : size * _GROUPS, :].reshape(*right.shape[:-2], _GROUPS, size, right.shape[-1])
    reached = np.add.accumulate(np.moveaxis(a, -2, 0) @ np.moveaxis(b, -3, 0), axis=0)
    largest = np.maximum(np.abs(total), np.abs(reached).max(axis=0))
    if terms >= _LANED:
        a, b = a.reshape(*left.shape[:-1], size, _GROUPS), b.reshape(*right.shape[:-2], size, _GROUPS, right.shape[-1])
        largest = np.maximum(largest, np.abs(np.moveaxis(a, -1, 0) @ np.moveaxis(b, -2, 0)).max(axis=0))
    return _walk(largest, squares, total, mass)


def _walk(largest: Array, squares: Array, total: Array, mass: Array) -> Array:
    return np.asarray(np.minimum(largest + np.sqrt(squares), _largest_partial_sum(total, mass)))


@dataclass(frozen=True, slots=True)
class Chain:
    """The terms of a sum that the oracle adds one by one, each an array, and a kernel in any order."""

    count: int  # the number of terms
    positive: Array  # the sum of the positive ones, element by element
    negative: Array  # the sum of the magnitudes of the negative ones
    grain: Array  # the largest power of two of which all terms are multiples; infinite if all are zero
    rounded: Array  # the largest partial sum that is rounded in the oracle's own order; 0 if all are representable

    @staticmethod
    def of(term: Array) -> "Chain":
        mantissa, exponent = np.frexp(np.where(np.isfinite(term), term, 0.0))
        digits = (np.abs(mantissa) * 2.0**53).astype(np.int64)
        grain = np.ldexp((digits & -digits).astype(np.float64), exponent - 53)
        grain = np.where(digits == 0, np.inf, grain)
        return Chain(1, np.maximum(term, 0.0), np.maximum(-term, 0.0), grain, np.zeros(term.shape))

    def join(self, other: "Chain", total: Array, fmt: FloatFormat, *, subtracts: bool) -> "Chain":
        """Returns the chain of the sum or the difference of two, which is `total` and is rounded to a format."""
        plus, minus = (other.negative, other.positive) if subtracts else (other.positive, other.negative)
        return Chain(
            self.count + other.count,
            self.positive + plus,
            self.negative + minus,
            np.minimum(self.grain, other.grain),
            np.fmax(np.maximum(self.rounded, other.rounded), _rounded(total, fmt)),
        )

    def map(self, change: Callable[[Array], Array]) -> "Chain":
        return Chain(self.count, *map(change, (self.positive, self.negative, self.grain, self.rounded)))

    def partial_sums(self, total: Array, fmt: FloatFormat) -> Array:
        """Returns how large partial sums are whose roundings are not those of earlier operations of the oracle.

        It is 0 where the partial sums of every order are representable. Where the oracle's order has already rounded a
        partial sum about as large as that of any order, it is the total, which is rounded here.
        """
        largest = np.maximum(self.positive, self.negative)
        here = np.where(2 * self.rounded >= largest, _rounded(total, fmt), largest)
        return np.where(largest <= self.grain * 2.0**fmt.precision, 0.0, here)


# The magnitude of sums, 0 where they are representable.
def _rounded(total: Array, fmt: FloatFormat) -> Array:
    return np.where(round_to_nearest(total, fmt) == total, 0.0, np.abs(total))


Operand = Any
"""An operand or a result of a NumPy function while an oracle is sampled: a tracked array, a NumPy array or a number."""

Option = Any
"""An option of a NumPy function, such as an axis, a dtype or a mode, in any of the forms that NumPy accepts."""

Formats = frozenset[FloatFormat]

# What tracked arrays raise for operations that they do not have.
_UNSUPPORTED = (TypeError, ValueError, AttributeError, IndexError)


class UntrackedError(TypeError):
    """A NumPy function whose rounding is unknown, or an operation that tracked arrays do not have."""


class KeptArrayError(UntrackedError, DeclarationError):
    """An oracle uses an array that it made in an earlier call, on other values or in other arithmetic."""

    def __init__(self) -> None:
        super().__init__("it uses an array that it made in an earlier call: make arrays anew in each call")


@dataclass(slots=True, eq=False, repr=False)
class SampledArray:
    """Values of one array of the oracle, in all samples."""

    samples: Array  # (rows, *shape), or (1, *shape) if all rows are equal; float64, int64 or bool
    rounding: RoundingModel  # the rounding model of the samples
    # those of the arguments that they are computed from; none for arrays that the oracle creates, which take those of
    # the arrays that they are combined with
    formats: Formats = frozenset()
    # the aligned terms of a sum or a difference, since a kernel may scale each before it adds; else None
    terms: tuple[Array, Array] | None = field(default=None, init=False)
    subtracts: bool = field(default=False, init=False)  # whether it is a difference
    # the terms of a sum of three or more, since a kernel may add them in another order; else None
    chain: Chain | None = field(default=None, init=False)
    # for a matrix product, computes it from operands that were scaled before they were rounded; else None
    scaled: "Callable[[], SampledArray] | None" = field(default=None, init=False)
    # for a matrix product, computes it with other errors; else None
    again: "Callable[[], SampledArray] | None" = field(default=None, init=False)
    # for a quotient, samples in which exact results stay, which decide ties; else None
    settled: Array | None = field(default=None, init=False)
    # the factors of an elementwise product, one of which is a matrix product; else ()
    factors: tuple[Operand, ...] = field(default=(), init=False)

    def with_samples(self, samples: Array, formats: Formats = frozenset()) -> Self:
        """Returns another array of the same rounding model, and of the same formats unless others are given."""
        return type(self)(samples, self.rounding, formats or self.formats)

    def overwrite(self, samples: Array, formats: Formats = frozenset()) -> None:
        """Replaces all values, and with them what is known of their computation; other formats only if given."""
        made = self.with_samples(samples, formats)
        for each in fields(made):
            setattr(self, each.name, getattr(made, each.name))

    def record(self, name: str, inputs: Iterable[Operand], **options: Option) -> Self:
        """Appends the operation that computed this array to the tape, if there is one, and returns the array.

        Operations on integers alone have no derivative and are left out.
        """
        if self.rounding.tape is not None:
            step = TapeEntry(name, tuple(inputs), self, options, current_origin())
            inputs = step.options.get("tracked", step.inputs)
            if any(isinstance(each, SampledArray) and is_float(each.samples.dtype) for each in (self, *inputs)):
                self.rounding.tape.append(step)
        return self

    @property
    def constant(self) -> Array | None:
        """The integers or booleans that are the same in all samples; None for other arrays."""
        return self.samples[0] if len(self.samples) == 1 and self.samples.dtype.kind in "iub" else None

    @property
    def compute(self) -> FloatFormat:
        """The format in which a kernel computes with the array: float32 if its arguments differ in format."""
        return self.rounding.compute or (next(iter(self.formats)) if len(self.formats) == 1 else FLOAT32)

    @property
    def shape(self) -> tuple[int, ...]:  # of one sample
        return tuple(self.samples.shape[1:])

    @property
    def ndim(self) -> int:
        return self.samples.ndim - 1


@dataclass(frozen=True, slots=True)
class TapeEntry:
    """One operation on tracked arrays, recorded for differentiation."""

    name: str  # the operation; `pullback` has the derivative rules by this name
    inputs: tuple[Operand, ...]  # the operands, tracked or not
    output: SampledArray  # the result
    options: Mapping[str, Option]  # the other arguments, such as axes
    origin: ValueOrigin  # the expression in the oracle


def join_formats(arrays: Iterable[Operand]) -> Formats:
    """Returns the formats of the arguments that several arrays are computed from."""
    return frozenset().union(*(array.formats for array in arrays if isinstance(array, SampledArray)))


def settle(operand: Operand) -> Operand:
    """Returns an operand of an operation that decides: a quotient whose exact results stay, any other unchanged."""
    settled = operand.settled if isinstance(operand, SampledArray) else None
    return operand if settled is None else operand.with_samples(settled)


def round_constants(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Returns operands with untracked numbers and large integers rounded as a kernel's arithmetic has them.

    They are the very same operands if all of these are representable, or beyond the range of that arithmetic: kernels
    write other numbers in the place of such.
    """
    first = next(operand for operand in operands if isinstance(operand, SampledArray))
    like = first.with_samples(first.samples, join_formats(operands))

    def round_constant(operand: Operand) -> Operand:
        tracked = isinstance(operand, SampledArray)
        if tracked and operand.samples.dtype.kind not in "iu":
            return operand
        values = samples_of(operand)
        rounded = round_numbers(values, like.rounding, like.compute)
        return operand if rounded is values else type(like)(rounded, like.rounding, join_formats([operand]))

    rounded = tuple(map(round_constant, operands))
    return operands if all(one is other for one, other in zip(rounded, operands, strict=True)) else rounded


def samples_of(operand: Operand) -> Array:
    """Returns the samples of an operand, (rows or 1, *shape)."""
    return operand.samples if isinstance(operand, SampledArray) else np.asarray(operand)[None]


def round_numbers(values: Array, rounding: RoundingModel, fmt: FloatFormat) -> Array:
    """Returns numbers that an oracle creates as a kernel's arithmetic has them, (rows or 1, ...).

    The very same values if they are representable or beyond the range of the format.
    """
    if values.dtype.kind not in "fiu" or not values.size:
        return values
    if values.dtype.kind in "iu" and np.abs(values).max() <= 2**fmt.precision:
        return values
    wide = values.astype(np.float64)
    size, near = np.abs(wide), round_to_nearest(wide, fmt)
    odd = (near != wide) & (size >= fmt.smallest_normal) & (size < fmt.overflow)
    return np.where(odd, rounding.round_result(wide.copy(), 0.0, fmt), wide) if odd.any() else values


def unwrap(value: Operand) -> Operand:
    """Returns a tracked array of integers or booleans that are the same in all samples as a NumPy array."""
    known = value.constant if isinstance(value, SampledArray) else None
    return value if known is None else known


def align_samples(arrays: Iterable[Operand], ndim: int | None = None) -> list[Array]:
    """Returns NumPy arrays that broadcast as the operands do, with the axis of samples first.

    They have `ndim` axes after it, by default the maximum of the operands'.
    """
    arrays = [array if isinstance(array, SampledArray) else np.asarray(array) for array in arrays]
    most = max(array.ndim for array in arrays) if ndim is None else ndim
    return [
        array.samples.reshape(len(array.samples), *(1,) * (most - array.ndim), *array.shape)
        if isinstance(array, SampledArray)
        else array
        for array in arrays
    ]


def axes_of(axis: Option, ndim: int) -> tuple[int, ...]:
    """Returns the axes of the array of samples for NumPy's `axis` argument, in order; AxisError if there is none."""
    chosen = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for each in chosen:
        if not -ndim <= each < ndim:
            raise np.exceptions.AxisError(each, ndim)
    return tuple(sorted(1 + each % ndim for each in chosen))


def raise_own_mistake(error: Exception) -> None:
    """Raises an exception again if it is a mistake of kerneltest's rather than an operation that cannot be tracked."""
    if not isinstance(error, _UNSUPPORTED) and origin_of(error) is Origin.KERNELTEST:
        raise error
