"""How each ufunc rounds: what is exact, what is rounded once, and what a machine's library is further off."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.precision import FLOAT32, Ulps
from kerneltest.numerics.decompositions import is_given
from kerneltest.numerics.samples import SampledArray, UntrackedError, align_samples, axes_of, promote

# Their results are among their operands, whole numbers, truth values, or exact by another argument.
EXACT = frozenset(
    "negative positive absolute fabs conjugate sign copysign maximum minimum fmax fmin rint floor ceil trunc fmod "
    "isnan isfinite isinf signbit equal not_equal less less_equal greater greater_equal logical_and logical_or "
    "logical_not logical_xor bitwise_and bitwise_or bitwise_xor invert left_shift right_shift floor_divide remainder "
    "heaviside ldexp clip nextafter".split()
)
# Other ways to the same function that authors choose: 2^(x log2 e) for exp, which rounds its argument, or the terms of
# its argument where that is a difference; and x (1 / y).
_BY_EXP2 = 1.0
_BY_RECIPROCAL = 0.5
_NEUTRAL = {"add": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf, "logical_and": True, "logical_or": False}
_UNKNOWN = Ulps(4.5, source="assumed of a function that the table lacks")


def call(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> SampledArray:
    """A ufunc of arrays, of which at least one is watched."""
    first = next(each for each in inputs if isinstance(each, SampledArray))
    if ufunc.signature:
        raise UntrackedError(f"np.{ufunc.__name__}")
    if kwargs:
        raise UntrackedError(f"np.{ufunc.__name__} with {', '.join(kwargs)}=")
    name = ufunc.__name__
    if name in ("multiply", "divide") and any(np.ndim(each) == 0 for each in inputs):
        # A factor of a product, such as an attention's scale, may go into an operand.
        inputs = tuple(each.scaled() if isinstance(each, SampledArray) and each.scaled else each for each in inputs)
    operands = align_samples(inputs)
    exact = ufunc(*operands)
    if isinstance(exact, tuple):
        raise UntrackedError(f"np.{ufunc.__name__}, which has several results")
    made = first.with_samples(exact, promote(inputs))
    if name in ("add", "subtract"):
        made.terms = operands[0], operands[1]
    if name in EXACT or not is_float(exact.dtype):
        return made.record(name, inputs)
    ulps = functools.partial(_ulps, ufunc, inputs, operands, exact, first)
    flushing = name in first.machine.precision.flushing
    vanishing = _small_reciprocals(operands[1]) if name == "divide" else None
    made.samples = first.machine.round_result(exact, ulps, made.compute, flushing=flushing, vanishing=vanishing)
    return made.record(name, inputs)


def vectorized(function: Callable[..., Array], name: str, inputs: tuple[Any, ...]) -> SampledArray:
    """An elementwise function that is no ufunc, of arrays of which at least one is watched; `name` is the table's."""
    first = next(each for each in inputs if isinstance(each, SampledArray))
    exact = np.asarray(function(*align_samples(inputs)))
    made = first.with_samples(exact, promote(inputs))
    if is_float(exact.dtype):
        known = first.machine.precision.ulps.get(name, _UNKNOWN)
        made.samples = first.machine.round_result(exact, known.relative - 0.5, made.compute)
    return made.record(name, inputs)


def _ulps(
    ufunc: np.ufunc, inputs: tuple[Any, ...], operands: list[Array], exact: Array, first: SampledArray, at: slice
) -> "float | Array":
    """How far off some rows of it may be before its last rounding, in ulps of the result."""
    name = ufunc.__name__
    known = first.machine.precision.ulps.get(name, _UNKNOWN)
    beyond = known.relative - 0.5
    if name == "divide":
        lone = not isinstance(inputs[1], SampledArray) and _powers_of_two(operands[1])
        return 0.0 if lone else beyond + _BY_RECIPROCAL

    def rows(values: Array) -> Array:
        return values[at] if values.ndim == exact.ndim and len(values) > 1 else values

    if name == "power":
        return _of_power(inputs[1], [*map(rows, operands)], beyond)
    argument = max(known.argument, _BY_EXP2) if name in ("exp", "exp2", "expm1", "logaddexp") else known.argument
    if not argument and not known.absolute:
        return beyond
    u, true = FLOAT32.unit_roundoff, rows(exact)
    error: Any = 2 * u * known.absolute
    if name == "logaddexp":
        error = error + 2 * u * np.maximum(*(np.abs(rows(each)) for each in operands))
    elif argument:
        given = rows(operands[0])
        size = argument * np.abs(given)
        if name in ("exp", "exp2", "expm1") and first.terms:
            one, other = map(rows, first.terms)
            size = np.fmax(size, _BY_EXP2 * (np.abs(one) + np.abs(other)))
        size *= 2 * u
        size += given
        moved = ufunc(size)
        moved -= true
        error = error + np.abs(moved, out=moved)
    return beyond + finite(error / (2 * u * np.abs(true)))


def finite(values: Array) -> Array:
    """Values, and 0 for those that are infinite or NaN."""
    known = np.isfinite(values)
    return values if known.all() else np.where(known, values, 0.0)


def _small_reciprocals(divisors: Array) -> Array | None:
    """Where x (1 / y) and y's reciprocal vanish though x / y does not."""
    small = np.abs(divisors) > 1 / FLOAT32.smallest_normal
    return small & np.isfinite(divisors) if small.any() else None


def _powers_of_two(values: Array) -> bool:
    mantissa, _ = np.frexp(np.asarray(values, np.float64))
    return bool((np.abs(mantissa) == 0.5).all())


def _of_power(exponent: Any, operands: list[Array], ulps: float) -> "float | Array":
    """A small whole exponent is a product of so many factors; else 2^(y log2 x)."""
    if not isinstance(exponent, SampledArray) and np.ndim(exponent) == 0 and float(exponent) in (1.0, 2.0):
        return 0.0
    if not isinstance(exponent, SampledArray) and np.ndim(exponent) == 0 and abs(float(exponent)) <= 8:
        return ulps + abs(float(exponent))
    grown = np.abs(operands[1] * np.log2(np.abs(operands[0])))
    return np.asarray(ulps + _BY_EXP2 * finite(grown))


def reduce(ufunc: np.ufunc, array: SampledArray, kwargs: Mapping[str, Any]) -> SampledArray:
    """`ufunc.reduce` over axes of a watched array."""
    options = dict(kwargs)
    axis = options.pop("axis", 0)
    keepdims: Any = bool(options.pop("keepdims", False))  # NumPy's types tell True from False
    options.pop("dtype", None)
    where = options.pop("where", True)
    initial = options.pop("initial", None)
    axes = axes_of(axis, array.ndim)
    if ufunc is np.logaddexp:
        return _log_of_sum(array, axis, keepdims)
    if where is not True:
        if ufunc.__name__ not in _NEUTRAL:
            raise UntrackedError(f"np.{ufunc.__name__}.reduce with where=")
        array = _where(where, array, _NEUTRAL[ufunc.__name__])
    values = array.samples
    extra = {"initial": initial} if is_given(initial) else {}
    exact = np.asarray(_reduced(ufunc)(values, axis=axes, keepdims=keepdims, **extra))
    made, noted = array.with_samples(exact), f"{ufunc.__name__}.reduce"
    if ufunc.__name__ in EXACT or not is_float(exact.dtype):
        return made.record(noted, (array,), axes=axes, keepdims=keepdims, where=True)
    terms = int(np.prod([values.shape[each] for each in axes]))
    if ufunc is np.add:
        positive = not extra and not np.signbit(values).any()
        mass = exact if positive else np.asarray(_reduced(np.add)(np.abs(values), axis=axes, keepdims=keepdims))
        sequential = None if extra else _in_turn(array, values, axes, exact.shape[1:])
        made.samples = array.machine.round_sum(exact, mass, terms, array.compute, sequential=sequential)
    elif ufunc is np.multiply:
        made.samples = _multiplied(
            array, values, exact, lambda v: _reduced(ufunc)(v, axis=axes, keepdims=keepdims), terms
        )
    else:
        raise UntrackedError(f"np.{noted}")
    return made.record(noted, (array,), axes=axes, keepdims=keepdims, where=True)


def _where(*arrays: Any) -> Any:
    return np.where(*arrays)


def _log_of_sum(array: Any, axis: Any, keepdims: bool) -> SampledArray:
    """`np.logaddexp.reduce`, as a kernel computes it: with the largest term taken out."""
    largest = np.max(array, axis=axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    total = np.log(np.sum(np.exp(array - shift), axis=axis, keepdims=True)) + shift
    result: SampledArray = total if keepdims else np.squeeze(total, axis)
    return result


def _reduced(ufunc: np.ufunc) -> Any:
    return ufunc.reduce  # whose stubs want `keepdims` to be a literal


def _multiplied(
    array: SampledArray, values: Array, exact: Array, product: Callable[[Array], Array], terms: int
) -> Array:
    """Products of many factors, in any order: what a part of them overflows to is lost, and what it loses below the
    smallest normal number is multiplied by the others."""
    fmt = array.compute
    samples = array.machine.round_result(exact.copy(), math.sqrt(terms), fmt)
    if array.machine.parts is not None or array.machine.single == 0:
        return samples
    size = np.abs(values)
    large = product(np.where(np.isfinite(size), np.maximum(size, 1), 1))
    small = product(np.where(size > 0, np.minimum(size, 1), 1))
    lost = (large >= fmt.overflow) & np.isfinite(exact)
    vanished = np.where((small < fmt.smallest_normal) & (exact != 0), fmt.smallest_normal * large, 0.0)
    moved = np.where(lost, np.nan, samples + vanished)
    quiet = array.machine.cases if array.machine.single is None else 0
    return np.concatenate([samples[:quiet], np.broadcast_to(moved, samples.shape)[quiet:]])


def _in_turn(array: SampledArray, values: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array | None:
    """The sum of row 1, or of the only row, one term after the other in the format of the sum."""
    row = array.machine.row(values, 1)
    if array.compute.precision != 24 or not row.size:
        return None
    kept = [each for each in range(row.ndim) if each not in axes]
    terms = row.transpose(*axes, *kept).reshape(-1, math.prod(row.shape[each] for each in kept))
    if terms.shape[1] == 1:  # which `reduce` would sum in pairs
        total: Array = np.add.accumulate(terms[:, 0].astype(np.float32))[-1]
    else:
        total = np.add.reduce(np.ascontiguousarray(terms, np.float32), axis=0, dtype=np.float32)
    return np.asarray(total, np.float64).reshape(len(row), *shape)


def accumulate(ufunc: np.ufunc, array: SampledArray, axis: int) -> SampledArray:
    """`ufunc.accumulate` along an axis of a watched array."""
    (at,) = axes_of(axis, array.ndim)
    exact = ufunc.accumulate(array.samples, axis=at)
    made, noted = array.with_samples(exact), f"{ufunc.__name__}.accumulate"
    if ufunc.__name__ in EXACT or not is_float(exact.dtype):
        return made.record(noted, (array,), axis=at)
    terms = exact.shape[at]
    if ufunc is np.multiply:
        made.samples = _multiplied(array, array.samples, exact, lambda v: np.multiply.accumulate(v, axis=at), terms)
        return made.record(noted, (array,), axis=at)
    if ufunc is not np.add:
        raise UntrackedError(f"np.{noted}")
    mass = np.add.accumulate(np.abs(array.samples), axis=at)
    row = array.machine.row(array.samples, 1)
    sequential = np.add.accumulate(row.astype(np.float32), axis=at).astype(np.float64)
    made.samples = array.machine.round_sum(exact, mass, terms, array.compute, sequential=sequential)
    return made.record(noted, (array,), axis=at)
