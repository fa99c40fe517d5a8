"""Rounding of float64 arrays to the numbers of a narrower format."""

import math
from collections.abc import Callable

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32

_FEW = 8.0  # roundings: the errors of values that differ by more are independent


def round_to_nearest(values: Array, fmt: FloatFormat) -> Array:
    """Rounds to nearest, and overflows to infinity. The result is float32 for that format, float64 for others."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32) if fmt == FLOAT32 else _split(np.atleast_1d(values), fmt).reshape(values.shape)


def _split(values: Array, fmt: FloatFormat) -> Array:
    """Rounds to nearest by Veltkamp's splitting.

    The float64 sum with a number 2^(53 - p) times as large drops all but p bits (Muller et al., Handbook of
    Floating-Point Arithmetic, 2nd ed., section 4.4.1).
    """
    large = np.asarray(values * (2.0 ** (53 - fmt.precision) + 1))
    near = large - values
    np.subtract(large, near, out=near)
    size = np.abs(values, out=large)
    near = _round_subnormals(near, values, size, fmt, np.rint)
    if not np.max(size, initial=0.0) < fmt.overflow:
        near = np.where(size < fmt.overflow, near, np.where(np.isnan(values), values, np.copysign(np.inf, values)))
    return np.asarray(near)


def is_short(number: float, fmt: FloatFormat) -> bool:
    """Returns whether a number of a format is likely what its author wrote, and not the rounding of such as 0.1.

    It has half the format's bits, or is the sum or difference of three powers of two; or it is not finite.
    """
    if not math.isfinite(number):
        return True
    digits = significant_digits(number)
    powers = (digits ^ (3 * digits)).bit_count()  # in the sum or difference that has the fewest
    return digits < 2 ** (fmt.precision // 2) or powers <= 3


def significant_digits(number: float) -> int:
    """Returns the odd integer of which a finite number is a multiple by a power of two; 0 for 0."""
    digits = int(abs(math.frexp(number)[0]) * 2**53)
    return digits >> max((digits & -digits).bit_length() - 1, 0)


def fits(values: Array, fmt: FloatFormat) -> bool:
    """Returns whether a format represents all values exactly; NaN counts as representable."""
    same = round_to_nearest(values, fmt) == values
    return bool(same.all() or (same | np.isnan(values)).all())


def truncate(values: Array, fmt: FloatFormat) -> Array:
    """Rounds towards zero, in float64. Values that are too large keep their exponent."""
    dropped = 53 - fmt.precision  # bits of a float64
    near = (values.view(np.int64) & -(1 << dropped)).view(np.float64)
    return _round_subnormals(near, values, np.abs(values), fmt, np.trunc)


def _round_subnormals(
    near: Array, values: Array, size: Array, fmt: FloatFormat, to_integer: Callable[[Array], Array]
) -> Array:
    """Returns `near`, with values below the smallest normal number rounded to multiples of the smallest subnormal."""
    low = size < fmt.smallest_normal
    if not (low.any() and size[low].any()):
        return near
    least = fmt.smallest_subnormal
    return np.where(low, to_integer(values / least) * least, near)


def nearly_equal(values: Array, axis: int, fmt: FloatFormat) -> Array:
    """Returns whether magnitudes along an axis, except zeros, differ by a few roundings at most; keeps the axis."""
    size = np.abs(values)
    most = size.max(axis, keepdims=True, initial=0.0)
    least = np.where(size == 0, np.inf, size).min(axis, keepdims=True, initial=np.inf)
    return np.asarray((most - least <= _FEW * fmt.unit_roundoff * most) & (most > 0))
