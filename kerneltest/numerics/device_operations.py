"""Operations in NumPy with the results that XLA and GPUs give: arithmetic, casts, reductions and matrix products."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, DType, cast, is_float, is_integer

# From arrays, which broadcast together, to an array.
Compute = Callable[..., Any]


def _is_narrow(dtype: DType) -> bool:
    return is_float(dtype) and dtype.itemsize < 4


def in_float32(function: Compute) -> Compute:
    """Has a function of narrower floats computed in float32 and rounded once, as on a CPU."""

    def compute(*arrays: Array, **options: Any) -> Any:
        if not _is_narrow(arrays[0].dtype):
            return function(*arrays, **options)
        return np.asarray(function(*(x.astype(np.float32) for x in arrays), **options)).astype(arrays[0].dtype)

    return compute


# Integers. Division by zero is undefined on devices; these results are those of XLA and of NVIDIA's GPUs.


def unsigned_view(x: Array) -> Array:
    """Returns a view of the same bits as unsigned integers."""
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def as_unsigned(compute: Compute) -> Compute:
    """Returns a computation on operands viewed as unsigned integers, whose result is viewed in their dtype again."""
    return lambda a, b: compute(unsigned_view(a), unsigned_view(b)).view(a.dtype)


def divide(a: Array, b: Array) -> Array:
    """Divides; integers are rounded towards zero, and give -1 (all bits set) for a division by zero."""
    if is_float(a.dtype):
        return np.asarray(a / b)
    safe = np.where(b == 0, 1, b)
    floor = a // safe
    truncated = floor + ((floor * safe != a) & ((a < 0) != (safe < 0)))
    return np.asarray(np.where(b == 0, np.array(-1).astype(a.dtype), truncated)).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    """Returns the remainder, with the sign of the dividend; for integers and a divisor of 0 the dividend itself."""
    if is_float(a.dtype):
        return np.asarray(np.fmod(a, b))
    return np.asarray(np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))).astype(a.dtype)


def _shift(function: Compute, beyond: Compute) -> Compute:
    # A shift whose result is that of `beyond` for amounts that are negative or at least the number of bits.

    def compute(x: Array, by: Array) -> Array:
        outside = (by < 0) | (by >= x.dtype.itemsize * 8)
        result = np.where(outside, beyond(x), function(x, np.where(outside, 0, by).astype(x.dtype)))
        return np.asarray(result).astype(x.dtype)

    return compute


shift_left = _shift(np.left_shift, np.zeros_like)
shift_right_arithmetic = _shift(np.right_shift, lambda x: np.where(x < 0, -1, 0))
shift_right_logical = _shift(as_unsigned(np.right_shift), np.zeros_like)


def leading_zeros(x: Array) -> Array:
    """Counts the zeros before the first one among the bits of integers."""
    bits = np.unpackbits(unsigned_view(x).astype(f">u{x.dtype.itemsize}")[..., None].view(np.uint8), axis=-1)
    return np.where(bits.any(axis=-1), bits.argmax(axis=-1), x.dtype.itemsize * 8).astype(x.dtype)


def count_ones(x: Array) -> Array:
    """Counts the ones among the bits of integers."""
    return np.bitwise_count(unsigned_view(x)).astype(x.dtype)


# Functions of real numbers.


def round_away(x: Array) -> Array:
    """Rounds to the nearest integer, and halves away from zero."""
    below_half = np.nextafter(x.dtype.type(0.5), x.dtype.type(0))  # 0.5 would round the number below it up
    return np.asarray(np.trunc(x + np.copysign(below_half, x)))


def erf(x: Array) -> Array:
    """The error function, in float64."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x), rounded twice."""
    return np.asarray(1 / np.sqrt(x))


def logistic(x: Array) -> Array:
    """The sigmoid, by its definition."""
    return np.asarray(1 / (1 + np.exp(-x)))


def power(x: Array, y: Array) -> Array:
    """X to the power of floats or integers."""
    return np.asarray(np.power(x, y.astype(x.dtype)))


def integer_power(x: Array, exponent: int) -> Array:
    """Multiplies repeatedly, as XLA does for a constant exponent."""
    result, square, remaining = None, x, abs(exponent)
    while remaining:
        if remaining & 1:
            result = square if result is None else result * square
        remaining >>= 1
        square = square * square if remaining else square
    result = np.ones_like(x) if result is None else result
    return np.asarray(np.ones_like(x) / result) if exponent < 0 else result


# What an atomic update or a scatter combines the content of memory with.
UPDATES: Mapping[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def sign(x: Array) -> Array:
    """The sign as XLA computes it: that of -0 is -0."""
    return np.copysign(np.sign(x), x) if is_float(x.dtype) else np.sign(x)


def clamp(low: Array, x: Array, high: Array) -> Array:
    """Clamps; if the limits are in the wrong order, the upper one counts."""
    return np.asarray(np.minimum(np.maximum(x, low), high))


def select(which: Array, *cases: Array) -> Any:
    """Selects each element from the array that a number, or a boolean for two arrays, names."""
    if len(cases) == 2:
        return np.where(which.astype(bool, copy=False), cases[1], cases[0])
    return np.choose(np.clip(which, 0, len(cases) - 1), cases)


# Casts.


def float_to_integer(x: Array, dtype: DType) -> Array:
    """Rounds towards zero and saturates; NaN becomes 0, as in XLA, PTX and on AMD's GPUs."""
    info = ml_dtypes.iinfo(dtype)
    inside = np.nan_to_num(np.clip(np.trunc(x.astype(np.float64)), float(info.min), float(info.max)), nan=0.0)
    if dtype.itemsize < 8:
        return np.asarray(inside.astype(np.int64).astype(dtype))
    top = inside >= float(info.max)
    return np.asarray(np.where(top, np.array(info.max, dtype), np.where(top, 0, inside).astype(dtype)))


def integer_to_float(x: Array, dtype: DType, *, by_float32: bool) -> Array:
    """Rounds integers or booleans to nearest; to narrow floats `by_float32` and thus twice, as XLA's CPU does."""
    wide = by_float32 and dtype.itemsize < 4
    return x.astype(np.float32).astype(dtype) if wide else x.astype(dtype)


def convert(x: Array, dtype: DType) -> Array:
    """Converts to another dtype as XLA does on a CPU. Float64 is rounded once, which XLA may do in two steps."""
    if x.dtype == dtype:
        return x
    if is_float(x.dtype) and is_integer(dtype):
        return float_to_integer(x, dtype)
    if is_float(x.dtype) and is_float(dtype) and x.dtype.itemsize > 4 and dtype.itemsize < 4:
        return cast(x, dtype)
    if x.dtype != np.bool_ and dtype == np.bool_:
        return np.asarray(x != 0)
    if is_integer(x.dtype) and is_float(dtype):
        return integer_to_float(x, dtype, by_float32=True)
    return x.astype(dtype)


def reduce_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Rounds to a float with fewer bits of either kind, as XLA does: one too small for a normal number becomes zero."""
    info = ml_dtypes.finfo(x.dtype)
    kept, exponents = info.nmant, info.bits - 1 - info.nmant
    bits, infinity = x.view(f"u{x.dtype.itemsize}"), ((1 << exponents) - 1) << kept
    if (dropped := kept - mantissa_bits) > 0:  # ties to even
        bits = (bits + (bits >> dropped & 1) + ((1 << dropped - 1) - 1)) >> dropped << dropped
    if exponent_bits < exponents:
        middle, reach = (1 << exponents - 1) - 1, (1 << exponent_bits - 1) - 1
        sign, exponent = bits & (1 << info.bits - 1), bits & infinity
        bits = np.where(exponent > (middle + reach) << kept, sign | infinity, bits)
        bits = np.where(exponent <= (middle - reach) << kept, sign, bits)
    return np.where(np.isnan(x), x, bits.view(x.dtype))


# Reductions, which NumPy sums pairwise, and products of matrices.


_SUMS = (np.sum, np.prod, np.cumsum, np.cumprod)


def reduce(function: Compute, x: Array, axis: int | tuple[int, ...]) -> Array:
    """Reduces or accumulates along axes: narrow floats in float32 as on a CPU; integers wrap in their own dtype."""
    if _is_narrow(x.dtype):
        return np.asarray(function(x.astype(np.float32), axis=axis)).astype(x.dtype)
    options = {"dtype": x.dtype} if function in _SUMS and not is_float(x.dtype) else {}  # NumPy would widen them
    return np.asarray(function(x, axis=axis, **options))


def position(function: Compute, x: Array, axis: int) -> Array:
    """Finds the position of the largest or smallest element along an axis, by `np.argmax` or `np.argmin`."""
    return np.asarray(function(x.astype(np.float32) if _is_narrow(x.dtype) else x, axis=axis))


def product_dtype(first: DType, second: DType, result: DType) -> DType:
    """The dtype in which to multiply matrices: exact for narrow integers, float32 for narrow floats."""
    if is_float(result):
        return np.dtype(np.float64 if result.itemsize == 8 else np.float32)
    narrow = all(is_integer(dtype) and dtype.itemsize <= 2 for dtype in (first, second))
    return np.dtype(np.float64 if narrow and result.itemsize >= 4 else result)  # BLAS has no integers


def multiply_matrices(a: Array, b: Array, dtype: DType) -> Array:
    """Multiplies matrices for a result in a dtype: integers wrap, floats are summed in float32 or wider, unrounded."""
    wide = product_dtype(a.dtype, b.dtype, dtype)
    product = a.astype(wide, copy=False) @ b.astype(wide, copy=False)
    keeps = is_float(dtype) or wide == dtype
    return np.asarray(product if keeps else product.astype(np.int64).astype(dtype))
