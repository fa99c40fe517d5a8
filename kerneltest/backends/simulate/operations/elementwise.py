"""Elementwise arithmetic, comparisons and casts, with the results that devices give."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Mask, Operation, Rule, any_operand, unsupported_failure
from kerneltest.core.dtypes import Array
from kerneltest.numerics.device_operations import (
    as_unsigned_operands,
    count_ones,
    float_to_integer,
    integer_to_float,
    leading_zeros,
    power,
    round_away,
    unsigned_view,
)
from kerneltest.trace.primitives import PRIMITIVES


def undefined_logical(determining: bool) -> Callable[[Sequence[Array], Sequence[Mask]], Array]:
    """Returns the undefined elements of a conjunction or disjunction: False or True determines it by itself."""

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        (a, b), (ua, ub) = values, (np.asarray(False) if mask is None else mask for mask in masks)
        if a.dtype != np.bool_:
            return np.logical_or(ua, ub)
        return np.asarray((ua & ub) | (ua & (b != determining)) | (ub & (a != determining)))

    return undefined


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


def extend(dtype: np.dtype, *, signed: bool) -> Compute:
    """Returns a conversion to a wider integer that extends the sign, so that true becomes -1; or with zeros."""
    if signed:
        return lambda x: (-x.astype(np.int8) if x.dtype == np.bool_ else x).astype(dtype)
    wide = unsigned_view(np.empty(0, dtype)).dtype
    return lambda x: x.astype(dtype) if x.dtype == np.bool_ else unsigned_view(x).astype(wide).view(dtype)


def truncate(dtype: np.dtype) -> Compute:
    """Returns a conversion to a narrower integer, which keeps the lowest bits."""
    return lambda x: (x & 1).astype(np.bool_) if dtype == np.bool_ else x.astype(dtype)


def to_float(dtype: np.dtype, *, signed: bool) -> Compute:
    """Returns a conversion of integers to floats, rounding to nearest; true becomes -1 if it is signed."""
    by_float32 = dtype.kind != "f"  # the only way to the formats of ml_dtypes; a GPU converts to float16 directly

    def convert(x: Array) -> Array:
        numbers = extend(np.dtype(np.int8), signed=True)(x) if x.dtype == np.bool_ and signed else x
        return integer_to_float(numbers if signed else unsigned_view(x), dtype, by_float32=by_float32)

    return convert


def to_integer(dtype: np.dtype, *, signed: bool) -> Compute:
    """Returns a conversion of floats that rounds towards zero, saturates and maps NaN to 0."""
    wanted = dtype if signed else unsigned_view(np.empty(0, dtype)).dtype
    return lambda x: x != 0 if dtype == np.bool_ else float_to_integer(x, wanted).view(dtype)


def bitcast(dtype: np.dtype) -> Compute:
    """Returns a reinterpretation of the bits."""
    return lambda x: x if x.dtype == dtype else np.ascontiguousarray(x).view(dtype)


# Mathematical functions, by their names in MLIR and in the vendors' libraries.


# Functions of real numbers, computed in float64 and rounded once. A device's own error is not modelled.
_SAME = """abs ceil floor sqrt cbrt rsqrt exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh asinh
    acosh atanh erf atan2""".split()
_REAL: Mapping[str, Compute] = {
    **{name: function for name in _SAME if (function := PRIMITIVES[name].numpy) is not None},
    **dict.fromkeys(("fabs", "absf"), np.abs),
    **dict.fromkeys(("roundeven", "rint"), np.rint),
    **dict.fromkeys(("pow", "powf", "powi", "pown", "fpowi"), power),
    "round": round_away,
    "trunc": np.trunc,
    "log10": np.log10,
    "fast_tanhf": np.tanh,
    "fast_expf": np.exp,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "fma": lambda a, b, c: a * b + c,
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
