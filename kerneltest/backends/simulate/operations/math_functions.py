"""Mathematical functions, by their names in MLIR and in the vendors' libraries."""

import math
from collections.abc import Mapping

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Operation, Rule, any_operand, unsupported_failure
from kerneltest.backends.simulate.operations.elementwise import unsigned_view
from kerneltest.core.dtypes import Array


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
