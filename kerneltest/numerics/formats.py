"""Rounds float64 arrays to the numbers of a format."""

from collections.abc import Callable

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32

_FEW = 8.0  # roundings, beyond which those of values that differ have nothing in common


def nearest(values: Array, fmt: FloatFormat) -> Array:
    """To nearest; what is too large becomes infinite. Those of float32 are in float32."""
    return values.astype(np.float32) if fmt == FLOAT32 else _split(values, fmt)


def _split(values: Array, fmt: FloatFormat) -> Array:
    # Veltkamp's splitting (Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 4.4.1): float64's sum
    # with a number 2^(53 - p) times as large drops all but p bits.
    large = np.asarray(values * (2.0 ** (53 - fmt.precision) + 1))
    near = large - values
    np.subtract(large, near, out=near)
    size = np.abs(values, out=large)
    near = _among_subnormal(near, values, size, fmt, np.rint)
    if not np.max(size, initial=0.0) < fmt.overflow:
        near = np.where(size < fmt.overflow, near, np.where(np.isnan(values), values, np.copysign(np.inf, values)))
    return np.asarray(near)


def fits(values: Array, fmt: FloatFormat) -> bool:
    """Whether all values are of a format."""
    same = nearest(values, fmt) == values
    return bool(same.all() or (same | np.isnan(values)).all())


def truncated(values: Array, fmt: FloatFormat) -> Array:
    """Towards zero; what is too large keeps its exponent."""
    dropped = 53 - fmt.precision  # bits of a float64
    near = (values.view(np.int64) & -(1 << dropped)).view(np.float64)
    return _among_subnormal(near, values, np.abs(values), fmt, np.trunc)


def _among_subnormal(
    near: Array, values: Array, size: Array, fmt: FloatFormat, whole: Callable[[Array], Array]
) -> Array:
    """`near`, with values below the smallest normal number rounded to multiples of the smallest one."""
    low = size < fmt.smallest_normal
    if not (low.any() and size[low].any()):
        return near
    least = fmt.smallest_subnormal
    return np.where(low, whole(values / least) * least, near)


def nearly_equal(values: Array, axis: int, fmt: FloatFormat) -> Array:
    """Where magnitudes along an axis, zeros aside, differ by a few roundings at most."""
    size = np.abs(values)
    most = size.max(axis, keepdims=True, initial=0.0)
    least = np.where(size == 0, np.inf, size).min(axis, keepdims=True, initial=np.inf)
    return np.asarray((most - least <= _FEW * fmt.unit_roundoff * most) & (most > 0))
