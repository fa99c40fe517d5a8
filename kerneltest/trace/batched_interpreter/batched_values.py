"""Values with rows: arrays whose first axis counts sets of inputs, or has length 1 if all sets share the value."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import dtypes

from kerneltest.core.dtypes import Array, is_float
from kerneltest.trace.jax_compat.jaxpr_types import AbstractValue, DType
from kerneltest.trace.scalars import UnknownError as UnknownError


class BatchedRef:
    """The memory that a reference refers to.

    Attributes:
      array: its content, (rows, *shape).
    """

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array


Value: TypeAlias = Any  # an Array with rows, or a BatchedRef
# Evaluates one equation: from its operands to its results.
EquationFunction: TypeAlias = Callable[[Sequence[Value]], Sequence[Value]]
# Evaluates an equation whose operands and one result are all arrays.
ArrayFunction: TypeAlias = Callable[..., Any]


_promotes: ContextVar[bool] = ContextVar("promotes", default=False)
_in_step: ContextVar[bool] = ContextVar("in step", default=False)


@contextmanager
def promote_floats() -> Iterator[None]:
    """Has kernels that are prepared in this context computed in float64, except for what they store in float8."""
    token = _promotes.set(True)
    try:
        yield
    finally:
        _promotes.reset(token)


@contextmanager
def in_step() -> Iterator[None]:
    """Has rows that take different branches, or loop a different number of times, raise UnknownError."""
    token = _in_step.set(True)
    try:
        yield
    finally:
        _in_step.reset(token)


def is_promotable(dtype: DType) -> bool:
    """Returns whether a dtype is a float of 16 bits or more. Narrower ones are formats for storing."""
    return is_float(dtype) and dtype.itemsize > 1


def is_promoting() -> bool:
    """Returns whether kernels are now prepared in `promote_floats`."""
    return _promotes.get()


def dtype_of(aval: AbstractValue) -> DType:
    """The dtype in which a value is computed.

    Raises:
      UnknownError: NumPy does not have it, as for a semaphore or a key.
    """
    try:
        dtype: DType = np.dtype(aval.dtype)
    except (TypeError, AttributeError):
        raise UnknownError(str(aval)) from None
    return promoted_dtype(dtype)


def promoted_dtype(dtype: DType) -> DType:
    """Returns float64 for a float of 16 bits or more in `promote_floats`, otherwise the dtype itself."""
    return np.dtype(np.float64) if _promotes.get() and is_promotable(dtype) else dtype


def constant(value: Any, dtype: DType) -> Array:
    """A constant of a jaxpr as an array with one row, in the dtype in which it is computed."""
    return np.asarray(value, dtype)[None].astype(promoted_dtype(dtype), copy=False)


def unwritten_memory(shape: Sequence[int], dtype: DType) -> Array:
    """Unwritten memory with the content that Pallas' interpreter gives it: NaN, the least integer, or False."""
    if is_float(dtype):
        return np.full(shape, np.nan, dtype)
    return np.full(shape, False if dtype == np.bool_ else ml_dtypes.iinfo(dtype).min, dtype)


def scoped_memory(aval: AbstractValue) -> Callable[[int], BatchedRef]:
    """The function from a number of rows to unwritten memory of a type. The memory of a semaphore is never read.

    Raises:
      UnknownError: NumPy does not have its dtype.
    """
    shape = tuple(aval.shape)
    extended = jnp.issubdtype(aval.dtype, dtypes.extended)
    if extended and not jnp.issubdtype(aval.dtype, dtypes.prng_key):
        return lambda rows: BatchedRef(np.zeros((rows, *shape), bool))
    dtype = dtype_of(aval)
    return lambda rows: BatchedRef(unwritten_memory((rows, *shape), dtype))


def rows_of(values: Sequence[Value]) -> int:
    """The number of rows that some values have together."""
    return max((len(each.array if isinstance(each, BatchedRef) else each) for each in values), default=1)


def is_uniform(values: Sequence[Array]) -> bool:
    """Returns whether every array has a single row."""
    return all(len(each) == 1 for each in values)


def by_row(arrays: Sequence[Array]) -> Iterator[list[Array]]:
    """Yields the arrays of each row in turn, without their row axis."""
    for row in range(rows_of(arrays)):
        yield [each[row if len(each) > 1 else 0] for each in arrays]


def run_by_group(
    keys: Array, values: Sequence[Value], run: Callable[[Any, list[Value]], Sequence[Array]]
) -> Sequence[Array]:
    """Runs each group of rows that share a key by itself, and joins the results.

    Args:
      keys: (rows,).
      values: the inputs; what a group writes to their memory is written back.
      run: from a key and the group's values to the group's results.

    Raises:
      UnknownError: rows of different groups share memory, or are to stay in step.
    """
    groups = np.unique(keys)
    if len(groups) == 1:
        return run(groups[0], list(values))
    if _in_step.get():
        raise UnknownError("rows that take different branches")
    results: list[Array] = []
    for key in groups:
        rows = np.flatnonzero(keys == key)
        part = [_select_rows(value, rows, len(keys)) for value in values]
        made = run(key, part)
        for whole, some in zip(values, part, strict=True):
            if isinstance(whole, BatchedRef) and whole.array.flags.writeable:
                if len(whole.array) != len(keys):
                    raise UnknownError("memory that is shared by rows with different control flow")
                whole.array[rows] = some.array
        if not results:
            results = [np.empty((len(keys), *each.shape[1:]), each.dtype) for each in made]
        for each, result in zip(made, results, strict=True):
            result[rows] = each
    return results


def _select_rows(value: Value, rows: Array, count: int) -> Value:
    if isinstance(value, BatchedRef):
        part = value.array[rows] if len(value.array) == count else np.repeat(value.array, len(rows), 0)
        part.flags.writeable = value.array.flags.writeable
        return BatchedRef(part)
    return value[rows] if len(value) == count else value
