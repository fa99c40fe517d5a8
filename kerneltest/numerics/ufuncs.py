"""The rounding of each ufunc: exact, correctly rounded, or as inaccurate as the machine's library function."""

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.precision import FLOAT32, Ulps
from kerneltest.numerics.array_functions import is_given
from kerneltest.numerics.products import chain_of_sum, contract_otherwise, round_chain
from kerneltest.numerics.rounding_model import round_to_nearest, select_rows
from kerneltest.numerics.samples import (
    Operand,
    Option,
    SampledArray,
    UntrackedError,
    accumulated_partial_sums,
    align_samples,
    axes_of,
    join_formats,
    partial_sums,
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
    """Applies a ufunc to operands, at least one of which is tracked; UntrackedError if its rounding is unknown."""
    first, name = next(each for each in inputs if isinstance(each, SampledArray)), ufunc.__name__
    if ufunc.signature or kwargs:
        raise UntrackedError(f"np.{name} with {', '.join(kwargs)}=" if kwargs else f"np.{name}")
    if name in ("multiply", "divide") and any(np.ndim(each) == 0 for each in inputs):
        # A factor of a product, such as an attention's scale, may go into an operand.
        inputs = tuple(map(_scaled, inputs))
    if name in _DECIDING:
        inputs = tuple(map(settle, inputs))
    operands = align_samples(inputs)
    exact = ufunc(*operands)
    if isinstance(exact, tuple):
        raise UntrackedError(f"np.{name}, which has several outputs")
    if is_float(exact.dtype) or any(is_float(operand.dtype) for operand in operands):
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
    flushing = first.rounding.ask("flushing", name)
    vanishing = exact_quotients = None
    if name == "divide":
        # Where 1 / y is subnormal, x (1 / y) may be flushed though x / y is not.
        small = (np.abs(operands[1]) > 1 / FLOAT32.smallest_normal) & np.isfinite(operands[1])
        vanishing = np.broadcast_to(small, exact.shape) if small.any() else None
        exact_quotients = _exact_quotients(inputs, made)
    made.samples = first.rounding.round_result(exact, ulps, made.compute, flushing=flushing, vanishing=vanishing)
    _approximate(made, name)
    if exact_quotients is not None:
        made.settled = np.where(np.isnan(exact_quotients), made.samples, exact_quotients)
    if name == "multiply" and any(isinstance(each, SampledArray) and each.again for each in inputs):
        made.factors = inputs
    return made.record(name, inputs)


# Moves a result as far as a kernel may be off that is declared to approximate the function of some name.
def _approximate(made: SampledArray, name: str) -> None:
    if error := made.rounding.ask("approximated", name):
        made.samples = made.rounding.approximate(made.samples, error)


# A matrix product of operands that were scaled before they were rounded; any other operand unchanged.
def _scaled(operand: Operand) -> Operand:
    if (
        isinstance(operand, SampledArray)
        and operand.scaled
        and operand.rounding.ask("dot_input", "float32") is not None
    ):
        return operand.scaled()
    return operand


# The quotients that are exact: representable, and the product with the rounded reciprocal as well. Others are NaN. None
# if there are none in row 0.
def _exact_quotients(inputs: tuple[Operand, ...], made: SampledArray) -> Array | None:
    fmt, rounding = made.compute, made.rounding
    if not rounding.ask("exact_quotients"):
        return None
    first = rounding.row(made.samples, 0)
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
    """Applies an elementwise function that is not a ufunc, with the errors that the table of ulps has for `name`."""
    first = next(each for each in inputs if isinstance(each, SampledArray))
    exact = np.asarray(function(*align_samples(inputs)))
    made = first.with_samples(exact, join_formats(inputs))
    if is_float(exact.dtype):
        known = first.rounding.ask("ulps", name) or _UNKNOWN
        made.samples = first.rounding.round_result(exact, known.relative - 0.5, made.compute)
        _approximate(made, name)
    return made.record(name, inputs)


# The largest errors of the rows `at` before the final rounding, in ulps of the result; `operands` are aligned samples.
def _ulps(
    ufunc: np.ufunc, inputs: tuple[Operand, ...], operands: list[Array], exact: Array, first: SampledArray, at: slice
) -> "float | Array":
    name = ufunc.__name__
    known = first.rounding.ask("ulps", name) or _UNKNOWN
    beyond = known.relative - 0.5
    if name == "divide":
        constant = not isinstance(unwrap(inputs[1]), SampledArray)
        by_power_of_two = constant and (np.abs(np.frexp(np.asarray(operands[1], np.float64))[0]) == 0.5).all()
        return 0.0 if by_power_of_two else beyond + _BY_RECIPROCAL

    def rows(values: Array) -> Array:
        return values[at] if values.ndim == exact.ndim and len(values) > 1 else values

    if name == "power":
        return _ulps_of_power(unwrap(inputs[1]), [*map(rows, operands)], beyond)
    argument = max(known.argument, _BY_EXP2) if name in ("exp", "exp2", "expm1") else known.argument
    u, true = FLOAT32.unit_roundoff, rows(exact)
    if name == "logaddexp":
        return ulps_of_logaddexp(first, np.maximum(*(np.abs(rows(operand)) for operand in operands)), true)
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
    """Returns the largest errors of `logaddexp` before the final rounding, in ulps of the results `true`.

    `largest` is the largest magnitude of the operands, one of which is `array`.
    """
    known = array.rounding.ask("ulps", "logaddexp") or _UNKNOWN
    error = (known.absolute + _BY_EXP2 * largest) / np.abs(true)
    return np.asarray(known.relative - 0.5 + zero_nonfinite(error))


def zero_nonfinite(values: Array) -> Array:
    """Returns values, with 0 in place of infinities and NaN."""
    known = np.isfinite(values)
    return values if known.all() else np.where(known, values, 0.0)


# A product for a small constant exponent, 2^(y log2 x) for any other.
def _ulps_of_power(exponent: Operand, operands: list[Array], ulps: float) -> "float | Array":
    if not isinstance(exponent, SampledArray) and np.ndim(exponent) == 0 and abs(float(exponent)) <= 8:
        return 0.0 if float(exponent) in (1.0, 2.0) else ulps + abs(float(exponent))
    grown = np.abs(operands[1] * np.log2(np.abs(operands[0])))
    return np.asarray(ulps + _BY_EXP2 * zero_nonfinite(grown))


# The rounding of reductions and accumulations by ufuncs: sums in any order, products, logarithms of sums.

_WHERE: Operand = np.where  # untyped, since NumPy's stubs do not accept tracked arrays
_NEUTRAL = {"add": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf, "logical_and": True, "logical_or": False}


def reduce(ufunc: np.ufunc, array: SampledArray, axis: Option = 0, keepdims: Option = False,
           where: Option = True, initial: Option = None, **kwargs: Option) -> SampledArray:  # fmt: skip
    """Returns `ufunc.reduce` over axes of a tracked array; UntrackedError if its rounding is unknown."""
    keepdims, axes, name = bool(keepdims), axes_of(axis, array.ndim), f"{ufunc.__name__}.reduce"
    if ufunc is np.logaddexp:
        return _reduce_logaddexp(array, axis, keepdims)
    if ufunc is np.add and array.factors:
        array = contract_otherwise(array.factors)
    if where is not True:
        if ufunc.__name__ not in _NEUTRAL:
            raise UntrackedError(f"np.{name} with where=")
        array = _WHERE(where, array, _NEUTRAL[ufunc.__name__])
    values = array.samples
    combine: Operand = functools.partial(ufunc.reduce, axis=axes, keepdims=keepdims)
    exact = np.asarray(combine(values, initial=initial) if is_given(initial) else combine(values))
    made, terms = array.with_samples(exact), math.prod(values.shape[each] for each in axes)
    if ufunc.__name__ in EXACT_UFUNCS or not is_float(exact.dtype):
        pass
    elif ufunc is np.add:
        mass, partial = _partial_sums(array, values, axes, exact)
        sequential = None if is_given(initial) else _sequential_sum(array, values, axes, exact.shape[1:])
        made.samples = array.rounding.round_sum(
            exact, mass, terms, array.compute, partial=partial, sequential=sequential
        )
    elif ufunc is np.multiply:
        made.samples = _round_product(array, values, exact, combine, terms)
    else:
        raise UntrackedError(f"np.{name}")
    return made.record(name, (array,), axes=axes, keepdims=keepdims, where=True)


# As a kernel computes it, after subtracting the largest term.
def _reduce_logaddexp(array: Operand, axis: Option, keepdims: bool) -> SampledArray:
    largest = np.max(array, axis=axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    total = np.log(np.sum(np.exp(array - shift), axis=axis, keepdims=True)) + shift
    result: SampledArray = total if keepdims else np.squeeze(total, axis)
    return result


# Cumulative logarithms: the errors of one step are those of `logaddexp`, and those of several are a random walk.
def _round_logarithms(array: SampledArray, exact: Array, axis: int) -> Array:
    terms = np.moveaxis(array.samples, axis, -1)
    before = np.moveaxis(exact, axis, -1)
    largest = np.abs(terms)
    largest[..., 1:] = np.fmax(largest[..., 1:], np.abs(before[..., :-1]))
    ulps = np.sqrt(np.arange(terms.shape[-1])) * ulps_of_logaddexp(array, largest, before)
    return array.rounding.round_result(
        exact.copy(), lambda at: select_rows(np.moveaxis(ulps, -1, axis), at), array.compute
    )


# Products of many factors (`values`, in samples) in any order: one is lost if some of the factors overflow, and an
# underflow of some is amplified by the others. `product` computes products from other factors in the same shape.
def _round_product(
    array: SampledArray, values: Array, exact: Array, product: Callable[[Array], Array], terms: int
) -> Array:
    fmt = array.compute
    samples = array.rounding.round_result(exact.copy(), math.sqrt(terms), fmt)
    if array.rounding.rows_by_source is not None or array.rounding.single == 0:
        return samples
    size = np.abs(values)
    large = product(np.where(np.isfinite(size), np.maximum(size, 1), 1))
    small = product(np.where(size > 0, np.minimum(size, 1), 1))
    lost = (large >= fmt.overflow) & np.isfinite(exact)
    vanished = np.where((small < fmt.smallest_normal) & (exact != 0), fmt.smallest_normal * large, 0.0)
    moved = np.where(lost, np.nan, samples + vanished)
    quiet = array.rounding.cases if array.rounding.single is None else 0
    return np.concatenate([samples[:quiet], np.broadcast_to(moved, samples.shape)[quiet:]])


# The sums of magnitudes in row 0, and how large partial sums are there, (cases or 1, ...).
def _partial_sums(array: SampledArray, values: Array, axes: tuple[int, ...], exact: Array) -> tuple[Array, Array]:
    row, total = array.rounding.row(values, 0), array.rounding.row(exact, 0)
    if not row.size or not np.signbit(row).any():
        return np.abs(total), np.abs(total)
    terms = _terms_first(row, axes)
    size = np.add.reduce(np.abs(terms), axis=0).reshape(total.shape)
    return size, partial_sums(terms, total.reshape(terms.shape[1:]), size.reshape(terms.shape[1:])).reshape(total.shape)


# The terms of sums over axes along the first of two axes.
def _terms_first(row: Array, axes: tuple[int, ...]) -> Array:
    kept = [each for each in range(row.ndim) if each not in axes]
    return row.transpose(*axes, *kept).reshape(-1, math.prod(row.shape[each] for each in kept))


# The sum of row 1, or of the only row, in sequence in float32; None for other formats or no elements.
def _sequential_sum(array: SampledArray, values: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array | None:
    row = array.rounding.row(values, 1)
    if array.compute.precision != FLOAT32.precision or not row.size:
        return None
    terms = _terms_first(row, axes)
    if terms.shape[1] == 1:  # `reduce` would sum it pairwise
        total: Array = np.add.accumulate(terms[:, 0].astype(np.float32))[-1]
    else:
        total = np.add.reduce(np.ascontiguousarray(terms, np.float32), axis=0, dtype=np.float32)
    return np.asarray(total, np.float64).reshape(len(row), *shape)


def accumulate(ufunc: np.ufunc, array: SampledArray, axis: int) -> SampledArray:
    """Returns `ufunc.accumulate` along an axis of a tracked array; UntrackedError if its rounding is unknown."""
    (at,) = axes_of(axis, array.ndim)
    exact = ufunc.accumulate(array.samples, axis=at)
    made, name = array.with_samples(exact), f"{ufunc.__name__}.accumulate"
    terms, combine = exact.shape[at], functools.partial(ufunc.accumulate, axis=at)
    if ufunc.__name__ in EXACT_UFUNCS or not is_float(exact.dtype):
        pass
    elif ufunc is np.multiply:
        made.samples = _round_product(array, array.samples, exact, combine, terms)
    elif ufunc is np.logaddexp:
        made.samples = _round_logarithms(array, exact, at)
    elif ufunc is np.add:
        one, total = array.rounding.row(array.samples, 0), array.rounding.row(exact, 0)
        mass = combine(np.abs(one))
        partial = accumulated_partial_sums(one, at, total, mass)
        count = np.arange(1, terms + 1).reshape(-1, *(1,) * (exact.ndim - at - 1))
        in_float32 = array.compute.precision == FLOAT32.precision
        sequential = (
            combine(array.rounding.row(array.samples, 1).astype(np.float32)).astype(np.float64) if in_float32 else None
        )
        made.samples = array.rounding.round_sum(
            exact, mass, count, array.compute, partial=partial, sequential=sequential
        )
    else:
        raise UntrackedError(f"np.{name}")
    return made.record(name, (array,), axis=at)
