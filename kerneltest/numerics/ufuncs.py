"""The rounding of each ufunc: exact, correctly rounded, or as inaccurate as the machine's library function."""

import functools
from collections.abc import Callable, Mapping

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.precision import FLOAT32, Ulps
from kerneltest.numerics.chains import chain_of_sum, round_chain
from kerneltest.numerics.formats import round_to_nearest
from kerneltest.numerics.samples import (
    Operand,
    Option,
    SampledArray,
    UntrackedError,
    align_samples,
    join_formats,
    round_constants,
    settle,
    unwrap,
)

# Ufuncs whose results are operands, integers or booleans, or are exact for other reasons.
EXACT_UFUNCS = frozenset(
    "negative positive absolute fabs conjugate sign copysign maximum minimum fmax fmin rint floor ceil trunc fmod "
    "isnan isfinite isinf signbit equal not_equal less less_equal greater greater_equal logical_and logical_or "
    "logical_not logical_xor bitwise_and bitwise_or bitwise_xor invert left_shift right_shift floor_divide remainder "
    "heaviside ldexp clip nextafter".split()
)
# Ufuncs whose result may jump where an operand moves by a rounding.
_DECIDING = frozenset("rint floor ceil trunc equal not_equal less less_equal greater greater_equal".split())
# In ulps of the argument, for other formulas that kernels use: exp as 2^(x log2 e), which rounds its argument, or the
# terms of its argument if that is a difference. In ulps of the result: x / y as x (1 / y).
_BY_EXP2 = 1.0
_BY_RECIPROCAL = 0.5
_UNKNOWN = Ulps(4.5, source="assumed for functions that the table lacks")


def call(ufunc: np.ufunc, inputs: tuple[Operand, ...], kwargs: Mapping[str, Option]) -> SampledArray:
    """Applies a ufunc to operands, at least one of which is tracked.

    Raises:
      UntrackedError: it is unknown how the ufunc rounds.
    """
    first = next(each for each in inputs if isinstance(each, SampledArray))
    if ufunc.signature:
        raise UntrackedError(f"np.{ufunc.__name__}")
    if kwargs:
        raise UntrackedError(f"np.{ufunc.__name__} with {', '.join(kwargs)}=")
    name = ufunc.__name__
    if name in ("multiply", "divide") and any(np.ndim(each) == 0 for each in inputs):
        # A factor of a product, such as an attention's scale, may go into an operand.
        inputs = tuple(map(_scaled, inputs))
    if name in _DECIDING:
        inputs = tuple(map(settle, inputs))
    operands = align_samples(inputs)
    exact = ufunc(*operands)
    if isinstance(exact, tuple):
        raise UntrackedError(f"np.{ufunc.__name__}, which has several outputs")
    if is_float(exact.dtype) or any(is_float(each.dtype) for each in operands):
        rounded = round_constants(inputs)
        if rounded is not inputs:
            operands = align_samples(rounded)
            exact = ufunc(*operands)
    made = first.with_samples(exact, join_formats(inputs))
    if name in EXACT_UFUNCS or not is_float(exact.dtype):
        return made.record(name, inputs)
    if name in ("add", "subtract"):
        made.terms, made.subtracts = (operands[0], operands[1]), name == "subtract"
        if chain := chain_of_sum(inputs, exact, made, subtracts=made.subtracts):
            round_chain(made, chain)
            return made.record(name, inputs)
    ulps = functools.partial(_ulps, ufunc, inputs, operands, exact, first)
    flushing = first.machine.ask("flushing", name)
    vanishing = _has_subnormal_reciprocal(operands[1]) if name == "divide" else None
    exact_quotients = _exact_quotients(inputs, made) if name == "divide" else None
    made.samples = first.machine.round_result(exact, ulps, made.compute, flushing=flushing, vanishing=vanishing)
    if exact_quotients is not None:
        made.settled = np.where(np.isnan(exact_quotients), made.samples, exact_quotients)
    if name == "multiply" and any(isinstance(each, SampledArray) and each.again for each in inputs):
        made.factors = inputs
    return made.record(name, inputs)


def _scaled(operand: Operand) -> Operand:
    """Returns a matrix product of operands that were scaled before they were rounded; any other operand unchanged."""
    if isinstance(operand, SampledArray) and operand.scaled and operand.machine.ask("dot_input", "float32") is not None:
        return operand.scaled()
    return operand


def _exact_quotients(inputs: tuple[Operand, ...], made: SampledArray) -> Array | None:
    """Returns the quotients that are exact: representable, and the product with the rounded reciprocal as well.

    Others are NaN. The result is None if there are none in row 0.
    """
    fmt, machine = made.compute, made.machine
    if not machine.ask("exact_quotients"):
        return None
    first = machine.row(made.samples, 0)
    representable = (round_to_nearest(first, fmt) == first) & (np.abs(first) >= fmt.smallest_normal)
    if not representable.any():
        return None
    dividend, divisor = align_samples(map(settle, inputs))
    exact = np.asarray(dividend / divisor)
    reciprocals = np.asarray(round_to_nearest(1 / np.asarray(divisor, np.float64), fmt), np.float64)
    product = round_to_nearest(dividend * reciprocals, fmt)
    kept = (round_to_nearest(exact, fmt) == exact) & (product == exact) & (np.abs(reciprocals) >= fmt.smallest_normal)
    kept = np.asarray(kept.reshape(-1, *first.shape) & representable).reshape(exact.shape)
    return np.where(kept, exact, np.nan)


def call_vectorized(function: Callable[..., Array], name: str, inputs: tuple[Operand, ...]) -> SampledArray:
    """Applies an elementwise function that is not a ufunc to operands, at least one of which is tracked.

    Args:
      function: the function of NumPy arrays.
      name: the function whose errors in the table of ulps apply.
      inputs: the operands.
    """
    first = next(each for each in inputs if isinstance(each, SampledArray))
    exact = np.asarray(function(*align_samples(inputs)))
    made = first.with_samples(exact, join_formats(inputs))
    if is_float(exact.dtype):
        known = first.machine.ask("ulps", name) or _UNKNOWN
        made.samples = first.machine.round_result(exact, known.relative - 0.5, made.compute)
    return made.record(name, inputs)


def _ulps(
    ufunc: np.ufunc, inputs: tuple[Operand, ...], operands: list[Array], exact: Array, first: SampledArray, at: slice
) -> "float | Array":
    """Returns the largest error of some rows of a ufunc before the final rounding, in ulps of the result.

    Args:
      ufunc: the ufunc.
      inputs: its operands.
      operands: the aligned samples of the operands.
      exact: the exact results.
      first: the first tracked operand.
      at: the rows.
    """
    name = ufunc.__name__
    known = first.machine.ask("ulps", name) or _UNKNOWN
    beyond = known.relative - 0.5
    if name == "divide":
        lone = not isinstance(unwrap(inputs[1]), SampledArray) and _powers_of_two(operands[1])
        return 0.0 if lone else beyond + _BY_RECIPROCAL

    def rows(values: Array) -> Array:
        return values[at] if values.ndim == exact.ndim and len(values) > 1 else values

    if name == "power":
        return _ulps_of_power(unwrap(inputs[1]), [*map(rows, operands)], beyond)
    argument = max(known.argument, _BY_EXP2) if name in ("exp", "exp2", "expm1") else known.argument
    u, true = FLOAT32.unit_roundoff, rows(exact)
    if name == "logaddexp":
        return ulps_of_logaddexp(first, np.maximum(*(np.abs(rows(each)) for each in operands)), true)
    if not argument and not known.absolute:
        return beyond
    error: Operand = 2 * u * known.absolute
    if argument:
        x = rows(operands[0])
        size = argument * np.abs(x)
        if name in ("exp", "exp2", "expm1") and first.terms:
            one, other = map(rows, first.terms)
            size = np.fmax(size, _BY_EXP2 * (np.abs(one) + np.abs(other)))
        size *= 2 * u
        size += x
        moved = ufunc(size)
        moved -= true
        error = error + np.abs(moved, out=moved)
    return beyond + zero_nonfinite(error / (2 * u * np.abs(true)))


def ulps_of_logaddexp(array: SampledArray, largest: Array, true: Array) -> Array:
    """Returns the largest errors of `logaddexp` before the final rounding, in ulps of the results.

    Args:
      array: one of the tracked operands.
      largest: the largest magnitude of the operands.
      true: the exact results.
    """
    known = array.machine.ask("ulps", "logaddexp") or _UNKNOWN
    error = (known.absolute + _BY_EXP2 * largest) / np.abs(true)
    return np.asarray(known.relative - 0.5 + zero_nonfinite(error))


def zero_nonfinite(values: Array) -> Array:
    """Returns values, with 0 in place of infinities and NaN."""
    known = np.isfinite(values)
    return values if known.all() else np.where(known, values, 0.0)


def _has_subnormal_reciprocal(divisors: Array) -> Array | None:
    """Returns where 1 / y is subnormal, so that x (1 / y) may be flushed though x / y is not; None for nowhere."""
    small = np.abs(divisors) > 1 / FLOAT32.smallest_normal
    return small & np.isfinite(divisors) if small.any() else None


def _powers_of_two(values: Array) -> bool:
    """Returns whether all values are powers of two, by which a division is exact."""
    mantissa, _ = np.frexp(np.asarray(values, np.float64))
    return bool((np.abs(mantissa) == 0.5).all())


def _ulps_of_power(exponent: Operand, operands: list[Array], ulps: float) -> "float | Array":
    """Returns the errors of a power: a product for a small constant integer, 2^(y log2 x) for any other exponent."""
    if not isinstance(exponent, SampledArray) and np.ndim(exponent) == 0 and float(exponent) in (1.0, 2.0):
        return 0.0
    if not isinstance(exponent, SampledArray) and np.ndim(exponent) == 0 and abs(float(exponent)) <= 8:
        return ulps + abs(float(exponent))
    grown = np.abs(operands[1] * np.log2(np.abs(operands[0])))
    return np.asarray(ulps + _BY_EXP2 * zero_nonfinite(grown))
