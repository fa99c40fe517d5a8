"""Rules for operations that move elements, reduce them or multiply matrices, on arrays with rows."""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, DType, is_float, is_integer
from kerneltest.numerics.device_operations import UPDATES, convert, position, reduce, reduce_precision
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.machine import ArrayFunction, EquationFunction, Machine, Rule, UnknownError, by_row, is_uniform
from kerneltest.trace.primitives import PRIMITIVES, Kind, primitive_of


def _with_rows(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


def _broadcast(equation: Equation) -> ArrayFunction:
    before, shape = (tuple(v.aval.shape) for v in (equation.invars[0], equation.outvars[0]))
    axes = equation.params.get("broadcast_dimensions")
    if axes is None:  # Pallas' own primitive, which aligns the last axes
        axes = range(len(shape) - len(before), len(shape))
    own = dict(zip(axes, before, strict=True))
    lengths = [own.get(axis, 1) for axis in range(len(shape))]
    return lambda x: np.broadcast_to(x.reshape(len(x), *lengths), (len(x), *shape))


def _reshape(equation: Equation) -> ArrayFunction:
    if equation.params.get("new_sizes") is not None and equation.params.get("dimensions") is not None:
        raise UnknownError("a reshape that transposes")
    shape = tuple(equation.outvars[0].aval.shape)
    return lambda x: x.reshape(len(x), *shape)


def _slice(equation: Equation) -> ArrayFunction:
    params = equation.params
    strides = params["strides"] or [None] * len(params["start_indices"])
    at = (slice(None), *map(slice, params["start_indices"], params["limit_indices"], strides))
    return lambda x: x[at]


def _concatenate(equation: Equation) -> ArrayFunction:
    axis = equation.params["dimension"] + 1

    def function(*arrays: Array) -> Array:
        rows = max(map(len, arrays))
        return np.concatenate([np.broadcast_to(x, (rows, *x.shape[1:])) for x in arrays], axis)

    return function


def _pad(equation: Equation) -> ArrayFunction:
    shape = tuple(equation.outvars[0].aval.shape)
    config = equation.params["padding_config"]
    if any(inner for _, _, inner in config):
        raise UnknownError("padding between elements")
    lengths = equation.invars[0].aval.shape
    source = tuple(slice(max(-low, 0), n + min(high, 0)) for (low, high, _), n in zip(config, lengths, strict=True))
    target = tuple(slice(max(low, 0), n - max(high, 0)) for (low, high, _), n in zip(config, shape, strict=True))

    def function(x: Array, fill: Array) -> Array:
        x = x[(slice(None), *source)]
        if x.shape[1:] == shape:
            return x
        out = np.empty((max(len(x), len(fill)), *shape), x.dtype)
        out[...] = fill.reshape(len(fill), *(1,) * len(shape))
        out[(slice(None), *target)] = x
        return out

    return function


def _clamped_slices(starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    firsts = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def _dynamic_slice(equation: Equation) -> ArrayFunction:
    sizes, shape = equation.params["slice_sizes"], equation.invars[0].aval.shape

    def function(x: Array, *starts: Array) -> Array:
        if not is_uniform(starts):
            return np.stack([one[_clamped_slices(at, shape, sizes)] for one, *at in by_row((x, *starts))])
        return x[(slice(None), *_clamped_slices([s[0] for s in starts], shape, sizes))]

    return function


def _dynamic_update_slice(equation: Equation) -> ArrayFunction:
    shape, sizes = (v.aval.shape for v in equation.invars[:2])

    def function(x: Array, update: Array, *starts: Array) -> Array:
        rows = max(map(len, (x, update, *starts)))
        out = x.copy() if len(x) == rows else np.repeat(x, rows, 0)
        if is_uniform(starts):
            out[(slice(None), *_clamped_slices([s[0] for s in starts], shape, sizes))] = update
            return out
        for own, (part, *at) in zip(out, by_row((update, *starts)), strict=True):
            own[_clamped_slices(at, shape, sizes)] = part
        return out

    return function


def _iota(machine: Machine, equation: Equation) -> EquationFunction:
    aval, axis = equation.outvars[0].aval, equation.params["dimension"]
    result = np.broadcast_to(_along(axis, aval.shape).astype(machine.rules.dtype_of(aval)), aval.shape)[None]
    return lambda operands: (result,)


def _bitcast(machine: Machine, equation: Equation) -> EquationFunction:
    before, dtype = (np.dtype(v.aval.dtype) for v in (equation.invars[0], equation.outvars[0]))
    if dtype.itemsize != before.itemsize or np.bool_ in (dtype, before):
        raise UnknownError("a bitcast that changes the number of elements")
    after = machine.rules.promoted(dtype)
    return lambda operands: (np.ascontiguousarray(convert(operands[0], before)).view(dtype).astype(after, copy=False),)


def _numpy_function(equation: Equation) -> ArrayFunction:
    function = primitive_of(equation).numpy
    if function is None:
        raise UnknownError(equation.primitive.name)
    return function


def _reduction(equation: Equation) -> ArrayFunction:
    function, axes, shape = _numpy_function(equation), equation.params["axes"], equation.invars[0].aval.shape
    if primitive_of(equation).extreme and not all(shape[axis] for axis in axes):
        raise UnknownError("the maximum or minimum of an empty array")
    along, dtype = _with_rows(axes), equation.params.get("index_dtype")
    if dtype is not None:
        return lambda x: np.asarray(position(function, x, along[0])).astype(dtype)
    return lambda x: reduce(function, x, along)


def _cumulative(equation: Equation) -> ArrayFunction:
    function, axis = _numpy_function(equation), equation.params["axis"] + 1
    if equation.params["reverse"]:
        return lambda x: np.flip(reduce(function, np.flip(x, axis), axis), axis)
    return lambda x: reduce(function, x, axis)


def _dot(machine: Machine, equation: Equation) -> EquationFunction:
    (contracted, batched) = equation.params["dimension_numbers"]
    out = equation.outvars[0].aval
    dtype, shape = machine.rules.dtype_of(out), tuple(out.shape)

    def matrices(x: Array, axes: Sequence[int], batch: Sequence[int], *, last: bool) -> Array:
        free = [axis for axis in range(x.ndim - 1) if axis not in (*axes, *batch)]
        moved = x.transpose(0, *_with_rows((*batch, *free, *axes) if last else (*batch, *axes, *free)))
        lengths = [x.shape[1 + axis] for axis in batch]
        size, rest = (math.prod(x.shape[1 + axis] for axis in each) for each in (axes, free))
        return moved.reshape(len(x), *lengths, *((rest, size) if last else (size, rest)))

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        x, y = operands
        a = matrices(x, contracted[0], batched[0], last=True)
        b = matrices(y, contracted[1], batched[1], last=False)
        product = machine.rules.multiply(a, b, dtype)
        return (product.reshape(len(product), *shape).astype(dtype, copy=False),)

    return evaluate


# Rules for gathers and scatters, with XLA's definitions, in NumPy.


class _Windows:
    """The windows of an array, the first operand of a gather or scatter, that indices select."""

    def __init__(
        self,
        equation: Equation,
        sizes: Sequence[int],  # a window's, along each axis of the array
        mapped: Sequence[int],  # for each component of an index, the axis of the array along which it moves the window
        batched: Mapping[int, int],  # from each batch axis of the array to that of the indices
        dropped: Sequence[int],  # the axes of the array that do not remain in a window
    ) -> None:
        self._shape, self._sizes, self._mapped, self._batched = equation.invars[0].aval.shape, sizes, mapped, batched
        self._window = [axis for axis in range(len(self._shape)) if axis not in (*dropped, *batched)]
        self._fills = "fill" in str(equation.params["mode"]).lower()

    def positions(self, indices: Array) -> tuple[list[Array], Array]:
        """The position of each element along each axis of the array, and a mask of those that are not left out.

        Indices are (rows, *batch, components), and results (rows, *batch, *window) each.
        """
        indices = indices.astype(np.int64)
        batch, window = indices.shape[1:-1], tuple(self._sizes[axis] for axis in self._window)
        whole = (len(indices), *batch, *window)
        inside = np.ones((len(indices), *batch), bool)
        starts = {}
        for component, axis in enumerate(self._mapped):
            first, last = indices[..., component], self._shape[axis] - self._sizes[axis]
            inside &= (first >= 0) & (first <= last)
            starts[axis] = _append_axes(np.clip(first, 0, last), len(window))
        found = []
        for axis in range(len(self._shape)):
            at = starts.get(axis, np.zeros((), np.int64))
            if axis in self._batched:
                at = at + _along(1 + self._batched[axis], whole)
            if axis in self._window:
                at = at + _along(1 + len(batch) + self._window.index(axis), whole)
            found.append(np.broadcast_to(at, whole))
        valid = inside if self._fills else np.ones_like(inside)
        return found, np.broadcast_to(_append_axes(valid, len(window)), whole)


def _append_axes(x: Array, count: int) -> Array:
    return x.reshape(*x.shape, *(1,) * count)


def _along(axis: int, shape: Sequence[int]) -> Array:
    return np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _order(axes: Sequence[int], count: int) -> tuple[int, ...]:
    # The transposition of (rows, *batch, *window) that moves the window's axes to `axes`, counted after the rows.
    batch = iter(range(1, count - len(axes) + 1))
    window = iter(range(count - len(axes) + 1, count + 1))
    return (0, *(next(window) if axis in axes else next(batch) for axis in range(count)))


def _gather(equation: Equation) -> ArrayFunction:
    params, count = equation.params, len(equation.outvars[0].aval.shape)
    numbers = params["dimension_numbers"]
    batched = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    windows = _Windows(equation, params["slice_sizes"], numbers.start_index_map, batched, numbers.collapsed_slice_dims)
    order, fill = _order(numbers.offset_dims, count), params.get("fill_value")

    def function(array: Array, indices: Array) -> Array:
        at, inside = windows.positions(indices)
        rows = np.arange(len(array)).reshape(-1, *(1,) * count)
        if not array.size:
            lengths = (max(len(array), len(indices)), *inside.shape[1:])
            found = np.full(lengths, _fill_value(array.dtype, fill), array.dtype)
        else:
            found = array[(rows, *at)] if len(at) else array
            if not inside.all():
                found = np.where(inside, found, np.array(_fill_value(array.dtype, fill), array.dtype))
        return found.transpose(order)

    return function


def _fill_value(dtype: DType, fill: Any) -> Any:
    # The value of the elements of a gather that are outside the array; `fill` is the primitive's own, or None.
    if fill is not None or is_float(dtype):
        return np.nan if fill is None else fill
    if dtype == np.bool_:
        return True
    if not is_integer(dtype):
        raise UnknownError(str(dtype))
    return np.iinfo(dtype).min or np.iinfo(dtype).max


def _scatter(equation: Equation) -> ArrayFunction:
    params, name = equation.params, str(equation.primitive.name)
    update: Any = operator.setitem if name == "scatter" else UPDATES[re.split("[-_]", name)[1]].at
    numbers = params["dimension_numbers"]
    update_shape = tuple(equation.invars[2].aval.shape)
    batched = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    lengths = iter(update_shape[axis] for axis in numbers.update_window_dims)
    dropped = (*numbers.inserted_window_dims, *batched)
    sizes = [1 if axis in dropped else next(lengths) for axis in range(len(equation.invars[0].aval.shape))]
    windows = _Windows(equation, sizes, numbers.scatter_dims_to_operand_dims, batched, dropped)
    order = np.argsort(_order(numbers.update_window_dims, len(update_shape)))

    def function(array: Array, indices: Array, values: Array) -> Array:
        rows = max(len(array), len(indices), len(values))
        out = np.repeat(array, rows, 0) if len(array) < rows else array.copy()
        at, inside = windows.positions(indices)
        values = values.transpose(order)
        whole = (rows, *inside.shape[1:])
        row = np.broadcast_to(np.arange(rows).reshape(-1, *(1,) * (len(whole) - 1)), whole)
        inside = np.broadcast_to(inside, whole)
        positions = tuple(np.broadcast_to(along, whole)[inside] for along in (row, *at))
        update(out, positions, np.broadcast_to(values, whole)[inside])
        return out

    return function


ARRAY_RULES: Mapping[str, Callable[[Equation], ArrayFunction]] = {
    **dict.fromkeys(("broadcast_in_dim", "broadcast_to"), _broadcast),
    **dict.fromkeys(("reshape", "squeeze"), _reshape),
    "transpose": lambda equation: lambda x: x.transpose(0, *_with_rows(equation.params["permutation"])),
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "rev": lambda equation: lambda x: np.flip(x, _with_rows(equation.params["dimensions"])),
    "tile": lambda equation: lambda x: np.tile(x, (1, *equation.params["reps"])),
    "gather": _gather,
    "scatter": _scatter,
    "reduce_precision": lambda equation: lambda x: reduce_precision(x, **equation.params),
    **{f"scatter{dash}{name}": _scatter for dash in "-_" for name in ("add", "mul", "min", "max")},
    **{p.name: _reduction for p in PRIMITIVES.values() if p.kind is Kind.REDUCTION},
    **{p.name: _cumulative for p in PRIMITIVES.values() if p.kind is Kind.SCAN},
}

# Those whose result depends on the dtypes in which values are computed.
TYPED_RULES: Mapping[str, Rule] = {"iota": _iota, "bitcast_convert_type": _bitcast, "dot_general": _dot}
