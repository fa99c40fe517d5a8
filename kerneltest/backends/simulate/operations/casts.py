"""Conversions between dtypes: from the dtype of the result to a computation."""

from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Compute
from kerneltest.backends.simulate.operations.arithmetic import unsigned
from kerneltest.core.dtypes import Array


def cast(dtype: np.dtype[Any]) -> Compute:
    """Between floats, to nearest."""
    return lambda x: x if x.dtype == dtype else x.astype(dtype)


def extend_signed(dtype: np.dtype[Any]) -> Compute:
    """An integer to a wider one; true becomes -1."""
    return lambda x: (-x.astype(np.int8) if x.dtype == np.bool_ else x).astype(dtype)


def extend_unsigned(dtype: np.dtype[Any]) -> Compute:
    """An integer without a sign to a wider one; true becomes 1."""
    wide = unsigned(np.empty(0, dtype)).dtype
    return lambda x: x.astype(dtype) if x.dtype == np.bool_ else unsigned(x).astype(wide).view(dtype)


def truncate(dtype: np.dtype[Any]) -> Compute:
    """An integer to its lowest bits."""
    return lambda x: (x & 1).astype(np.bool_) if dtype == np.bool_ else x.astype(dtype)


def _to_float(dtype: np.dtype[Any], *, signed: bool) -> Compute:
    def converted(x: Array) -> Array:
        if x.dtype == np.bool_:
            return (-x.astype(np.float32) if signed else x.astype(np.float32)).astype(dtype)
        wide = np.float64 if dtype.itemsize == 8 else np.float32
        read = x if signed else unsigned(x)
        return np.asarray(read.astype(dtype if dtype.kind == "f" else wide).astype(dtype))

    return converted


def signed_to_float(dtype: np.dtype[Any]) -> Compute:
    """An integer to a float, to nearest; true becomes -1."""
    return _to_float(dtype, signed=True)


def unsigned_to_float(dtype: np.dtype[Any]) -> Compute:
    """An integer without a sign to a float, to nearest; true becomes 1."""
    return _to_float(dtype, signed=False)


def _to_integer(dtype: np.dtype[Any], *, signed: bool) -> Compute:
    info = np.iinfo(dtype if signed else f"u{dtype.itemsize}") if dtype != np.bool_ else None

    def converted(x: Array) -> Array:
        if info is None:
            return np.asarray(x != 0)
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = np.clip(wide, float(info.min), float(info.max))
        top = wide >= float(info.max)
        return np.where(top, info.max, np.where(top, 0, inside).astype(info.dtype)).astype(info.dtype).view(dtype)

    return converted


def float_to_signed(dtype: np.dtype[Any]) -> Compute:
    """Truncated towards zero, saturated, NaN to 0: what PTX's and AMD's conversions do."""
    return _to_integer(dtype, signed=True)


def float_to_unsigned(dtype: np.dtype[Any]) -> Compute:
    """The same for integers without a sign."""
    return _to_integer(dtype, signed=False)


def bitcast(dtype: np.dtype[Any]) -> Compute:
    """The same bits."""
    return lambda x: x if x.dtype == dtype else np.ascontiguousarray(x).view(dtype)
