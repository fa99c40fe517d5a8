"""`kt.structure`: what holds of an array as a whole. Each is a function from an array to the nearest that has it.

    kt.array("n n", "float32", structure=kt.structure.positive_definite)

The last axis, or the last two, have the structure; further axes are a batch. Each family of values gets it, and so do
the values of a smallest case. A function of yours that takes and returns an array of float64 is a structure too. It
must leave arrays that have the structure as they are.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.problems import hide_frames

_DOMINANCE = 1.125  # of a diagonal over the rest of its row, which survives the rounding to eight bits


def _square(structure: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Marks a structure that only square matrices have."""
    marked: Any = structure
    marked.is_square = True
    return structure


@_square
def symmetric(values: Array) -> Array:
    """The upper triangle mirrors the lower one."""
    lower = np.tril(values)
    return np.asarray(lower + np.swapaxes(np.tril(values, -1), -1, -2))


@_square
def positive_definite(values: Array) -> Array:
    """Symmetric, with a diagonal that is greater than the sum of the other magnitudes in its row."""
    mirrored = symmetric(values)
    return _dominated(mirrored, np.abs(np.diagonal(mirrored, axis1=-2, axis2=-1)))


@_square
def lower_triangular(values: Array) -> Array:
    """Zeros above the diagonal, which is greater than the sum of the other magnitudes in its row."""
    return _dominated(np.tril(values), np.diagonal(values, axis1=-2, axis2=-1))


@_square
def upper_triangular(values: Array) -> Array:
    """Zeros below the diagonal, which is greater than the sum of the other magnitudes in its column."""
    return np.swapaxes(lower_triangular(np.swapaxes(values, -1, -2)), -1, -2)


@_square
def diagonal(values: Array) -> Array:
    """Zeros everywhere but on the diagonal."""
    return np.where(np.eye(values.shape[-1], dtype=bool), values, 0.0)


# Matrices with a diagonal that keeps its signs and is greater than the sum of the other magnitudes in its row.
def _dominated(values: Array, diagonal: Array) -> Array:
    size = np.abs(diagonal)
    others = np.abs(values).sum(axis=-1) - np.abs(np.diagonal(values, axis1=-2, axis2=-1))
    least = np.where(others > 0, _DOMINANCE * others, 1.0)
    enough = size > np.where(others > 0, others * (1 + 2.0**-6), 0)
    raised = np.where(enough, diagonal, np.copysign(least, diagonal))
    return np.where(np.eye(values.shape[-1], dtype=bool), raised[..., None], values)


@_square
def orthogonal(values: Array) -> Array:
    """Orthonormal rows and columns, up to rounding."""
    product = values @ np.swapaxes(values, -1, -2)
    if np.allclose(product, np.eye(values.shape[-1]), atol=2.0**-6):
        return values
    q, r = np.linalg.qr(values)
    return np.asarray(q * np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., None, :])


def stochastic(values: Array) -> Array:
    """Rows of numbers from 0 on that add up to one, up to rounding."""
    sizes = np.abs(values)
    total = sizes.sum(axis=-1, keepdims=True)
    if np.all(values >= 0) and np.allclose(total, 1, atol=2.0**-6):
        return values
    return np.where(total > 0, sizes / np.where(total > 0, total, 1), 1 / max(values.shape[-1], 1))


def ascending(values: Array) -> Array:
    """Each row is sorted."""
    return np.sort(values, axis=-1)


def one_signed(values: Array) -> Array:
    """No two numbers of the array have different signs; the first nonzero one decides."""
    nonzero = values.reshape(-1)[np.flatnonzero(values)[:1]]
    return np.abs(values) * (np.sign(nonzero[0]) if nonzero.size else 1.0)


@hide_frames
def sparse(share: float) -> Callable[[Array], Array]:
    """Returns the structure of arrays of which at most a share is not zero.

    Args:
      share: of the elements, from 0 to 1.

    Raises:
      ValueError: it is not such a number.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"sparse: the share of nonzero elements is from 0 to 1, not {share!r}")

    def sparse_(values: Array) -> Array:
        most = math.ceil(share * values.size)
        nonzero = np.flatnonzero(values)
        if nonzero.size <= most:
            return values
        seed = hashlib.sha256(np.ascontiguousarray(values).tobytes()).digest()[:8]
        kept = np.random.default_rng(list(seed)).permutation(nonzero)[:most]
        made = np.zeros(values.size)
        made[kept] = values.reshape(-1)[kept]
        return made.reshape(values.shape)

    sparse_.__name__ = f"sparse({share:g})"
    return sparse_
