"""Operations that move elements, sum them up or multiply matrices, on arrays with rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.trace.batched_interpreter.values import UnknownError, by_row, dtype_of, is_uniform

Function = Callable[..., Any]
_Params = Mapping[str, Any]


def _after(axes: Sequence[int]) -> tuple[int, ...]:
    """Axes of an array with rows."""
    return tuple(axis + 1 for axis in axes)


def _broadcast(equation: Any) -> Function:
    params, shape = equation.params, tuple(equation.outvars[0].aval.shape)
    kept = params.get("broadcast_dimensions")
    if kept is None:  # Pallas' own, which aligns the last axes
        return lambda x: np.broadcast_to(_ranked(x, len(shape)), (len(x), *shape))

    def function(x: Array) -> Array:
        lengths = [1] * len(shape)
        for axis, length in zip(kept, x.shape[1:], strict=True):
            lengths[axis] = length
        return np.broadcast_to(x.reshape(len(x), *lengths), (len(x), *shape))

    return function


def _ranked(x: Array, ndim: int) -> Array:
    return x.reshape(len(x), *(1,) * (ndim + 1 - x.ndim), *x.shape[1:])


def _reshaped(equation: Any) -> Function:
    if equation.params.get("new_sizes") is not None and equation.params.get("dimensions") is not None:
        raise UnknownError("a reshape that transposes")
    shape = tuple(equation.outvars[0].aval.shape)
    return lambda x: x.reshape(len(x), *shape)


def _transposed(equation: Any) -> Function:
    order = (0, *_after(equation.params["permutation"]))
    return lambda x: x.transpose(order)


def _sliced(equation: Any) -> Function:
    params = equation.params
    strides = params["strides"] or [None] * len(params["start_indices"])
    at = (slice(None), *map(slice, params["start_indices"], params["limit_indices"], strides))
    return lambda x: x[at]


def _concatenated(equation: Any) -> Function:
    axis = equation.params["dimension"] + 1

    def function(*arrays: Array) -> Array:
        rows = max(map(len, arrays))
        return np.concatenate([np.broadcast_to(x, (rows, *x.shape[1:])) for x in arrays], axis)

    return function


def _padded(equation: Any) -> Function:
    shape = tuple(equation.outvars[0].aval.shape)
    config = equation.params["padding_config"]
    if any(inner for _, _, inner in config):
        raise UnknownError("pad between elements")
    lengths = equation.invars[0].aval.shape
    kept = tuple(slice(max(-low, 0), n + min(high, 0)) for (low, high, _), n in zip(config, lengths, strict=True))
    inside = tuple(slice(max(low, 0), n - max(high, 0)) for (low, high, _), n in zip(config, shape, strict=True))

    def function(x: Array, fill: Array) -> Array:
        x = x[(slice(None), *kept)]
        if x.shape[1:] == shape:
            return x
        out = np.empty((max(len(x), len(fill)), *shape), x.dtype)
        out[...] = fill.reshape(len(fill), *(1,) * len(shape))
        out[(slice(None), *inside)] = x
        return out

    return function


def _region(starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """Where a slice of some sizes lies, moved to where it fits."""
    firsts = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def _dynamic_slice(equation: Any) -> Function:
    sizes, shape = equation.params["slice_sizes"], equation.invars[0].aval.shape

    def function(x: Array, *starts: Array) -> Array:
        if not is_uniform(starts):
            return np.stack([one[_region(at, shape, sizes)] for one, *at in by_row((x, *starts))])
        return x[(slice(None), *_region([s[0] for s in starts], shape, sizes))]

    return function


def _dynamic_update_slice(equation: Any) -> Function:
    shape, sizes = (v.aval.shape for v in equation.invars[:2])

    def one(x: Array, update: Array, *starts: Array) -> Array:
        out = x.copy()
        out[_region(starts, shape, sizes)] = update
        return out

    def function(x: Array, update: Array, *starts: Array) -> Array:
        if not is_uniform(starts):
            return np.stack([one(*row) for row in by_row((x, update, *starts))])
        out = x.copy() if len(x) >= len(update) else np.repeat(x, len(update), 0)
        out[(slice(None), *_region([s[0] for s in starts], shape, sizes))] = update
        return out

    return function


def _iota(equation: Any) -> Function:
    params, shape = equation.params, tuple(equation.outvars[0].aval.shape)
    axis = params["dimension"]
    along = np.arange(shape[axis]).astype(params["dtype"]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    made = np.broadcast_to(along, shape)[None]
    return lambda: made


def _reversed(equation: Any) -> Function:
    axes = _after(equation.params["dimensions"])
    return lambda x: np.flip(x, axes)


def _repeated(equation: Any) -> Function:
    params = equation.params
    return lambda x: np.repeat(x, params["repeats"], params["axis"] + 1)


def _tiled(equation: Any) -> Function:
    params = equation.params
    times = params.get("reps") or params.get("repeats")
    if not isinstance(times, tuple):
        raise UnknownError("tile")
    return lambda x: np.tile(x, (1, *times))


def _bits(equation: Any) -> Function:
    dtype = np.dtype(equation.params["new_dtype"])
    if dtype.itemsize != dtype_of(equation.invars[0].aval).itemsize or np.bool_ in (
        dtype,
        equation.invars[0].aval.dtype,
    ):
        raise UnknownError("bits of another number of elements")
    return lambda x: np.ascontiguousarray(x).view(dtype)


def _in_wider(function: Callable[..., Any], x: Array, **options: Any) -> Array:
    """A sum or a product, in float32 for narrower floats."""
    narrow = is_float(x.dtype) and x.dtype.itemsize < 4
    return np.asarray(function(x.astype(np.float32) if narrow else x, **options)).astype(x.dtype)


def _reduction(reduce: Callable[..., Any]) -> Callable[[Any], Function]:
    def make(equation: Any) -> Function:
        axes = _after(equation.params["axes"])
        return lambda x: reduce(x, axes)

    return make


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    return _in_wider(np.sum, x, axis=axes, **({} if is_float(x.dtype) else {"dtype": x.dtype}))


def _product(x: Array, axes: tuple[int, ...]) -> Array:
    return _in_wider(np.prod, x, axis=axes, **({} if is_float(x.dtype) else {"dtype": x.dtype}))


def _extreme(reduce: Callable[..., Any]) -> Callable[[Array, tuple[int, ...]], Array]:
    def reduced(x: Array, axes: tuple[int, ...]) -> Array:
        if not all(x.shape[axis] for axis in axes):
            raise UnknownError("the extreme of nothing")
        return _in_wider(reduce, x, axis=axes)

    return reduced


def _position(find: Callable[..., Any]) -> Callable[[Any], Function]:
    def make(equation: Any) -> Function:
        (axis,) = equation.params["axes"]
        dtype = np.dtype(equation.params["index_dtype"])

        def function(x: Array) -> Array:
            values = x.astype(np.float32) if is_float(x.dtype) and x.dtype.itemsize < 4 else x
            return np.asarray(find(values, axis=axis + 1)).astype(dtype)

        return function

    return make


def _running(accumulate: Callable[..., Any]) -> Callable[[Any], Function]:
    def make(equation: Any) -> Function:
        axis, back = equation.params["axis"] + 1, equation.params["reverse"]

        def function(x: Array) -> Array:
            turned = np.flip(x, axis) if back else x
            options = {} if is_float(x.dtype) else {"dtype": x.dtype}
            result = _in_wider(accumulate, turned, axis=axis, **options)
            return np.flip(result, axis) if back else result

        return function

    return make


def _dot(equation: Any) -> Function:
    (contracted, batched) = equation.params["dimension_numbers"]
    out = equation.outvars[0].aval
    dtype = dtype_of(out)
    first, second = (dtype_of(v.aval) for v in equation.invars)
    computed = _computed_in(first, second, dtype)
    shape = tuple(out.shape)

    def matrices(x: Array, axes: Sequence[int], batch: Sequence[int], *, last: bool) -> Array:
        free = [axis for axis in range(x.ndim - 1) if axis not in (*axes, *batch)]
        order = (*batch, *free, *axes) if last else (*batch, *axes, *free)
        moved = x.transpose(0, *_after(order))
        lengths = [x.shape[1 + axis] for axis in batch]
        size = int(np.prod([x.shape[1 + axis] for axis in axes], dtype=np.int64))
        rest = int(np.prod([x.shape[1 + axis] for axis in free], dtype=np.int64))
        ends = (rest, size) if last else (size, rest)
        return moved.reshape(len(x), *lengths, *ends).astype(computed, copy=False)

    def function(x: Array, y: Array) -> Array:
        a = matrices(x, contracted[0], batched[0], last=True)
        b = matrices(y, contracted[1], batched[1], last=False)
        product = a @ b
        if computed == np.float64 and dtype.kind in "iu":
            product = product.astype(np.int64)
        return product.reshape(len(product), *shape).astype(dtype, copy=False)

    return function


def _computed_in(first: np.dtype[Any], second: np.dtype[Any], result: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which a product of matrices is computed: exact for narrow integers, float32 for narrow floats."""
    if is_float(result):
        return np.dtype(np.float64 if result.itemsize == 8 else np.float32)
    narrow = all(is_integer(each) and each.itemsize <= 2 for each in (first, second))
    return np.dtype(np.float64 if narrow and result.itemsize >= 4 else result)


SHAPES: Mapping[str, Callable[[Any], Function]] = {
    "broadcast_in_dim": _broadcast,
    "broadcast_to": _broadcast,
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "expand_dims": _reshaped,
    "transpose": _transposed,
    "slice": _sliced,
    "concatenate": _concatenated,
    "pad": _padded,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "iota": _iota,
    "rev": _reversed,
    "repeat": _repeated,
    "tile": _tiled,
    "bitcast_convert_type": _bits,
    "dot_general": _dot,
    "reduce_sum": _reduction(_sum),
    "reduce_prod": _reduction(_product),
    "reduce_max": _reduction(_extreme(np.max)),
    "reduce_min": _reduction(_extreme(np.min)),
    "reduce_and": _reduction(lambda x, axes: np.bitwise_and.reduce(x, axes)),
    "reduce_or": _reduction(lambda x, axes: np.bitwise_or.reduce(x, axes)),
    "argmax": _position(np.argmax),
    "argmin": _position(np.argmin),
    "cumsum": _running(np.cumsum),
    "cumprod": _running(np.cumprod),
    "cummax": _running(np.maximum.accumulate),
    "cummin": _running(np.minimum.accumulate),
}
