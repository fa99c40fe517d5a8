"""Arithmetic, comparisons and casts, as they are done on the device."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Operation, Rule, any_operand
from kerneltest.core.dtypes import Array


def unsigned(x: Array) -> Array:
    """The same bits, read without a sign."""
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def as_unsigned(compute: Compute) -> Compute:
    """A computation on the bits of two operands, read without a sign."""
    return lambda a, b: compute(unsigned(a), unsigned(b)).view(a.dtype)


def divide(a: Array, b: Array) -> Array:
    """Truncated towards zero; a division by zero, undefined in the IR, gives -1 as on NVIDIA GPUs."""
    quotient = np.where(b == 0, -1, np.abs(a.astype(np.int64)) // np.maximum(np.abs(b.astype(np.int64)), 1))
    return np.asarray(np.where((b != 0) & ((a < 0) != (b < 0)), -quotient, quotient).astype(a.dtype))


def remainder(a: Array, b: Array) -> Array:
    """With the sign of the dividend."""
    return np.asarray((a - divide(a, b) * b).astype(a.dtype))


def unsigned_divide(a: Array, b: Array) -> Array:
    """Of integers without a sign; a division by zero gives all ones."""
    return np.where(b == 0, np.asarray(-1).astype(b.dtype), a // np.where(b == 0, 1, b)).astype(a.dtype)


def unsigned_remainder(a: Array, b: Array) -> Array:
    """Of integers without a sign; that of a division by zero is the dividend."""
    return np.where(b == 0, a, a % np.where(b == 0, 1, b)).astype(a.dtype)


def shift(compute: Compute) -> Compute:
    """Shifts by the width or more give 0 (or the sign), as on the hardware; in NumPy they are undefined."""

    def shifted(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        amount = unsigned(b)
        inside = amount < width
        result = compute(a, np.where(inside, amount, 0).astype(a.dtype))
        beyond = a >> (width - 1) if compute is np.right_shift and a.dtype.kind == "i" else np.zeros_like(a)
        return np.asarray(np.where(inside, result, beyond))

    return shifted


def shift_right_unsigned(a: Array, b: Array) -> Array:
    """Zeros come in at the top."""
    return np.asarray(shift(np.right_shift)(unsigned(a), b).view(a.dtype))


def undefined_and(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    """A false operand decides, whatever the other one is."""
    (a, b), (ua, ub) = values, (np.False_ if mask is None else mask for mask in masks)
    if a.dtype != np.bool_:
        return np.logical_or(ua, ub)
    return (ua & ub) | (ua & b) | (ub & a)


def undefined_or(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    """A true operand decides, whatever the other one is."""
    (a, b), (ua, ub) = values, (np.False_ if mask is None else mask for mask in masks)
    if a.dtype != np.bool_:
        return np.logical_or(ua, ub)
    return (ua & ub) | (ua & ~b) | (ub & ~a)


def undefined_select(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    """The operand that is not chosen does not matter."""
    chosen = np.where(values[0], *(np.False_ if mask is None else mask for mask in masks[1:]))
    return chosen if masks[0] is None else chosen | masks[0]


def _without_sign(compare: Compute) -> Compute:
    return lambda a, b: compare(unsigned(a), unsigned(b))


_ORDERS = (np.less, np.less_equal, np.greater, np.greater_equal)
# By number: eq ne slt sle sgt sge ult ule ugt uge.
_INTEGER_COMPARISONS: tuple[Compute, ...] = (np.equal, np.not_equal, *_ORDERS, *map(_without_sign, _ORDERS))


def compare_integers(op: Operation) -> Rule:
    """The comparison that the attribute `predicate` numbers."""
    return Rule(_INTEGER_COMPARISONS[op.attributes["predicate"]], any_operand)


def _ordered(compare: Compute) -> Compute:
    return lambda a, b: compare(a, b) & ~(np.isnan(a) | np.isnan(b))


def _unordered(compare: Compute) -> Compute:
    return lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)


# By number: false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno true.
_FLOAT_COMPARISONS: tuple[Compute, ...] = (
    lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    *(_ordered(c) for c in (np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal)),
    lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    *(_unordered(c) for c in (np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal)),
    lambda a, b: np.isnan(a) | np.isnan(b),
    lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
)


def compare_floats(op: Operation) -> Rule:
    """The comparison that the attribute `predicate` numbers."""
    return Rule(_FLOAT_COMPARISONS[op.attributes["predicate"]], any_operand)


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
