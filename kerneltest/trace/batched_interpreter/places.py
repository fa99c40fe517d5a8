"""Where an access goes: the first elements of slices, or positions along each axis."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerneltest.trace.batched_interpreter.values import UnknownError


class Place:
    """Where in some memory an access goes.

    Attributes:
      starts: of each axis, (rows,), where it is sliced; None where it is indexed by arrays.
      lengths: of the slices.
      kept: the lengths of those axes of which not only one element is taken.
      arrays: positions along each axis, (rows, ...), where it is indexed by arrays.
    """

    __slots__ = ("arrays", "kept", "lengths", "starts")

    def __init__(self, starts: Any, lengths: tuple[int, ...], kept: tuple[int, ...], arrays: Any) -> None:
        self.starts, self.lengths, self.kept, self.arrays = starts, lengths, kept, arrays


Locate = Callable[[Sequence[Any]], Place]


def locator(transforms: Any, shape: Sequence[int]) -> Locate:
    """From an access's operands, numbered in `transforms`, to its place.

    Args:
      transforms: of the reference, whose leaves are the numbers of operands.
      shape: of the memory.
    """
    if not transforms:
        whole = Place([0] * len(shape), tuple(shape), tuple(shape), None)
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
            raise UnknownError("a slice with a stride, or of a length that is not known")
        lengths = tuple(each.size if sliced else 1 for each, sliced in zip(indices, slices, strict=True))
        kept = tuple(length for length, sliced in zip(lengths, slices, strict=True) if sliced)
        firsts = [each.start if sliced else each for each, sliced in zip(indices, slices, strict=True)]
        return lambda operands: Place([_read(each, operands) for each in firsts], lengths, kept, None)
    if any(slices):
        return _among_slices(transforms[0], slices)
    return lambda operands: Place(None, (), (), [_read(each, operands) for each in indices])


def _among_slices(indexer: Any, slices: Sequence[bool]) -> Locate:
    """Positions along some axes, which lie side by side, and slices along the others, as positions along all."""
    indexed = [axis for axis, sliced in enumerate(slices) if not sliced]
    first, behind = indexed[0], len(slices) - 1 - indexed[-1]
    if indexed[-1] - first + 1 != len(indexed) or not all(isinstance(n, int) for n in indexer.int_indexer_shape):
        raise UnknownError("arrays of positions apart from each other")
    ndim = first + len(indexer.int_indexer_shape) + behind
    ranges = {}
    for axis, (index, sliced) in enumerate(zip(indexer.indices, slices, strict=True)):
        if sliced:
            if not isinstance(index.size, int):
                raise UnknownError("a slice of a length that is not known")
            at = axis if axis < first else axis - len(slices) + ndim
            shape = [1, *(index.size if each == at else 1 for each in range(ndim))]
            ranges[axis] = np.arange(index.size).reshape(shape) * index.stride

    def locate(operands: Sequence[Any]) -> Place:
        arrays = []
        for axis, index in enumerate(indexer.indices):
            if axis in ranges:
                start = np.asarray(_read(index.start, operands)).astype(np.int64).reshape(-1, *(1,) * ndim)
                arrays.append(start + ranges[axis])
            else:
                given = np.asarray(_read(index, operands))
                given = given if given.ndim else given[None]
                missing = len(indexer.int_indexer_shape) + 1 - given.ndim
                lengths = (*(1,) * (first + missing), *given.shape[1:], *(1,) * behind)
                arrays.append(given.reshape(len(given), *lengths))
        return Place(None, (), (), arrays)

    return locate


class Operand:
    """A leaf of an access: the number of an operand, and the shape of its value."""

    __slots__ = ("ndim", "number", "shape")

    def __init__(self, number: int, aval: Any) -> None:
        self.number, self.shape = number, tuple(getattr(aval, "shape", ()))
        self.ndim = len(self.shape)


def _is_array(index: Any) -> bool:
    return bool(getattr(index, "shape", ()))


def _read(index: Any, operands: Sequence[Any]) -> Any:
    return operands[index.number] if isinstance(index, Operand) else index
