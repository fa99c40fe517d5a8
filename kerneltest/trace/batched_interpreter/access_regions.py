"""The region of memory that an access covers: slices by their first elements, or positions along each axis."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerneltest.trace.batched_interpreter.batched_values import UnknownError, Value
from kerneltest.trace.jax_compat.jaxpr_types import AbstractValue


class AccessRegion:
    """The region that an access covers.

    Attributes:
      starts: for slices, the first position along each axis, (rows,) or an int; None for an access by arrays.
      lengths: the lengths of the slices.
      kept: the lengths of the axes that remain, which are those not indexed by a scalar.
      arrays: for an access by arrays, the positions along each axis, (rows, ...); None for slices.
    """

    __slots__ = ("arrays", "kept", "lengths", "starts")

    def __init__(self, starts: Any, lengths: tuple[int, ...], kept: tuple[int, ...], arrays: Any) -> None:
        self.starts, self.lengths, self.kept, self.arrays = starts, lengths, kept, arrays


# From an access's operands to its region.
Locate = Callable[[Sequence[Value]], AccessRegion]


def locators(transforms: Any, shape: Sequence[int]) -> list[Locate]:
    """Returns the functions to the regions that lead from a memory to what a reference of it refers to, in order.

    Args:
      transforms: the reference's, whose leaves are `OperandLeaf`s. `ref.at[slot][...]` has two.
      shape: the memory's.

    Raises:
      UnknownError: the access is of an unsupported kind.
    """
    steps = []
    for transform in transforms or ():
        steps.append(locator([transform], shape))
        shape = tuple(transform.get_indexer_shape())
    return steps or [locator((), shape)]


def locator(transforms: Any, shape: Sequence[int]) -> Locate:
    """Returns the function from an access's operands to its region.

    Args:
      transforms: the reference's, whose leaves are `OperandLeaf`s.
      shape: the memory's.

    Raises:
      UnknownError: the access is of an unsupported kind.
    """
    if not transforms:
        whole = AccessRegion([0] * len(shape), tuple(shape), tuple(shape), None)
        return lambda operands: whole
    if len(transforms) != 1 or not hasattr(transforms[0], "indices"):
        raise UnknownError("a reference that is reshaped, cast or indexed twice")
    indices = transforms[0].indices
    slices = [hasattr(each, "size") and hasattr(each, "start") for each in indices]
    flat = all(sliced or not _is_array(each) for each, sliced in zip(indices, slices, strict=True))
    if flat:
        if any(
            sliced and (each.stride != 1 or not isinstance(each.size, int))
            for each, sliced in zip(indices, slices, strict=True)
        ):
            raise UnknownError("a slice with a stride or of unknown length")
        lengths = tuple(each.size if sliced else 1 for each, sliced in zip(indices, slices, strict=True))
        kept = tuple(length for length, sliced in zip(lengths, slices, strict=True) if sliced)
        firsts = [each.start if sliced else each for each, sliced in zip(indices, slices, strict=True)]
        return lambda operands: AccessRegion([_read(each, operands) for each in firsts], lengths, kept, None)
    if any(slices):
        return _mixed_locator(transforms[0], slices)
    return lambda operands: AccessRegion(None, (), (), [_read(each, operands) for each in indices])


def _mixed_locator(indexer: Any, slices: Sequence[bool]) -> Locate:
    """Turns arrays of positions along adjacent axes, and slices along the others, into positions along all axes."""
    indexed = [axis for axis, sliced in enumerate(slices) if not sliced]
    first, behind = indexed[0], len(slices) - 1 - indexed[-1]
    if indexed[-1] - first + 1 != len(indexed) or not all(isinstance(n, int) for n in indexer.int_indexer_shape):
        raise UnknownError("arrays of positions along axes that are not adjacent")
    ndim = first + len(indexer.int_indexer_shape) + behind
    ranges = {}
    for axis, (index, sliced) in enumerate(zip(indexer.indices, slices, strict=True)):
        if sliced:
            if not isinstance(index.size, int):
                raise UnknownError("a slice of unknown length")
            at = axis if axis < first else axis - len(slices) + ndim
            shape = [1, *(index.size if each == at else 1 for each in range(ndim))]
            ranges[axis] = np.arange(index.size).reshape(shape) * index.stride

    def locate(operands: Sequence[Value]) -> AccessRegion:
        arrays = []
        for axis, index in enumerate(indexer.indices):
            if axis in ranges:
                start = np.asarray(_read(index.start, operands)).astype(np.int64).reshape(-1, *(1,) * ndim)
                arrays.append(start + ranges[axis])
            else:
                positions = np.asarray(_read(index, operands))
                positions = positions if positions.ndim else positions[None]
                missing = len(indexer.int_indexer_shape) + 1 - positions.ndim
                lengths = (*(1,) * (first + missing), *positions.shape[1:], *(1,) * behind)
                arrays.append(positions.reshape(len(positions), *lengths))
        return AccessRegion(None, (), (), arrays)

    return locate


class OperandLeaf:
    """A leaf of an access's index: the number of an operand, and the shape of its value."""

    __slots__ = ("ndim", "number", "shape")

    def __init__(self, number: int, aval: AbstractValue) -> None:
        self.number, self.shape = number, tuple(getattr(aval, "shape", ()))
        self.ndim = len(self.shape)


def _is_array(index: object) -> bool:
    return bool(getattr(index, "shape", ()))


def _read(index: Any, operands: Sequence[Value]) -> Any:
    return operands[index.number] if isinstance(index, OperandLeaf) else index
