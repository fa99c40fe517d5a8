"""The rounding of reductions and accumulations by ufuncs: sums in any order, products, logarithms of sums."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.decompositions import is_given
from kerneltest.numerics.partial_sums import accumulated_partial_sums, partial_sums
from kerneltest.numerics.products import contract_otherwise
from kerneltest.numerics.random_errors import select_rows
from kerneltest.numerics.samples import Operand, Option, SampledArray, UntrackedError, axes_of
from kerneltest.numerics.ufuncs import EXACT_UFUNCS, ulps_of_logaddexp

_NEUTRAL = {"add": 0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf, "logical_and": True, "logical_or": False}


def reduce(ufunc: np.ufunc, array: SampledArray, kwargs: Mapping[str, Option]) -> SampledArray:
    """Returns `ufunc.reduce` over axes of a tracked array.

    Raises:
      UntrackedError: it is unknown how the reduction rounds.
    """
    options = dict(kwargs)
    axis = options.pop("axis", 0)
    keepdims: Option = bool(options.pop("keepdims", False))  # Option, since NumPy's stubs want a literal
    options.pop("dtype", None)
    where = options.pop("where", True)
    initial = options.pop("initial", None)
    axes = axes_of(axis, array.ndim)
    if ufunc is np.logaddexp:
        return _reduce_logaddexp(array, axis, keepdims)
    if ufunc is np.add and array.factors:
        array = contract_otherwise(array.factors)
    if where is not True:
        if ufunc.__name__ not in _NEUTRAL:
            raise UntrackedError(f"np.{ufunc.__name__}.reduce with where=")
        array = _where(where, array, _NEUTRAL[ufunc.__name__])
    values = array.samples
    extra = {"initial": initial} if is_given(initial) else {}
    exact = np.asarray(_reduce_of(ufunc)(values, axis=axes, keepdims=keepdims, **extra))
    made, name = array.with_samples(exact), f"{ufunc.__name__}.reduce"
    if ufunc.__name__ in EXACT_UFUNCS or not is_float(exact.dtype):
        return made.record(name, (array,), axes=axes, keepdims=keepdims, where=True)
    terms = int(np.prod([values.shape[each] for each in axes]))
    if ufunc is np.add:
        mass, partial = _partial_sums(array, values, axes, exact)
        sequential = None if extra else _sequential_sum(array, values, axes, exact.shape[1:])
        made.samples = array.machine.round_sum(
            exact, mass, terms, array.compute, partial=partial, sequential=sequential
        )
    elif ufunc is np.multiply:
        made.samples = _round_product(
            array, values, exact, lambda v: _reduce_of(ufunc)(v, axis=axes, keepdims=keepdims), terms
        )
    else:
        raise UntrackedError(f"np.{name}")
    return made.record(name, (array,), axes=axes, keepdims=keepdims, where=True)


def _where(*arrays: Operand) -> Operand:
    return np.where(*arrays)  # untyped, since NumPy's stubs do not accept tracked arrays


def _reduce_logaddexp(array: Operand, axis: Option, keepdims: bool) -> SampledArray:
    """Returns `np.logaddexp.reduce` as a kernel computes it, after subtracting the largest term."""
    largest = np.max(array, axis=axis, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    total = np.log(np.sum(np.exp(array - shift), axis=axis, keepdims=True)) + shift
    result: SampledArray = total if keepdims else np.squeeze(total, axis)
    return result


def _round_logarithms(array: SampledArray, exact: Array, axis: int) -> Array:
    """Returns the samples of cumulative logarithms of sums of exponentials.

    The errors of one step are those of `logaddexp`, and those of several are a random walk.
    """
    terms = np.moveaxis(array.samples, axis, -1)
    before = np.moveaxis(exact, axis, -1)
    largest = np.abs(terms)
    largest[..., 1:] = np.fmax(largest[..., 1:], np.abs(before[..., :-1]))
    ulps = np.sqrt(np.arange(terms.shape[-1])) * ulps_of_logaddexp(array, largest, before)
    return array.machine.round_result(
        exact.copy(), lambda at: select_rows(np.moveaxis(ulps, -1, axis), at), array.compute
    )


def _reduce_of(ufunc: np.ufunc) -> Operand:
    return ufunc.reduce  # untyped, since NumPy's stubs want `keepdims` to be a literal


def _round_product(
    array: SampledArray, values: Array, exact: Array, product: Callable[[Array], Array], terms: int
) -> Array:
    """Returns the samples of products of many factors, in any order.

    A product is lost if some of the factors overflow, and an underflow of some is amplified by the others.

    Args:
      array: the tracked array whose elements are the factors.
      values: the factors, in samples.
      exact: the exact products.
      product: computes products from other factors in the shape of `values`.
      terms: the number of factors.
    """
    fmt = array.compute
    samples = array.machine.round_result(exact.copy(), math.sqrt(terms), fmt)
    if array.machine.rows_by_source is not None or array.machine.single == 0:
        return samples
    size = np.abs(values)
    large = product(np.where(np.isfinite(size), np.maximum(size, 1), 1))
    small = product(np.where(size > 0, np.minimum(size, 1), 1))
    lost = (large >= fmt.overflow) & np.isfinite(exact)
    vanished = np.where((small < fmt.smallest_normal) & (exact != 0), fmt.smallest_normal * large, 0.0)
    moved = np.where(lost, np.nan, samples + vanished)
    quiet = array.machine.cases if array.machine.single is None else 0
    return np.concatenate([samples[:quiet], np.broadcast_to(moved, samples.shape)[quiet:]])


def _partial_sums(array: SampledArray, values: Array, axes: tuple[int, ...], exact: Array) -> tuple[Array, Array]:
    """Returns the sums of magnitudes in row 0, and how large partial sums are there, (cases or 1, ...)."""
    row, total = array.machine.row(values, 0), array.machine.row(exact, 0)
    if not row.size or not np.signbit(row).any():
        return np.abs(total), np.abs(total)
    terms = _terms_first(row, axes)
    size = np.add.reduce(np.abs(terms), axis=0).reshape(total.shape)
    return size, partial_sums(terms, total.reshape(terms.shape[1:]), size.reshape(terms.shape[1:])).reshape(total.shape)


def _terms_first(row: Array, axes: tuple[int, ...]) -> Array:
    """Returns the terms of sums over axes along the first of two axes."""
    kept = [each for each in range(row.ndim) if each not in axes]
    return row.transpose(*axes, *kept).reshape(-1, math.prod(row.shape[each] for each in kept))


def _sequential_sum(array: SampledArray, values: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array | None:
    """Returns the sum of row 1, or of the only row, in sequence in float32; None for other formats or no elements."""
    row = array.machine.row(values, 1)
    if array.compute.precision != FLOAT32.precision or not row.size:
        return None
    terms = _terms_first(row, axes)
    if terms.shape[1] == 1:  # `reduce` would sum it pairwise
        total: Array = np.add.accumulate(terms[:, 0].astype(np.float32))[-1]
    else:
        total = np.add.reduce(np.ascontiguousarray(terms, np.float32), axis=0, dtype=np.float32)
    return np.asarray(total, np.float64).reshape(len(row), *shape)


def accumulate(ufunc: np.ufunc, array: SampledArray, axis: int) -> SampledArray:
    """Returns `ufunc.accumulate` along an axis of a tracked array.

    Raises:
      UntrackedError: it is unknown how the accumulation rounds.
    """
    (at,) = axes_of(axis, array.ndim)
    exact = ufunc.accumulate(array.samples, axis=at)
    made, name = array.with_samples(exact), f"{ufunc.__name__}.accumulate"
    if ufunc.__name__ in EXACT_UFUNCS or not is_float(exact.dtype):
        return made.record(name, (array,), axis=at)
    terms = exact.shape[at]
    if ufunc is np.multiply:
        made.samples = _round_product(array, array.samples, exact, lambda v: np.multiply.accumulate(v, axis=at), terms)
        return made.record(name, (array,), axis=at)
    if ufunc is np.logaddexp:
        made.samples = _round_logarithms(array, exact, at)
        return made.record(name, (array,), axis=at)
    if ufunc is not np.add:
        raise UntrackedError(f"np.{name}")
    one, total = array.machine.row(array.samples, 0), array.machine.row(exact, 0)
    mass = np.add.accumulate(np.abs(one), axis=at)
    partial = accumulated_partial_sums(one, at, total, mass)
    count = np.arange(1, terms + 1).reshape(-1, *(1,) * (exact.ndim - at - 1))
    sequential = None
    if array.compute.precision == FLOAT32.precision:
        row = array.machine.row(array.samples, 1)
        sequential = np.add.accumulate(row.astype(np.float32), axis=at).astype(np.float64)
    made.samples = array.machine.round_sum(exact, mass, count, array.compute, partial=partial, sequential=sequential)
    return made.record(name, (array,), axis=at)
