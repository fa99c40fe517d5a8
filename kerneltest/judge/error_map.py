"""The map of error / bound over a whole output."""

import math

import numpy as np

from kerneltest.core.dtypes import Array, cast, float_format, is_float
from kerneltest.judge.compare import Comparison
from kerneltest.records.evidence import ERROR_LEVELS, ERROR_LIMITS, ErrorMap

_SIDE = 64  # tiles along each axis at most
_SPECIAL = len(ERROR_LEVELS) - 1
_RIGHT = ERROR_LIMITS.index(1.0) + 1  # the highest level of a right element


def map_errors(comparison: Comparison) -> ErrorMap:
    """Returns the largest error / bound in each tile of an output.

    Where only the rounded value is right, half a unit in its last place takes the place of the bound.
    """
    shape = comparison.actual.shape
    columns = shape[-1] if shape else 1
    rows = math.prod(shape[:-1])
    most_columns = _SIDE if rows > 1 else _SIDE * _SIDE
    tile = -(-rows // _SIDE), -(-columns // most_columns)
    levels = _levels(comparison).reshape(rows, columns)
    by_row = np.maximum.reduceat(levels, np.arange(0, rows, tile[0]), axis=0)
    tiles = np.maximum.reduceat(by_row, np.arange(0, columns, tile[1]), axis=1)
    return ErrorMap(
        shape, (tiles.shape[0], tiles.shape[1]), tile, "".join(ERROR_LEVELS[level] for level in tiles.ravel())
    )


def _levels(comparison: Comparison) -> Array:
    """Returns the position of each element in `ERROR_LEVELS`."""
    actual, exact = comparison.actual, comparison.expected
    with np.errstate(all="ignore"):  # special values are set afterwards
        if is_float(actual.dtype):
            half = float_format(actual.dtype).ulp(exact) / 2
            is_same = actual.astype(np.float64) == cast(exact, actual.dtype).astype(np.float64)
        else:
            half, is_same = np.full(actual.shape, 0.5), actual == cast(exact, actual.dtype)
        error = np.abs(actual.astype(np.float64) - exact.astype(np.float64))
        used = np.where(is_same & (error <= half), 0.0, error) / np.maximum(comparison.bound, half)
        levels = np.searchsorted(ERROR_LIMITS, np.where(np.isnan(used), 0.0, used)) + 1
    levels = np.where(comparison.wrong, np.maximum(levels, _RIGHT + 1), np.minimum(levels, _RIGHT))
    levels = np.where(comparison.wrong & comparison.special, _SPECIAL, levels)
    return np.where(np.isinf(comparison.bound) & ~comparison.wrong, 0, levels)
