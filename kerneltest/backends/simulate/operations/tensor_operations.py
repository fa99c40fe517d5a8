"""Operations that move the elements of a tensor, reductions, scans and matrix products."""

from collections.abc import Sequence

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Mask, Operation, Rule, any_operand, dense_masks
from kerneltest.core.dtypes import Array
from kerneltest.core.precision import FLOAT32, SIMULATED


def splat(op: Operation) -> Compute:
    """Returns a scalar as a tensor."""
    axes = (1,) * len(op.types[0].shape)
    return lambda x: x.reshape(x.shape[0], *axes)


def broadcast(op: Operation) -> Compute:
    """Returns the operand: an axis along which values are the same may have length 1."""
    return lambda x: x


def expand_dims(op: Operation) -> Compute:
    """Adds an axis of length 1."""
    axis = op.attributes["axis"] + 1
    return lambda x: np.expand_dims(x, axis)


def reshape(op: Operation) -> Compute:
    """Returns the elements in row-major order in another shape."""
    before, after = op.operand_types[0].shape, op.types[0].shape
    return lambda x: _full(x, before).reshape(x.shape[0], *after)


def transpose(op: Operation) -> Compute:
    """Permutes the axes."""
    order = (0, *(axis + 1 for axis in op.attributes["order"]))
    return lambda x: x.transpose(order)


def join(op: Operation) -> Compute:
    """Joins two tensors along a new last axis."""
    return lambda a, b: np.stack(np.broadcast_arrays(a, b), axis=-1)


def split(op: Operation) -> Compute:
    """Splits a tensor into the two halves along its last axis."""
    shape = op.operand_types[0].shape

    def halves(x: Array) -> tuple[Array, Array]:
        whole = _full(x, shape)
        return whole[..., 0], whole[..., 1]

    return halves


def concatenate(op: Operation) -> Compute:
    """Concatenates two tensors along their first axis."""
    first, second = (operand.shape for operand in op.operand_types)
    return lambda a, b: np.concatenate([_full(a, first), _full(b, second)], 1)


def _full(x: Array, shape: tuple[int, ...]) -> Array:
    """Returns `x` with every axis but that of the programs at its full length."""
    return np.broadcast_to(x, (x.shape[0], *shape))


def constant(op: Operation) -> Compute:
    """Returns the attribute `value`: a number for all elements, or an array."""
    (result,), value = op.types, op.attributes["value"]
    if isinstance(value, np.ndarray):
        return _always(value.astype(result.dtype)[None])
    if result.dtype.kind == "i":
        value = np.asarray(value, np.int64)
    return _always(np.asarray(value).astype(result.dtype).reshape((1,) * (len(result.shape) + 1)))


def make_range(op: Operation) -> Compute:
    """Returns the integers from the attribute `start` up to, but not including, `end`."""
    return _always(np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)[None])


def _always(value: Array) -> Compute:
    return lambda: value


_DOT_INPUT = SIMULATED.dot_input["float32"]


def tf32(x: Array) -> Array:
    """Rounds float32 to the inputs of a TF32 product, ties away from zero, as measured on an H200."""
    dropped = FLOAT32.precision - _DOT_INPUT.precision
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(1 << (dropped - 1))) & np.uint32(-(1 << dropped) % 2**32)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def dot(op: Operation) -> Rule:
    """Multiplies two matrices and adds a third one; floats are computed in float32 or wider."""
    dtype = op.types[0].dtype
    reduced = op.attributes.get("inputPrecision", 2) == 0  # TF32, TF32x3, IEEE, ...

    def compute(a: Array, b: Array, c: Array) -> Array:
        if dtype.kind == "i":
            product = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(dtype)
            return np.asarray(product + c)
        if a.dtype == np.float32 and reduced:
            a, b = tf32(a), tf32(b)
        wide = np.float64 if dtype == np.float64 else np.float32
        product = np.matmul(a.astype(wide), b.astype(wide))
        return np.asarray((product + c.astype(wide)).astype(dtype))

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        a, b, c = dense_masks(values, masks)
        return a.any(axis=-1, keepdims=True) | b.any(axis=-2, keepdims=True) | c

    return Rule(compute, undefined)


def reduce(op: Operation) -> Rule:
    """Combines halves with halves, as a tree; the IR leaves the order open."""
    axis = op.attributes["axis"] + 1
    combine = op.regions[0].function()
    length = op.operand_types[0].shape[axis - 1]

    def compute(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(_along(x, axis, length) for x in operands)
        n = length
        while n > 1:
            n //= 2
            low = (slice(None),) * axis + (slice(0, n),)
            high = (slice(None),) * axis + (slice(n, None),)
            parts = combine(*(x[low] for x in parts), *(x[high] for x in parts))
        return tuple(x.squeeze(axis) for x in parts)

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        mask = any_operand(values, masks)
        return mask.any(axis=axis) if mask.ndim > axis else mask

    return Rule(compute, undefined)


def scan(op: Operation) -> Rule:
    """Combines each element with all before it, by doubling distances."""
    axis = op.attributes["axis"] + 1
    is_reversed = bool(op.attributes.get("reverse", False))
    combine = op.regions[0].function()
    length = op.operand_types[0].shape[axis - 1]

    def compute(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(
            np.flip(_along(x, axis, length), axis) if is_reversed else _along(x, axis, length) for x in operands
        )
        distance = 1
        while distance < length:
            head = (slice(None),) * axis + (slice(0, distance),)
            early = (slice(None),) * axis + (slice(0, length - distance),)
            late = (slice(None),) * axis + (slice(distance, None),)
            joined = combine(*(x[early] for x in parts), *(x[late] for x in parts))
            parts = tuple(np.concatenate((x[head], y), axis) for x, y in zip(parts, joined, strict=True))
            distance *= 2
        return tuple(np.flip(x, axis) for x in parts) if is_reversed else parts

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        mask = _along(any_operand(values, masks), axis, length)
        if is_reversed:
            return np.flip(np.logical_or.accumulate(np.flip(mask, axis), axis), axis)
        return np.logical_or.accumulate(mask, axis)

    return Rule(compute, undefined)


def _along(x: Array, axis: int, length: int) -> Array:
    """Returns `x` with its full length along one axis."""
    return x if x.shape[axis] == length else np.repeat(x, length, axis)
