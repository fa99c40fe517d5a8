"""Values with rows: arrays whose first axis counts sets of inputs, or has length 1 where all are alike."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.trace.scalars import UnknownError as UnknownError


class Memory:
    """What a reference refers to.

    Attributes:
      array: (rows, *shape).
    """

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array


Value = Any  # an Array with rows, or a Memory
Step = Callable[[Sequence[Value]], Sequence[Value]]


def dtype_of(aval: Any) -> np.dtype[Any]:
    """The dtype of a value.

    Raises:
      UnknownError: it is none of NumPy's, as that of a semaphore or a key.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(aval.dtype)
        return dtype
    except (TypeError, AttributeError):
        raise UnknownError(str(aval)) from None


def unwritten(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Memory that nobody has written, as Pallas' interpreter has it: NaN, the least integer, or False."""
    if is_float(dtype):
        return np.full(shape, np.nan, dtype)
    return np.full(shape, False if dtype == np.bool_ else ml_dtypes.iinfo(dtype).min, dtype)


def rows_of(values: Sequence[Value]) -> int:
    """How many rows there are among some values."""
    return max((len(each.array if isinstance(each, Memory) else each) for each in values), default=1)


def is_uniform(values: Sequence[Array]) -> bool:
    """Whether all of some arrays have one row."""
    return all(len(each) == 1 for each in values)


def by_row(arrays: Sequence[Array]) -> Iterator[list[Array]]:
    """Plain arrays, for each row in turn."""
    for row in range(rows_of(arrays)):
        yield [each[row if len(each) > 1 else 0] for each in arrays]


def parted(keys: Array, values: Sequence[Value], run: Callable[[Any, list[Value]], Sequence[Array]]) -> Sequence[Array]:
    """Runs each part of the rows, those with one key, by itself, and puts the results together.

    Args:
      keys: (rows,).
      values: what goes in; memory is written back.
      run: from a key and the part's values to its results.
    """
    different = np.unique(keys)
    if len(different) == 1:
        return run(different[0], list(values))
    results: list[Array] = []
    for key in different:
        rows = np.flatnonzero(keys == key)
        part = [_taken(value, rows, len(keys)) for value in values]
        made = run(key, part)
        for whole, some in zip(values, part, strict=True):
            if isinstance(whole, Memory):
                if len(whole.array) != len(keys):
                    raise UnknownError("memory that is shared by rows which go different ways")
                whole.array[rows] = some.array
        if not results:
            results = [np.empty((len(keys), *each.shape[1:]), each.dtype) for each in made]
        for each, result in zip(made, results, strict=True):
            result[rows] = each
    return results


def _taken(value: Value, rows: Array, count: int) -> Value:
    if isinstance(value, Memory):
        return Memory(value.array[rows] if len(value.array) == count else np.repeat(value.array, len(rows), 0))
    return value[rows] if len(value) == count else value
