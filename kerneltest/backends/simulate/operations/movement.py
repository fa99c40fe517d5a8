"""Operations that move elements and compute nothing, and constants: from an operation to its computation."""

from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Compute, Operation
from kerneltest.core.dtypes import Array


def splat(op: Operation) -> Compute:
    """A scalar to a tensor."""
    axes = (1,) * len(op.types[0].shape)
    return lambda x: x.reshape(x.shape[0], *axes)


def broadcast(op: Operation) -> Compute:
    """Nothing to do: an axis along which values are the same may have length 1."""
    return lambda x: x


def expand_dims(op: Operation) -> Compute:
    """One more axis, of length 1."""
    axis = op.attributes["axis"] + 1
    return lambda x: np.expand_dims(x, axis)


def reshape(op: Operation) -> Compute:
    """The same elements in row-major order in another shape."""
    before, after = op.operand_types[0].shape, op.types[0].shape
    return lambda x: _full(x, before).reshape(x.shape[0], *after)


def transpose(op: Operation) -> Compute:
    """The axes in another order."""
    order = (0, *(axis + 1 for axis in op.attributes["order"]))
    return lambda x: x.transpose(order)


def join(op: Operation) -> Compute:
    """Two tensors along a new last axis."""
    return lambda a, b: np.stack(np.broadcast_arrays(a, b), axis=-1)


def split(op: Operation) -> Compute:
    """The two halves along the last axis."""
    shape = op.operand_types[0].shape

    def halves(x: Array) -> tuple[Array, Array]:
        whole = _full(x, shape)
        return whole[..., 0], whole[..., 1]

    return halves


def concatenate(op: Operation) -> Compute:
    """Two tensors along their first axis."""
    first, second = (operand.shape for operand in op.operand_types)
    return lambda a, b: np.concatenate([_full(a, first), _full(b, second)], 1)


def _full(x: Array, shape: tuple[int, ...]) -> Array:
    """Every axis but the programs' at its full length."""
    return np.broadcast_to(x, (x.shape[0], *shape))


def constant(op: Operation) -> Compute:
    """The attribute `value`: a number for all elements, or an array."""
    (result,), value = op.types, op.attributes["value"]
    if isinstance(value, np.ndarray):
        return _always(value.astype(result.dtype)[None])
    if result.dtype.kind == "i":
        value = np.asarray(value, np.int64)
    return _always(np.asarray(value).astype(result.dtype).reshape((1,) * (len(result.shape) + 1)))


def make_range(op: Operation) -> Compute:
    """The integers from the attribute `start` to `end`."""
    return _always(np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)[None])


def _always(value: Any) -> Compute:
    return lambda: value
