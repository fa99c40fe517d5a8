"""Elementwise arithmetic, comparisons and casts, with the results that devices give."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Mask, Operation, Rule, any_operand, unsupported_failure
from kerneltest.core.dtypes import Array


def unsigned_view(x: Array) -> Array:
    """Returns a view of the same bits as unsigned integers."""
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def as_unsigned(compute: Compute) -> Compute:
    """Returns a computation on two operands viewed as unsigned integers."""
    return lambda a, b: compute(unsigned_view(a), unsigned_view(b)).view(a.dtype)


def divide(a: Array, b: Array) -> Array:
    """Divides, rounding towards zero. A division by zero, undefined in the IR, gives -1 as on NVIDIA GPUs."""
    quotient = np.where(b == 0, -1, np.abs(a.astype(np.int64)) // np.maximum(np.abs(b.astype(np.int64)), 1))
    return np.asarray(np.where((b != 0) & ((a < 0) != (b < 0)), -quotient, quotient).astype(a.dtype))


def remainder(a: Array, b: Array) -> Array:
    """Returns the remainder, with the sign of the dividend."""
    return np.asarray((a - divide(a, b) * b).astype(a.dtype))


def unsigned_divide(a: Array, b: Array) -> Array:
    """Divides unsigned integers. A division by zero gives all ones."""
    return np.where(b == 0, np.asarray(-1).astype(b.dtype), a // np.where(b == 0, 1, b)).astype(a.dtype)


def unsigned_remainder(a: Array, b: Array) -> Array:
    """Returns the remainder of unsigned integers, which is the dividend for a division by zero."""
    return np.where(b == 0, a, a % np.where(b == 0, 1, b)).astype(a.dtype)


def shift(compute: Compute) -> Compute:
    """Returns a shift that gives 0 (or the sign) for amounts of the width or more, unlike NumPy's."""

    def compute_shift(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        amount = unsigned_view(b)
        inside = amount < width
        result = compute(a, np.where(inside, amount, 0).astype(a.dtype))
        beyond = a >> (width - 1) if compute is np.right_shift and a.dtype.kind == "i" else np.zeros_like(a)
        return np.asarray(np.where(inside, result, beyond))

    return compute_shift


def shift_right_unsigned(a: Array, b: Array) -> Array:
    """Shifts right, filling with zeros."""
    return np.asarray(shift(np.right_shift)(unsigned_view(a), b).view(a.dtype))


def undefined_and(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
    """Returns the undefined elements of a conjunction: a false operand determines it, whatever the other one is."""
    (a, b), (ua, ub) = values, (np.asarray(False) if mask is None else mask for mask in masks)
    if a.dtype != np.bool_:
        return np.logical_or(ua, ub)
    return np.asarray((ua & ub) | (ua & b) | (ub & a))


def undefined_or(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
    """Returns the undefined elements of a disjunction: a true operand determines it, whatever the other one is."""
    (a, b), (ua, ub) = values, (np.asarray(False) if mask is None else mask for mask in masks)
    if a.dtype != np.bool_:
        return np.logical_or(ua, ub)
    return np.asarray((ua & ub) | (ua & ~b) | (ub & ~a))


def undefined_select(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
    """Returns the undefined elements of a selection, in which the operand that is not chosen does not matter."""
    chosen = np.where(values[0], *(np.False_ if mask is None else mask for mask in masks[1:]))
    return chosen if masks[0] is None else chosen | masks[0]


def _compare_unsigned(compare: Compute) -> Compute:
    return lambda a, b: compare(unsigned_view(a), unsigned_view(b))


_ORDERS = (np.less, np.less_equal, np.greater, np.greater_equal)
# By number: eq ne slt sle sgt sge ult ule ugt uge.
_INTEGER_COMPARISONS: tuple[Compute, ...] = (np.equal, np.not_equal, *_ORDERS, *map(_compare_unsigned, _ORDERS))


def compare_integers(op: Operation) -> Rule:
    """Returns the comparison with the number in the attribute `predicate`."""
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
    """Returns the comparison with the number in the attribute `predicate`."""
    return Rule(_FLOAT_COMPARISONS[op.attributes["predicate"]], any_operand)


def cast(dtype: np.dtype) -> Compute:
    """Returns a conversion between floats, rounding to nearest."""
    return lambda x: x if x.dtype == dtype else x.astype(dtype)


def extend_signed(dtype: np.dtype) -> Compute:
    """Returns a conversion to a wider integer that extends the sign; true becomes -1."""
    return lambda x: (-x.astype(np.int8) if x.dtype == np.bool_ else x).astype(dtype)


def extend_unsigned(dtype: np.dtype) -> Compute:
    """Returns a conversion to a wider integer that extends with zeros; true becomes 1."""
    wide = unsigned_view(np.empty(0, dtype)).dtype
    return lambda x: x.astype(dtype) if x.dtype == np.bool_ else unsigned_view(x).astype(wide).view(dtype)


def truncate(dtype: np.dtype) -> Compute:
    """Returns a conversion to a narrower integer, which keeps the lowest bits."""
    return lambda x: (x & 1).astype(np.bool_) if dtype == np.bool_ else x.astype(dtype)


def _to_float(dtype: np.dtype, *, signed: bool) -> Compute:
    def convert(x: Array) -> Array:
        if x.dtype == np.bool_:
            return (-x.astype(np.float32) if signed else x.astype(np.float32)).astype(dtype)
        wide = np.float64 if dtype.itemsize == 8 else np.float32
        read = x if signed else unsigned_view(x)
        return np.asarray(read.astype(dtype if dtype.kind == "f" else wide).astype(dtype))

    return convert


def signed_to_float(dtype: np.dtype) -> Compute:
    """Returns a conversion of signed integers to floats, rounding to nearest; true becomes -1."""
    return _to_float(dtype, signed=True)


def unsigned_to_float(dtype: np.dtype) -> Compute:
    """Returns a conversion of unsigned integers to floats, rounding to nearest; true becomes 1."""
    return _to_float(dtype, signed=False)


def _to_integer(dtype: np.dtype, *, signed: bool) -> Compute:
    info = np.iinfo(dtype if signed else f"u{dtype.itemsize}") if dtype != np.bool_ else None

    def convert(x: Array) -> Array:
        if info is None:
            return np.asarray(x != 0)
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = np.clip(wide, float(info.min), float(info.max))
        top = wide >= float(info.max)
        return np.where(top, info.max, np.where(top, 0, inside).astype(info.dtype)).astype(info.dtype).view(dtype)

    return convert


def float_to_signed(dtype: np.dtype) -> Compute:
    """Returns a conversion that rounds towards zero, saturates and maps NaN to 0, as PTX's and AMD's do."""
    return _to_integer(dtype, signed=True)


def float_to_unsigned(dtype: np.dtype) -> Compute:
    """Returns the same conversion for unsigned integers."""
    return _to_integer(dtype, signed=False)


def bitcast(dtype: np.dtype) -> Compute:
    """Returns a reinterpretation of the bits."""
    return lambda x: x if x.dtype == dtype else np.ascontiguousarray(x).view(dtype)


# Mathematical functions, by their names in MLIR and in the vendors' libraries.


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _round_half_away(x: Array) -> Array:
    return np.asarray(np.trunc(x + np.copysign(0.5, x)))


# Functions of real numbers, computed in float64 and rounded once. A device's own error is not modelled.
_REAL: Mapping[str, Compute] = {
    "fabs": np.abs, "abs": np.abs, "absf": np.abs, "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc,
    "roundeven": np.rint, "rint": np.rint, "round": _round_half_away, "sqrt": np.sqrt, "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": _erf, "atan2": np.arctan2, "pow": np.power, "powf": np.power, "powi": np.power,
    "pown": np.power, "fpowi": np.power, "fmod": np.fmod, "copysign": np.copysign, "fma": lambda a, b, c: a * b + c,
    "fast_tanhf": np.tanh, "fast_expf": np.exp,
}  # fmt: skip


def _leading_zeros(x: Array) -> Array:
    width = x.dtype.itemsize * 8
    bits = np.unpackbits(unsigned_view(x).astype(f">u{x.dtype.itemsize}")[..., None].view(np.uint8), axis=-1)
    return np.where(bits.any(axis=-1), bits.argmax(axis=-1), width).astype(x.dtype)


def _count_ones(x: Array) -> Array:
    return np.bitwise_count(unsigned_view(x)).astype(x.dtype)


# Functions of integers and of bit patterns, in the operands' dtype.
_INTEGER: Mapping[str, Compute] = {
    "absi": np.abs, "llabs": np.abs, "nextafter": np.nextafter,
    "ctlz": _leading_zeros, "clz": _leading_zeros, "clzll": _leading_zeros,
    "ctpop": _count_ones, "popc": _count_ones, "popcll": _count_ones,
}  # fmt: skip

# Each is NAME in `math.NAME`.
NAMES = (*_REAL, *_INTEGER)


def builtin(op: Operation) -> Rule:
    """Returns the function that an operation of MLIR's dialect `math` is named after."""
    return _function(op.name.removeprefix("math."), op.types[0].dtype)


def external(op: Operation) -> Rule:
    """Returns the function of a vendor's library that the attribute `symbol` names.

    Raises:
      Failure: `unavailable`, with the name of a function that the simulator does not support.
    """
    name = plain_name(op.attributes["symbol"])
    if name not in NAMES:
        raise unsupported_failure(f"function {name}", op.place)
    return _function(name, op.types[0].dtype)


def _function(name: str, dtype: np.dtype) -> Rule:
    if name in _INTEGER or (name == "abs" and dtype.kind == "i"):
        integer = _INTEGER.get(name, np.abs)
        return Rule(lambda *operands: integer(*operands).astype(dtype), any_operand)
    real = _REAL[name]
    return Rule(lambda *operands: real(*(x.astype(np.float64) for x in operands)).astype(dtype), any_operand)


def plain_name(symbol: str) -> str:
    """Returns the name of a function without a vendor's affixes: `exp` for `__nv_expf` and for `__ocml_exp_f32`."""
    for prefix in ("__nv_", "__ocml_", "__ockl_", "__triton_hip_"):
        symbol = symbol.removeprefix(prefix)
    for suffix in ("_f64", "_f32", "_f16", "_u32", "_u64"):
        symbol = symbol.removesuffix(suffix)
    symbol = {"popcount": "popc", "powif": "powi"}.get(symbol, symbol)
    return symbol if symbol in NAMES else symbol.removesuffix("f")
