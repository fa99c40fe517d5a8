"""The size of partial sums in the orders in which kernels add: each rounding is relative to one of them.

Kernels add terms in their order, in blocks, in lanes that take every eighth term, or as a tree. A partial sum of terms
that do not depend on this order is a random walk: `sqrt(sum x^2)` about the part of the total that it has reached
(Higham and Mary, "Sharper probabilistic backward error analysis for basic linear algebra kernels with random data",
SIAM J. Sci. Comput. 42, 2020). Terms that do depend on it, such as ascending ones, are added here in groups. No order
exceeds the sum of all terms of one sign.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.numerics.formats import round_to_nearest

_GROUPS = 8  # of terms that follow each other, or that one lane adds
_LANED = 256  # terms of a product: in shorter ones the partial sums of lanes are hardly larger than a random walk


def limit_of_partial_sums(total: Array, mass: Array) -> Array:
    """Returns the largest partial sum in any order.

    Args:
      total: sums.
      mass: the sums of the magnitudes of their terms.
    """
    return np.asarray((mass + np.abs(total)) / 2)


def partial_sums(terms: Array, total: Array, mass: Array) -> Array:
    """Returns how large the partial sums of terms are, in the shape of `total`.

    Args:
      terms: the terms, along the first axis.
      total: their sums.
      mass: the sums of their magnitudes.
    """
    reached = np.add.accumulate(terms, axis=0)
    largest = np.maximum(reached.max(axis=0), -reached.min(axis=0))
    if len(terms) >= 2 * _GROUPS:
        size = len(terms) // _GROUPS
        lanes = np.add.reduce(terms[: size * _GROUPS].reshape(size, _GROUPS, *terms.shape[1:]), axis=0)
        largest = np.maximum(largest, np.abs(lanes).max(axis=0))
    return _walk(largest, np.add.reduce(terms * terms, axis=0), total, mass)


def accumulated_partial_sums(terms: Array, axis: int, total: Array, mass: Array) -> Array:
    """Returns how large the partial sums of each cumulative sum are: sums of neighbours, as each one is a result.

    Args:
      terms: the terms.
      axis: the axis along which they are accumulated.
      total: the cumulative sums.
      mass: the cumulative sums of magnitudes.
    """
    largest = np.maximum.accumulate(np.abs(total), axis=axis)
    return _walk(largest, np.add.accumulate(terms * terms, axis=axis), total, mass)


def product_partial_sums(left: Array, right: Array, total: Array, mass: Array, squares: Array) -> Array:
    """Returns how large the partial sums of a matrix product are.

    Args:
      left: (..., rows, inner).
      right: (..., inner, columns).
      total: `left @ right`.
      mass: `|left| @ |right|`.
      squares: `left**2 @ right**2`.
    """
    terms = left.shape[-1]
    if terms < 4 * _GROUPS:  # of few terms, any partial sum is nearly as large as that of any order
        return limit_of_partial_sums(total, mass)
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
    return np.asarray(np.minimum(largest + np.sqrt(squares), limit_of_partial_sums(total, mass)))


@dataclass(frozen=True, slots=True)
class Chain:
    """The terms of a sum that the oracle adds one by one, each an array, and a kernel in any order.

    Attributes:
      count: the number of terms.
      positive: the sum of the positive ones, element by element.
      negative: the sum of the magnitudes of the negative ones.
      grain: the largest power of two of which all terms are multiples; infinite if all are zero.
      rounded: the largest partial sum that is rounded in the oracle's own order; 0 if all are representable.
    """

    count: int
    positive: Array
    negative: Array
    grain: Array
    rounded: Array

    @staticmethod
    def of(term: Array) -> "Chain":
        """Returns the chain of a single term."""
        mantissa, exponent = np.frexp(np.where(np.isfinite(term), term, 0.0))
        digits = (np.abs(mantissa) * 2.0**53).astype(np.int64)
        grain = np.ldexp((digits & -digits).astype(np.float64), exponent - 53)
        return Chain(
            1, np.maximum(term, 0.0), np.maximum(-term, 0.0), np.where(digits == 0, np.inf, grain), np.zeros(term.shape)
        )

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
        """Returns the chain with its arrays changed."""
        parts = map(change, (self.positive, self.negative, self.grain, self.rounded))
        return Chain(self.count, *parts)

    def partial_sums(self, total: Array, fmt: FloatFormat) -> Array:
        """Returns how large partial sums are whose roundings are not those of earlier operations of the oracle.

        It is 0 where the partial sums of every order are representable. Where the oracle's order has already rounded a
        partial sum about as large as that of any order, it is the total, which is rounded here.
        """
        largest = np.maximum(self.positive, self.negative)
        here = np.where(2 * self.rounded >= largest, _rounded(total, fmt), largest)
        return np.where(largest <= self.grain * 2.0**fmt.precision, 0.0, here)


def _rounded(total: Array, fmt: FloatFormat) -> Array:
    """Returns the magnitude of sums, 0 where they are representable."""
    return np.where(round_to_nearest(total, fmt) == total, 0.0, np.abs(total))
