"""Operations on each element, as XLA defines them, in NumPy."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.trace.batched_interpreter.values import UnknownError

Function = Callable[..., Any]


def wide(function: Function) -> Function:
    """A function of floats, computed in float32 for narrower ones, as a CPU does."""

    def computed(*arrays: Array) -> Any:
        dtype = arrays[0].dtype
        if not is_float(dtype) or dtype.itemsize >= 4:
            return function(*arrays)
        return np.asarray(function(*(each.astype(np.float32) for each in arrays))).astype(dtype)

    return computed


def _quotient(a: Array, b: Array) -> Array:
    if is_float(a.dtype):
        return np.asarray(a / b)
    safe = np.where(b == 0, 1, b)
    down = a // safe
    cut = down + ((down * safe != a) & ((a < 0) != (safe < 0)))
    return np.asarray(np.where(b == 0, np.array(-1).astype(a.dtype), cut)).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    if is_float(a.dtype):
        return np.asarray(np.fmod(a, b))
    return np.asarray(np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))).astype(a.dtype)


def _shifted(function: Function, beyond: Callable[[Array], Any]) -> Function:
    """A shift, and what there is where it is by as many bits as there are or more."""

    def computed(x: Array, by: Array) -> Array:
        bits = x.dtype.itemsize * 8
        outside = (by < 0) | (by >= bits)
        shifted = np.where(outside, beyond(x), function(x, np.where(outside, 0, by).astype(x.dtype)))
        return np.asarray(shifted).astype(x.dtype)

    return computed


def _logical(x: Array, by: Array) -> Array:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.asarray(x.view(unsigned) >> by.astype(unsigned)).view(x.dtype)


def _rounded(params: Mapping[str, Any]) -> Function:
    away = "AWAY" in str(params.get("rounding_method", "")) or str(params.get("rounding_method")) == "0"
    return wide(
        (lambda x: np.trunc(x + np.copysign(np.nextafter(np.float32(0.5), np.float32(0)), x))) if away else np.rint
    )


def _power(params: Mapping[str, Any]) -> Function:
    exponent = int(params["y"])

    def computed(x: Array) -> Any:
        result, square, left = None, x, abs(exponent)
        while left:
            if left & 1:
                result = square if result is None else result * square
            left >>= 1
            square = square * square if left else square
        result = np.ones_like(x) if result is None else result
        return np.ones_like(x) / result if exponent < 0 else result

    return wide(computed)


def _logistic(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def converted(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x` as another dtype: floats that no integer holds become the nearest that is one, and NaN becomes 0."""
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
        raise UnknownError("float64 to a narrow float")  # which NumPy rounds twice
    if x.dtype != np.bool_ and dtype == np.bool_:
        return np.asarray(x != 0)
    if is_integer(x.dtype) and is_float(dtype) and dtype.itemsize < 4:
        return x.astype(np.float32).astype(dtype)
    return x.astype(dtype)


PLAIN: Mapping[str, Function] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "max": np.maximum,
    "min": np.minimum,
    "div": wide(_quotient),
    "rem": wide(_remainder),
    "pow": wide(lambda x, y: np.power(x, y.astype(x.dtype))),
    "square": np.square,
    "exp": wide(np.exp),
    "exp2": wide(np.exp2),
    "expm1": wide(np.expm1),
    "log": wide(np.log),
    "log1p": wide(np.log1p),
    "sqrt": wide(np.sqrt),
    "rsqrt": wide(lambda x: 1 / np.sqrt(x)),
    "tanh": wide(np.tanh),
    "logistic": wide(_logistic),
    "sin": wide(np.sin),
    "cos": wide(np.cos),
    "tan": wide(np.tan),
    "atan2": wide(np.arctan2),
    "floor": wide(np.floor),
    "ceil": wide(np.ceil),
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
    "shift_left": _shifted(np.left_shift, np.zeros_like),
    "shift_right_arithmetic": _shifted(np.right_shift, lambda x: np.where(x < 0, -1, 0)),
    "shift_right_logical": _shifted(_logical, np.zeros_like),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "stop_gradient": lambda x: x,
    "multiple_of": lambda x: x,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "device_put": lambda x: x,
    "remove_memory_space": lambda x: x,
}

WITH_PARAMETERS: Mapping[str, Callable[[Mapping[str, Any]], Function]] = {
    "round": _rounded,
    "integer_pow": _power,
}


def selected(which: Array, *cases: Array) -> Any:
    """Of some arrays the element that a number, or a boolean, says."""
    if len(cases) == 2:
        return np.where(which.astype(bool, copy=False), cases[1], cases[0])
    return np.choose(np.clip(which, 0, len(cases) - 1), cases)
