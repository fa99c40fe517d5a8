"""Functions for elementwise operations, with XLA's definitions, in NumPy."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, cast, is_float, is_integer
from kerneltest.trace.batched_interpreter.machine import ArrayFunction, UnknownError
from kerneltest.trace.jax_compat.jaxprs import DType, Params


def widen(function: ArrayFunction) -> ArrayFunction:
    """Has a function of narrower floats computed in float32, as on a CPU."""

    def compute(*arrays: Array) -> Any:
        dtype = arrays[0].dtype
        if not is_float(dtype) or dtype.itemsize >= 4:
            return function(*arrays)
        return np.asarray(function(*(each.astype(np.float32) for each in arrays))).astype(dtype)

    return compute


def _quotient(a: Array, b: Array) -> Array:
    if is_float(a.dtype):
        return np.asarray(a / b)
    safe = np.where(b == 0, 1, b)
    floor = a // safe
    truncated = floor + ((floor * safe != a) & ((a < 0) != (safe < 0)))
    return np.asarray(np.where(b == 0, np.array(-1).astype(a.dtype), truncated)).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    if is_float(a.dtype):
        return np.asarray(np.fmod(a, b))
    return np.asarray(np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))).astype(a.dtype)


def _shift(function: ArrayFunction, beyond: ArrayFunction) -> ArrayFunction:
    """A shift whose result is that of `beyond` for amounts that are negative or at least the number of bits."""

    def compute(x: Array, by: Array) -> Array:
        bits = x.dtype.itemsize * 8
        outside = (by < 0) | (by >= bits)
        result = np.where(outside, beyond(x), function(x, np.where(outside, 0, by).astype(x.dtype)))
        return np.asarray(result).astype(x.dtype)

    return compute


def _shift_right_logical(x: Array, by: Array) -> Array:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.asarray(x.view(unsigned) >> by.astype(unsigned)).view(x.dtype)


def _round(params: Params) -> ArrayFunction:
    away = "AWAY" in str(params.get("rounding_method", "")) or str(params.get("rounding_method")) == "0"
    return widen(_round_away if away else np.rint)


def _round_away(x: Array) -> Array:
    below_half = np.nextafter(x.dtype.type(0.5), x.dtype.type(0))
    return np.asarray(np.trunc(x + np.copysign(below_half, x)))


def _power(params: Params) -> ArrayFunction:
    exponent = int(params["y"])

    def compute(x: Array) -> Any:
        result, square, remaining = None, x, abs(exponent)
        while remaining:
            if remaining & 1:
                result = square if result is None else result * square
            remaining >>= 1
            square = square * square if remaining else square
        result = np.ones_like(x) if result is None else result
        return np.ones_like(x) / result if exponent < 0 else result

    return widen(compute)


def _logistic(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def convert(x: Array, dtype: DType, *, promoted: bool = False) -> Array:
    """Converts to another dtype. From float to integer, values out of range saturate and NaN becomes 0.

    Args:
      x: to convert.
      dtype: the result's.
      promoted: whether float64 stands for a narrower float, so that a result that is stored is rounded once.

    Raises:
      UnknownError: from float64 to a narrow float, which XLA rounds in an unknown way.
    """
    if x.dtype == dtype:
        return x
    if is_float(x.dtype) and is_integer(dtype):
        info = ml_dtypes.iinfo(dtype)
        exact = np.trunc(x.astype(np.float64))
        inside = np.nan_to_num(np.clip(exact, float(info.min), float(info.max)), nan=0.0)
        if dtype.itemsize < 8:
            return np.asarray(inside.astype(np.int64).astype(dtype))
        top = inside >= float(info.max)
        return np.asarray(np.where(top, np.array(info.max, dtype), np.where(top, 0, inside).astype(dtype)))
    if is_float(x.dtype) and is_float(dtype) and x.dtype.itemsize > 4 and dtype.itemsize < 4:
        if not promoted:
            raise UnknownError("float64 to a narrow float")
        return cast(x, dtype)
    if x.dtype != np.bool_ and dtype == np.bool_:
        return np.asarray(x != 0)
    if is_integer(x.dtype) and is_float(dtype) and dtype.itemsize < 4:
        return x.astype(np.float32).astype(dtype)
    return x.astype(dtype)


PLAIN: Mapping[str, ArrayFunction] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "max": np.maximum,
    "min": np.minimum,
    "div": widen(_quotient),
    "rem": widen(_remainder),
    "pow": widen(lambda x, y: np.power(x, y.astype(x.dtype))),
    "square": np.square,
    "exp": widen(np.exp),
    "exp2": widen(np.exp2),
    "expm1": widen(np.expm1),
    "log": widen(np.log),
    "log1p": widen(np.log1p),
    "sqrt": widen(np.sqrt),
    "rsqrt": widen(lambda x: 1 / np.sqrt(x)),
    "tanh": widen(np.tanh),
    "logistic": widen(_logistic),
    "sin": widen(np.sin),
    "cos": widen(np.cos),
    "tan": widen(np.tan),
    "atan2": widen(np.arctan2),
    "floor": widen(np.floor),
    "ceil": widen(np.ceil),
    "is_finite": np.isfinite,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "nextafter": np.nextafter,
    "shift_left": _shift(np.left_shift, np.zeros_like),
    "shift_right_arithmetic": _shift(np.right_shift, lambda x: np.where(x < 0, -1, 0)),
    "shift_right_logical": _shift(_shift_right_logical, np.zeros_like),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "stop_gradient": lambda x: x,
    "multiple_of": lambda x: x,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "device_put": lambda x: x,
    "remove_memory_space": lambda x: x,
}

WITH_PARAMETERS: Mapping[str, Callable[[Params], ArrayFunction]] = {
    "round": _round,
    "integer_pow": _power,
}


def select(which: Array, *cases: Array) -> Any:
    """Selects each element from the array that a number, or a boolean for two arrays, names."""
    if len(cases) == 2:
        return np.where(which.astype(bool, copy=False), cases[1], cases[0])
    return np.choose(np.clip(which, 0, len(cases) - 1), cases)
