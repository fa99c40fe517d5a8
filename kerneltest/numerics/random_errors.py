"""Random errors of samples, which are the same for all cases that are sampled at once."""

import math

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.formats import round_to_nearest

ROUNDING = 1.5
"""In roundoffs, of which a rounding is one, or half of one just below a power of two: this reaches both neighbours."""

_NOISE = np.random.Generator(np.random.PCG64(20)).uniform(-1.0, 1.0, 1 << 20)


def perturb(values: Array, ulps: Array, fmt: FloatFormat, seed: float) -> None:
    """Perturbs values by up to `ulps`, and by one rounding if they are not representable, in place.

    The distance to the next representable value is irrelevant: another formula for the same value, such as weights
    before they are divided by their total, is rounded elsewhere.
    """
    u = fmt.unit_roundoff
    amplitude: Array = np.asarray(2 * u * ulps + ROUNDING * u)
    inexact = ulps != 0
    free = inexact.any(axis=(0, *range(2, ulps.ndim)), keepdims=True) if ulps.ndim else inexact  # of each case
    if not free.all():
        amplitude = amplitude * (free | (round_to_nearest(values, fmt) != values))
    scale_randomly(values, amplitude, fmt, seed)


def scale_randomly(values: Array, amplitude: "float | Array", fmt: FloatFormat, seed: float) -> None:
    """Perturbs values in place by up to `amplitude`, relative to them or to the smallest normal number."""
    moved = np.asarray(amplitude * noise(values.shape, seed))
    low = np.abs(values) < fmt.smallest_normal if fmt != FLOAT32 else np.False_
    if low.any() and (low := low & (values != 0)).any():
        values[...] = np.where(low, values + moved * fmt.smallest_normal, values * (1 + moved))
    else:
        moved += 1
        values *= moved


def noise(shape: tuple[int, ...], seed: float) -> Array:
    """Returns numbers between -1 and 1, (rows, 1, ...), which are the same for all cases."""
    shape = (shape[0], 1, *shape[2:])
    count = math.prod(shape)
    if count > _NOISE.size:  # a pool that repeats would give several samples of an element the same error
        return np.random.Generator(np.random.PCG64(int(seed * 2**53))).uniform(-1.0, 1.0, shape)
    start = int(seed * (_NOISE.size - count + 1))
    return _NOISE[start : start + count].reshape(shape)


def select_rows(values: Array, rows: slice) -> Array:
    """Returns some rows of an array with all rows; an array with one row, or a number, is returned unchanged."""
    return values[rows] if values.ndim and len(values) > 1 else values
