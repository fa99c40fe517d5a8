"""What each operation computes, on arrays with one leading axis for the programs.

A value of type tensor<a x b> is an array of shape (programs, a, b) in which any axis may have length 1 while its
values are all the same along it; a scalar is one of shape (programs,).
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.simulate.parse import Operation, Region, Type, UnknownOperationError
from kerneltest.core.dtypes import Array

Compute = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """How to compute an operation.

    Attributes:
      compute: from the operands' arrays to the result, or a tuple of results.
      undefined: from the operands' arrays and their masks of undefined elements (None where all are defined) to the
        result's mask.
    """

    compute: Compute
    undefined: Callable[[Sequence[Any], Sequence[Any]], Any]


def any_operand(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    """Undefined where any operand is."""
    return functools.reduce(np.logical_or, [mask for mask in masks if mask is not None])


def _moved(compute: Compute) -> Rule:
    """An operation that moves elements, and their masks with them."""
    return Rule(compute, lambda values, masks: compute(*(np.zeros((1,) * v.ndim, bool) if m is None else m
                                                         for v, m in zip(values, masks, strict=True))))  # fmt: skip


def _undefined_and(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    """A false operand decides, whatever the other one is."""
    (a, b), (ua, ub) = values, (np.False_ if mask is None else mask for mask in masks)
    if a.dtype != np.bool_:
        return np.logical_or(ua, ub)
    return (ua & ub) | (ua & b) | (ub & a)


def _undefined_or(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    (a, b), (ua, ub) = values, (np.False_ if mask is None else mask for mask in masks)
    if a.dtype != np.bool_:
        return np.logical_or(ua, ub)
    return (ua & ub) | (ua & ~b) | (ub & ~a)


def _undefined_select(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    chosen = np.where(values[0], *(np.False_ if mask is None else mask for mask in masks[1:]))
    return chosen if masks[0] is None else chosen | masks[0]


def unsigned(x: Array) -> Array:
    """The same bits, read without a sign."""
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def full(x: Array, shape: tuple[int, ...]) -> Array:
    """Every axis but the programs' at its full length."""
    return np.broadcast_to(x, (x.shape[0], *shape))


# Binary operations whose result has the operands' dtype. i1 is bool.
_BINARY: Mapping[str, Compute] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.ori": np.bitwise_or,
    "arith.andi": np.bitwise_and,
    "arith.xori": np.bitwise_xor,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.remf": np.fmod,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    # IEEE 754's maximum keeps a NaN; its maxNum, which GPUs have, returns the other operand.
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
}


def _as_unsigned(compute: Compute) -> Compute:
    return lambda a, b: compute(unsigned(a), unsigned(b)).view(a.dtype)


def _divide(a: Array, b: Array) -> Array:
    """Truncated towards zero; a division by zero, undefined in the IR, gives -1 as on NVIDIA GPUs."""
    quotient = np.where(b == 0, -1, np.abs(a.astype(np.int64)) // np.maximum(np.abs(b.astype(np.int64)), 1))
    return np.asarray(np.where((b != 0) & ((a < 0) != (b < 0)), -quotient, quotient).astype(a.dtype))


def _remainder(a: Array, b: Array) -> Array:
    """With the sign of the dividend."""
    return np.asarray((a - _divide(a, b) * b).astype(a.dtype))


def _unsigned_divide(a: Array, b: Array) -> Array:
    return np.where(b == 0, np.asarray(-1).astype(b.dtype), a // np.where(b == 0, 1, b)).astype(a.dtype)


def _unsigned_remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a % np.where(b == 0, 1, b)).astype(a.dtype)


def _shift(compute: Compute) -> Compute:
    """Shifts by the width or more give 0 (or the sign), as on the hardware; in NumPy they are undefined."""

    def shifted(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        amount = unsigned(b)
        inside = amount < width
        result = compute(a, np.where(inside, amount, 0).astype(a.dtype))
        beyond = a >> (width - 1) if compute is np.right_shift and a.dtype.kind == "i" else np.zeros_like(a)
        return np.asarray(np.where(inside, result, beyond))

    return shifted


_BINARY = {
    **_BINARY,
    "arith.divsi": _divide,
    "arith.remsi": _remainder,
    "arith.divui": _as_unsigned(_unsigned_divide),
    "arith.remui": _as_unsigned(_unsigned_remainder),
    "arith.maxui": _as_unsigned(np.maximum),
    "arith.minui": _as_unsigned(np.minimum),
    "arith.shli": _shift(np.left_shift),
    "arith.shrsi": _shift(np.right_shift),
    "arith.shrui": lambda a, b: _shift(np.right_shift)(unsigned(a), b).view(a.dtype),
}

# arith.cmpi: eq ne slt sle sgt sge ult ule ugt uge.
_INTEGER_COMPARISONS = (
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
    np.less, np.less_equal, np.greater, np.greater_equal,
)  # fmt: skip


def _ordered(compute: Compute) -> Compute:
    return lambda a, b: compute(a, b) & ~(np.isnan(a) | np.isnan(b))


def _unordered(compute: Compute) -> Compute:
    return lambda a, b: compute(a, b) | np.isnan(a) | np.isnan(b)


# arith.cmpf: false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno true.
_FLOAT_COMPARISONS: tuple[Compute, ...] = (
    lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    *(_ordered(c) for c in (np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal)),
    lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    *(_unordered(c) for c in (np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal)),
    lambda a, b: np.isnan(a) | np.isnan(b),
    lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
)


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


# Functions of integers and of representations, in the operands' own dtype.
_OWN: Mapping[str, Compute] = {
    "absi": np.abs, "llabs": np.abs, "nextafter": np.nextafter,
    "ctlz": _leading_zeros, "clz": _leading_zeros, "clzll": _leading_zeros,
    "ctpop": lambda x: np.bitwise_count(unsigned(x)).astype(x.dtype),
}  # fmt: skip
_OWN = {**_OWN, "popc": _OWN["ctpop"], "popcll": _OWN["ctpop"]}


def _function(name: str, kind: np.dtype[Any], integers: bool) -> Compute:
    """A mathematical function by its bare name.

    Raises:
      UnknownOperationError: there is none.
    """
    if name in _OWN or (name == "abs" and integers):
        own = _OWN.get(name, np.abs)
        return lambda *operands: own(*operands).astype(kind)
    if name not in _REAL:
        raise UnknownOperationError(f"function {name} is not one that the simulator knows")
    real = _REAL[name]
    return lambda *operands: real(*(x.astype(np.float64) for x in operands)).astype(kind)


def _bare(symbol: str) -> str:
    """The function behind a vendor's name: `__nv_expf`, `__ocml_exp_f32` and `__ockl_clz_u32` alike."""
    for prefix in ("__nv_", "__ocml_", "__ockl_", "__triton_hip_"):
        symbol = symbol.removeprefix(prefix)
    for suffix in ("_f64", "_f32", "_f16", "_u32", "_u64"):
        symbol = symbol.removesuffix(suffix)
    symbol = {"popcount": "popc", "powif": "powi"}.get(symbol, symbol)
    known = symbol in _REAL or symbol in _OWN
    return symbol if known else symbol.removesuffix("f")


def _cast(kind: np.dtype[Any]) -> Compute:
    return lambda x: x if x.dtype == kind else x.astype(kind)


def _extended(kind: np.dtype[Any], *, signed: bool) -> Compute:
    def extended(x: Array) -> Array:
        if x.dtype == np.bool_:
            return (-x.astype(np.int8)).astype(kind) if signed else x.astype(kind)
        return x.astype(kind) if signed else unsigned(x).astype(unsigned(np.empty(0, kind)).dtype).view(kind)

    return extended


def _truncated(kind: np.dtype[Any]) -> Compute:
    return lambda x: (x & 1).astype(np.bool_) if kind == np.bool_ else x.astype(kind)


def _to_float(kind: np.dtype[Any], *, signed: bool) -> Compute:
    def converted(x: Array) -> Array:
        if x.dtype == np.bool_:
            return (-x.astype(np.float32) if signed else x.astype(np.float32)).astype(kind)
        wide = np.float64 if kind.itemsize == 8 else np.float32
        read = x if signed else unsigned(x)
        return np.asarray(read.astype(kind if kind.kind == "f" else wide).astype(kind))

    return converted


def _to_integer(kind: np.dtype[Any], *, signed: bool) -> Compute:
    """Truncated towards zero, saturated, NaN to 0: what PTX's and AMD's conversions do."""
    info = np.iinfo(kind if signed else f"u{kind.itemsize}") if kind != np.bool_ else None

    def converted(x: Array) -> Array:
        if info is None:
            return np.asarray(x != 0)
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = np.clip(wide, float(info.min), float(info.max))
        top = wide >= float(info.max)
        return np.where(top, info.max, np.where(top, 0, inside).astype(info.dtype)).astype(info.dtype).view(kind)

    return converted


def _bitcast(kind: np.dtype[Any]) -> Compute:
    return lambda x: x if x.dtype == kind else np.ascontiguousarray(x).view(kind)


def tf32(x: Array) -> Array:
    """float32 rounded to TF32's 11 bits, ties away from zero, as measured on an H200."""
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def _dot(op: Operation) -> Compute:
    kind = op.types[0].dtype
    reduced = op.attributes.get("inputPrecision", 2) == 0  # TF32, TF32x3, IEEE, ...

    def dot(a: Array, b: Array, c: Array) -> Array:
        if kind.kind == "i":
            product = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(kind)
            return np.asarray(product + c)
        if a.dtype == np.float32 and reduced:
            a, b = tf32(a), tf32(b)
        wide = np.float64 if kind == np.float64 else np.float32
        product = np.matmul(a.astype(wide), b.astype(wide))
        return np.asarray((product + c.astype(wide)).astype(kind))

    return dot


def _undefined_dot(values: Sequence[Any], masks: Sequence[Any]) -> Any:
    a, b, c = (np.zeros((1,) * v.ndim, bool) if m is None else m for v, m in zip(values, masks, strict=True))
    return a.any(axis=-1, keepdims=True) | b.any(axis=-2, keepdims=True) | c


def region_function(region: Region) -> Compute:
    """A region of plain computation, as a function from a tuple of arrays to a tuple of arrays."""
    steps = [(rule(op), op.operands, op.results) for op in region.operations[:-1]]

    def run(*arguments: Array) -> tuple[Array, ...]:
        environment = dict(zip(region.arguments, arguments, strict=True))
        for made, operands, results in steps:
            found = made.compute(*(environment[o] for o in operands))
            environment.update(zip(results, found if isinstance(found, tuple) else (found,), strict=True))
        return tuple(environment[number] for number in region.yields)

    return run


def _reduce(op: Operation, shapes: Sequence[Type]) -> Rule:
    """Halves combined with halves, as a tree: the IR leaves the order open."""
    axis = op.attributes["axis"] + 1
    combine = region_function(op.regions[0])
    length = shapes[0].shape[axis - 1]

    def reduce(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(_along(x, axis, length) for x in operands)
        n = length
        while n > 1:
            n //= 2
            low = (slice(None),) * axis + (slice(0, n),)
            high = (slice(None),) * axis + (slice(n, None),)
            parts = combine(*(x[low] for x in parts), *(x[high] for x in parts))
        return tuple(x.squeeze(axis) for x in parts)

    def undefined(values: Sequence[Any], masks: Sequence[Any]) -> Any:
        found = any_operand(values, masks)
        return found.any(axis=axis) if found.ndim > axis else found

    return Rule(reduce, undefined)


def _scan(op: Operation, shapes: Sequence[Type]) -> Rule:
    """Each element combined with all before it, by doubling distances."""
    axis = op.attributes["axis"] + 1
    backwards = bool(op.attributes.get("reverse", False))
    combine = region_function(op.regions[0])
    length = shapes[0].shape[axis - 1]

    def scan(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(
            np.flip(_along(x, axis, length), axis) if backwards else _along(x, axis, length) for x in operands
        )
        distance = 1
        while distance < length:
            head = (slice(None),) * axis + (slice(0, distance),)
            early = (slice(None),) * axis + (slice(0, length - distance),)
            late = (slice(None),) * axis + (slice(distance, None),)
            joined = combine(*(x[early] for x in parts), *(x[late] for x in parts))
            parts = tuple(np.concatenate((x[head], y), axis) for x, y in zip(parts, joined, strict=True))
            distance *= 2
        return tuple(np.flip(x, axis) for x in parts) if backwards else parts

    def undefined(values: Sequence[Any], masks: Sequence[Any]) -> Any:
        found = _along(any_operand(values, masks), axis, length)
        if backwards:
            return np.flip(np.logical_or.accumulate(np.flip(found, axis), axis), axis)
        return np.logical_or.accumulate(found, axis)

    return Rule(scan, undefined)


def _along(x: Array, axis: int, length: int) -> Array:
    """`x` with its full length along one axis."""
    return x if x.shape[axis] == length else np.repeat(x, length, axis)


def _constant(op: Operation) -> Array:
    kind, value = op.types[0], op.attributes["value"]
    if isinstance(value, np.ndarray):
        return value.astype(kind.dtype)[None]
    if kind.dtype.kind == "i":
        value = np.asarray(value, np.int64)
    return np.asarray(value).astype(kind.dtype).reshape((1,) * (len(kind.shape) + 1))


_CASTS: Mapping[str, Callable[[np.dtype[Any]], Compute]] = {
    "arith.extf": _cast,
    "arith.truncf": _cast,
    "tt.fp_to_fp": _cast,
    "arith.extsi": functools.partial(_extended, signed=True),
    "arith.extui": functools.partial(_extended, signed=False),
    "arith.trunci": _truncated,
    "arith.sitofp": functools.partial(_to_float, signed=True),
    "arith.uitofp": functools.partial(_to_float, signed=False),
    "arith.fptosi": functools.partial(_to_integer, signed=True),
    "arith.fptoui": functools.partial(_to_integer, signed=False),
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
}


def _movement(op: Operation, shapes: Sequence[Type]) -> Compute | None:
    """Operations that move elements and compute nothing."""
    shape = op.types[0].shape if op.types else ()
    match op.name:
        case "tt.splat":
            return lambda x: x.reshape(x.shape[0], *(1,) * len(shape))
        case "tt.broadcast":
            return lambda x: x
        case "tt.expand_dims":
            return lambda x: np.expand_dims(x, op.attributes["axis"] + 1)
        case "tt.reshape":
            return lambda x: full(x, shapes[0].shape).reshape(x.shape[0], *shape)
        case "tt.trans":
            order = (0, *(axis + 1 for axis in op.attributes["order"]))
            return lambda x: x.transpose(order)
        case "tt.join":
            return lambda a, b: np.stack(np.broadcast_arrays(a, b), axis=-1)
        case "tt.split":
            return lambda x: (full(x, shapes[0].shape)[..., 0], full(x, shapes[0].shape)[..., 1])
        case "tt.cat":
            return lambda a, b: np.concatenate([full(v, s.shape) for v, s in zip((a, b), shapes, strict=True)], 1)
    return None


def constant_of(op: Operation) -> Array | None:
    """The value of an operation without operands, or None if it has some."""
    if op.name == "arith.constant":
        return _constant(op)
    if op.name == "tt.make_range":
        return np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)[None]
    return None


def rule(op: Operation, shapes: Sequence[Type] = ()) -> Rule:
    """How to compute an operation whose operands have the types `shapes` (asked of reductions, scans and reshapes).

    Raises:
      UnknownOperationError: names the operation.
    """
    if (moved := _movement(op, shapes)) is not None:
        return _moved(moved)
    if (value := constant_of(op)) is not None:
        return Rule(lambda: value, any_operand)
    special = {"arith.andi": _undefined_and, "arith.ori": _undefined_or}
    if op.name in _BINARY:
        return Rule(_BINARY[op.name], special.get(op.name, any_operand))
    match op.name:
        case "arith.cmpi":
            compare = _INTEGER_COMPARISONS[op.attributes["predicate"]]
            if op.attributes["predicate"] >= 6:
                return Rule(lambda a, b: compare(unsigned(a), unsigned(b)), any_operand)
            return Rule(compare, any_operand)
        case "arith.cmpf":
            return Rule(_FLOAT_COMPARISONS[op.attributes["predicate"]], any_operand)
        case "arith.select":
            return Rule(np.where, _undefined_select)
        case "arith.negf":
            return Rule(np.negative, any_operand)
        case "tt.dot":
            return Rule(_dot(op), _undefined_dot)
        case "tt.reduce":
            return _reduce(op, shapes)
        case "tt.scan":
            return _scan(op, shapes)
        case "tt.extern_elementwise":
            kind = op.types[0].dtype
            return Rule(_function(_bare(op.attributes["symbol"]), kind, kind.kind == "i"), any_operand)
    if op.name in _CASTS:
        return Rule(_CASTS[op.name](op.types[0].dtype), any_operand)
    if op.name.startswith("math."):
        kind = op.types[0].dtype
        return Rule(_function(op.name.removeprefix("math."), kind, kind.kind == "i"), any_operand)
    where = f" ({op.place})" if op.place else ""
    raise UnknownOperationError(f"operation {op.name} is not one that the simulator runs{where}")
