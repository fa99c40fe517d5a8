"""Rules for gathers and scatters, with XLA's definitions, in NumPy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.trace.batched_interpreter.batched_values import ArrayFunction, UnknownError
from kerneltest.trace.jax_compat.jaxpr_types import DType, Equation, Params


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of an array that indices select.

    Attributes:
      shape: the array's.
      sizes: a window's, along each axis of the array.
      mapped: for each component of an index, the axis of the array along which it moves the window.
      batched: from each batch axis of the array to that of the indices.
      window: the axes of the array that remain in a window.
      mode: the treatment of a window that leaves the array: `clip`, `fill` or `promise`.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    mapped: tuple[int, ...]
    batched: Mapping[int, int]
    window: tuple[int, ...]
    mode: str

    def positions(self, indices: Array) -> tuple[list[Array], Array]:
        """Locates the elements of the windows.

        Args:
          indices: (rows, *batch, components).

        Returns:
          The position along each axis of the array, and a mask of the valid elements, (rows, *batch, *window) each.
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
        valid = inside if self.mode == "fill" else np.ones_like(inside)
        valid = valid.reshape(*valid.shape, *(1,) * len(self.window))
        return [np.broadcast_to(each, whole) for each in found], np.broadcast_to(valid, whole)


def _mode(params: Params) -> str:
    name = str(params["mode"]).rpartition(".")[2].lower()
    return "fill" if "fill" in name else "clip" if "clip" in name else "promise"


def _order(axes: Sequence[int], count: int) -> tuple[int, ...]:
    """The transposition of (rows, *batch, *window) that moves the window's axes to `axes`, counted after the rows."""
    batch = iter(range(1, count - len(axes) + 1))
    window = iter(range(count - len(axes) + 1, count + 1))
    return (0, *(next(window) if axis in axes else next(batch) for axis in range(count)))


def gather(equation: Equation) -> ArrayFunction:
    """Evaluates `gather`: windows of an array, by the positions of their first elements."""
    params = equation.params
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    shape, count = tuple(equation.invars[0].aval.shape), len(equation.outvars[0].aval.shape)
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows = _Windows(
        shape,
        sizes,
        tuple(numbers.start_index_map),
        dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)),
        tuple(axis for axis in range(len(shape)) if axis not in dropped),
        _mode(params),
    )
    order, fill = _order(numbers.offset_dims, count), params.get("fill_value")

    def function(array: Array, indices: Array) -> Array:
        at, inside = windows.positions(indices)
        rows = np.arange(len(array)).reshape(-1, *(1,) * count)
        if not array.size:
            lengths = (max(len(array), len(indices)), *inside.shape[1:])
            found = np.full(lengths, _fill_value(array.dtype, fill), array.dtype)
        else:
            found = array[(rows, *(each for each in at))] if len(at) else array
            if not inside.all():
                found = np.where(inside, found, np.array(_fill_value(array.dtype, fill), array.dtype))
        return found.transpose(order)

    return function


def _fill_value(dtype: DType, fill: Any) -> Any:
    """The value of the elements of a gather that are outside the array; `fill` is the primitive's own, or None."""
    if fill is not None:
        return fill
    if is_float(dtype):
        return np.nan
    if dtype == np.bool_:
        return True
    if not is_integer(dtype):
        raise UnknownError(str(dtype))
    info = np.iinfo(dtype)
    return info.min if info.min else info.max


_UPDATES: Mapping[str, Callable[[Array, tuple[Array, ...], Array], None]] = {
    "scatter-add": np.add.at,
    "scatter_add": np.add.at,
    "scatter-mul": np.multiply.at,
    "scatter_mul": np.multiply.at,
    "scatter-min": np.minimum.at,
    "scatter_min": np.minimum.at,
    "scatter-max": np.maximum.at,
    "scatter_max": np.maximum.at,
}


def _assign(array: Array, at: tuple[Array, ...], values: Array) -> None:
    array[at] = values


def scatter(equation: Equation) -> ArrayFunction:
    """Evaluates `scatter` and its variants: updates of windows of an array, in sequence."""
    params, name = equation.params, str(equation.primitive.name)
    if name != "scatter" and name not in _UPDATES:
        raise UnknownError(name)
    update = _UPDATES.get(name, _assign)
    numbers = params["dimension_numbers"]
    shape = tuple(equation.invars[0].aval.shape)
    update_shape = tuple(equation.invars[2].aval.shape)
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = tuple(axis for axis in range(len(shape)) if axis not in dropped)
    lengths = [update_shape[axis] for axis in numbers.update_window_dims]
    sizes = tuple(lengths[window.index(axis)] if axis in window else 1 for axis in range(len(shape)))
    windows = _Windows(
        shape,
        sizes,
        tuple(numbers.scatter_dims_to_operand_dims),
        dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)),
        window,
        _mode(params),
    )
    order = np.argsort(_order(numbers.update_window_dims, len(update_shape)))

    def function(array: Array, indices: Array, values: Array) -> Array:
        rows = max(len(array), len(indices), len(values))
        out = np.repeat(array, rows, 0) if len(array) < rows else array.copy()
        at, inside = windows.positions(indices)
        values = values.transpose(order)
        whole = (rows, *inside.shape[1:])
        row = np.broadcast_to(np.arange(rows).reshape(-1, *(1,) * (len(whole) - 1)), whole)
        inside = np.broadcast_to(inside, whole)
        positions = tuple(np.broadcast_to(each, whole)[inside] for each in (row, *at))
        update(out, positions, np.broadcast_to(values, whole)[inside])
        return out

    return function


INDEXING: Mapping[str, Callable[[Equation], ArrayFunction]] = {
    "gather": gather,
    "scatter": scatter,
    **dict.fromkeys(_UPDATES, scatter),
}
