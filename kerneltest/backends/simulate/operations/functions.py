"""Mathematical functions, by the names that MLIR and the vendors' libraries give them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Operation, Rule, any_operand
from kerneltest.backends.simulate.operations.arithmetic import unsigned
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _round_half_away(x: Array) -> Array:
    return np.asarray(np.trunc(x + np.copysign(0.5, x)))


# Functions of real numbers, computed in float64 and rounded once: what a device adds to that is its own error.
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
    bits = np.unpackbits(unsigned(x).astype(f">u{x.dtype.itemsize}")[..., None].view(np.uint8), axis=-1)
    return np.where(bits.any(axis=-1), bits.argmax(axis=-1), width).astype(x.dtype)


def _count_ones(x: Array) -> Array:
    return np.bitwise_count(unsigned(x)).astype(x.dtype)


# Functions of integers and of representations, in the operands' own dtype.
_OWN: Mapping[str, Compute] = {
    "absi": np.abs, "llabs": np.abs, "nextafter": np.nextafter,
    "ctlz": _leading_zeros, "clz": _leading_zeros, "clzll": _leading_zeros,
    "ctpop": _count_ones, "popc": _count_ones, "popcll": _count_ones,
}  # fmt: skip

# As in `math.NAME`.
NAMES = (*_REAL, *_OWN)


def builtin(op: Operation) -> Rule:
    """The function that an operation of MLIR's dialect `math` is named after."""
    return _function(op.name.removeprefix("math."), op.types[0].dtype)


def external(op: Operation) -> Rule:
    """The function of a vendor's library that the attribute `symbol` names.

    Raises:
      Failure: `unimplemented`; names a function that the simulator does not know.
    """
    name = bare(op.attributes["symbol"])
    if name not in NAMES:
        where = f" ({op.place})" if op.place else ""
        raise Failure(Verdict.UNIMPLEMENTED, f"function {name} is not one that the simulator knows{where}")
    return _function(name, op.types[0].dtype)


def _function(name: str, dtype: np.dtype[Any]) -> Rule:
    if name in _OWN or (name == "abs" and dtype.kind == "i"):
        own = _OWN.get(name, np.abs)
        return Rule(lambda *operands: own(*operands).astype(dtype), any_operand)
    real = _REAL[name]
    return Rule(lambda *operands: real(*(x.astype(np.float64) for x in operands)).astype(dtype), any_operand)


def bare(symbol: str) -> str:
    """The function behind a vendor's name: `__nv_expf`, `__ocml_exp_f32` and `__ockl_clz_u32` alike."""
    for prefix in ("__nv_", "__ocml_", "__ockl_", "__triton_hip_"):
        symbol = symbol.removeprefix(prefix)
    for suffix in ("_f64", "_f32", "_f16", "_u32", "_u64"):
        symbol = symbol.removesuffix(suffix)
    symbol = {"popcount": "popc", "powif": "powi"}.get(symbol, symbol)
    return symbol if symbol in NAMES else symbol.removesuffix("f")
