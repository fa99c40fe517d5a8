"""Gathers and scatters, as XLA defines them, in NumPy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.trace.batched_interpreter.values import UnknownError

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Windows:
    """Parts of an array that some indices stand for.

    Attributes:
      shape: of the array.
      sizes: of a window along each axis of the array.
      mapped: the axes along which each index moves a window.
      batched: for each batch axis of the array, that of the indices.
      window: the axes of the array along which a window has a length that counts.
      mode: what becomes of a window that leaves the array: `clip`, `fill` or `promise`.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    mapped: tuple[int, ...]
    batched: Mapping[int, int]
    window: tuple[int, ...]
    mode: str

    def positions(self, indices: Array) -> tuple[list[Array], Array]:
        """Where each element lies along each axis of the array, (rows, *batch, *window), and whether it counts.

        Args:
          indices: (rows, *batch, components).
        """
        indices = indices.astype(np.int64)
        batch = indices.shape[1:-1]
        count = len(batch) + len(self.window)
        inside = np.ones((len(indices), *batch), bool)
        starts = {}
        for component, axis in enumerate(self.mapped):
            first, last = indices[..., component], self.shape[axis] - self.sizes[axis]
            inside &= (first >= 0) & (first <= last)
            starts[axis] = np.clip(first, 0, last)
        found = []
        for axis in range(len(self.shape)):
            at = np.zeros((1,) * (count + 1), np.int64)
            if axis in starts:
                at = at + starts[axis].reshape(*starts[axis].shape, *(1,) * len(self.window))
            if axis in self.batched:
                along = 1 + self.batched[axis]
                lengths = [batch[along - 1] if each == along else 1 for each in range(count + 1)]
                at = at + np.arange(batch[along - 1]).reshape(lengths)
            if axis in self.window:
                along = 1 + len(batch) + self.window.index(axis)
                lengths = [self.sizes[axis] if each == along else 1 for each in range(count + 1)]
                at = at + np.arange(self.sizes[axis]).reshape(lengths)
            found.append(at)
        whole = (len(indices), *batch, *(self.sizes[axis] for axis in self.window))
        counts = inside if self.mode == "fill" else np.ones_like(inside)
        counts = counts.reshape(*counts.shape, *(1,) * len(self.window))
        return [np.broadcast_to(each, whole) for each in found], np.broadcast_to(counts, whole)


def _mode(params: Mapping[str, Any]) -> str:
    name = str(params["mode"]).rpartition(".")[2].lower()
    return "fill" if "fill" in name else "clip" if "clip" in name else "promise"


def _order(axes: Sequence[int], count: int) -> tuple[int, ...]:
    """How (rows, *batch, *window) is put so that the window's axes are some of those after the rows."""
    batch = iter(range(1, count - len(axes) + 1))
    window = iter(range(count - len(axes) + 1, count + 1))
    return (0, *(next(window) if axis in axes else next(batch) for axis in range(count)))


def gather(equation: Any) -> Function:
    """`gather`: windows of an array, by their first elements."""
    params = equation.params
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    shape, count = tuple(equation.invars[0].aval.shape), len(equation.outvars[0].aval.shape)
    held = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows = _Windows(
        shape,
        sizes,
        tuple(numbers.start_index_map),
        dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
        tuple(axis for axis in range(len(shape)) if axis not in held),
        _mode(params),
    )
    order, filling = _order(numbers.offset_dims, count), params.get("fill_value")

    def function(array: Array, indices: Array) -> Array:
        at, inside = windows.positions(indices)
        rows = np.arange(len(array)).reshape(-1, *(1,) * count)
        if not array.size:
            lengths = (max(len(array), len(indices)), *inside.shape[1:])
            found = np.full(lengths, _missing(array.dtype, filling), array.dtype)
        else:
            found = array[(rows, *(each for each in at))] if len(at) else array
            if not inside.all():
                found = np.where(inside, found, np.array(_missing(array.dtype, filling), array.dtype))
        return found.transpose(order)

    return function


def _missing(dtype: np.dtype[Any], filling: Any) -> Any:
    """What a gather gives where there is nothing."""
    if filling is not None:
        return filling
    if is_float(dtype):
        return np.nan
    if dtype == np.bool_:
        return True
    if not is_integer(dtype):
        raise UnknownError(str(dtype))
    info = np.iinfo(dtype)
    return info.min if info.min else info.max


_UPDATES: Mapping[str, Callable[[Array, Any, Array], None]] = {
    "scatter-add": np.add.at,
    "scatter_add": np.add.at,
    "scatter-mul": np.multiply.at,
    "scatter_mul": np.multiply.at,
    "scatter-min": np.minimum.at,
    "scatter_min": np.minimum.at,
    "scatter-max": np.maximum.at,
    "scatter_max": np.maximum.at,
}


def _assigned(array: Array, at: Any, values: Array) -> None:
    array[at] = values


def scatter(equation: Any) -> Function:
    """`scatter` and its kin: updates of windows of an array, one after another."""
    params, name = equation.params, str(equation.primitive.name)
    if name != "scatter" and name not in _UPDATES:
        raise UnknownError(name)
    update = _UPDATES.get(name, _assigned)
    numbers = params["dimension_numbers"]
    shape = tuple(equation.invars[0].aval.shape)
    given = tuple(equation.invars[2].aval.shape)
    held = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = tuple(axis for axis in range(len(shape)) if axis not in held)
    lengths = [given[axis] for axis in numbers.update_window_dims]
    sizes = tuple(lengths[window.index(axis)] if axis in window else 1 for axis in range(len(shape)))
    windows = _Windows(
        shape,
        sizes,
        tuple(numbers.scatter_dims_to_operand_dims),
        dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
        window,
        _mode(params),
    )
    order = np.argsort(_order(numbers.update_window_dims, len(given)))

    def function(array: Array, indices: Array, values: Array) -> Array:
        rows = max(len(array), len(indices), len(values))
        out = np.repeat(array, rows, 0) if len(array) < rows else array.copy()
        at, inside = windows.positions(indices)
        values = values.transpose(order)
        whole = (rows, *inside.shape[1:])
        numbered = np.broadcast_to(np.arange(rows).reshape(-1, *(1,) * (len(whole) - 1)), whole)
        inside = np.broadcast_to(inside, whole)
        places = tuple(np.broadcast_to(each, whole)[inside] for each in (numbered, *at))
        update(out, places, np.broadcast_to(values, whole)[inside])
        return out

    return function


INDEXING: Mapping[str, Callable[[Any], Function]] = {
    "gather": gather,
    "scatter": scatter,
    **dict.fromkeys(_UPDATES, scatter),
}
