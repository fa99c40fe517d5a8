"""Elementwise arithmetic, comparisons and casts, with the results that devices give."""

from collections.abc import Mapping, Sequence

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Mask, Operation, Rule, any_operand, unsupported_failure
from kerneltest.core.dtypes import Array
from kerneltest.numerics.device_operations import (
    FUNCTIONS,
    as_unsigned_operands,
    count_ones,
    float_to_integer,
    integer_to_float,
    leading_zeros,
    unsigned_view,
)


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


_ORDERS = (np.less, np.less_equal, np.greater, np.greater_equal)
# By number: eq ne slt sle sgt sge ult ule ugt uge.
_INTEGER_COMPARISONS: tuple[Compute, ...] = (np.equal, np.not_equal, *_ORDERS, *map(as_unsigned_operands, _ORDERS))


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
    by_float32 = dtype.kind != "f"  # the only way to the formats of ml_dtypes; a GPU converts to float16 directly

    def convert(x: Array) -> Array:
        numbers = extend_signed(np.dtype(np.int8))(x) if x.dtype == np.bool_ and signed else x
        return integer_to_float(numbers if signed else unsigned_view(x), dtype, by_float32=by_float32)

    return convert


def signed_to_float(dtype: np.dtype) -> Compute:
    """Returns a conversion of signed integers to floats, rounding to nearest; true becomes -1."""
    return _to_float(dtype, signed=True)


def unsigned_to_float(dtype: np.dtype) -> Compute:
    """Returns a conversion of unsigned integers to floats, rounding to nearest; true becomes 1."""
    return _to_float(dtype, signed=False)


def float_to_signed(dtype: np.dtype) -> Compute:
    """Returns a conversion that rounds towards zero, saturates and maps NaN to 0."""
    return lambda x: x != 0 if dtype == np.bool_ else float_to_integer(x, dtype)


def float_to_unsigned(dtype: np.dtype) -> Compute:
    """Returns the same conversion for unsigned integers."""
    unsigned = unsigned_view(np.empty(0, dtype)).dtype
    return lambda x: x != 0 if dtype == np.bool_ else float_to_integer(x, unsigned).view(dtype)


def bitcast(dtype: np.dtype) -> Compute:
    """Returns a reinterpretation of the bits."""
    return lambda x: x if x.dtype == dtype else np.ascontiguousarray(x).view(dtype)


# Mathematical functions, by their names in MLIR and in the vendors' libraries.


# Functions of real numbers, computed in float64 and rounded once. A device's own error is not modelled.
_REAL: Mapping[str, Compute] = {
    **FUNCTIONS,
    **dict.fromkeys(("fabs", "absf"), FUNCTIONS["abs"]),
    "roundeven": FUNCTIONS["rint"],
    **dict.fromkeys(("powf", "powi", "pown", "fpowi"), FUNCTIONS["pow"]),
    "fast_tanhf": FUNCTIONS["tanh"],
    "fast_expf": FUNCTIONS["exp"],
}

# Functions of integers and of bit patterns, in the operands' dtype.
_INTEGER: Mapping[str, Compute] = {
    **dict.fromkeys(("absi", "llabs"), np.abs),
    "nextafter": np.nextafter,
    **dict.fromkeys(("ctlz", "clz", "clzll"), leading_zeros),
    **dict.fromkeys(("ctpop", "popc", "popcll"), count_ones),
}

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
