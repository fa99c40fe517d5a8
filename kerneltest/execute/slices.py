"""Slices of arrays along a dim, wherever it is among the dims that make an axis."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.axis_expressions import Axis, AxisExpression, dims_in, positions_along
from kerneltest.execute.invariant_context import Take


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices along one dim.

    Attributes:
      lengths: of all dims, before anything is taken.
      name: of the dim.
    """

    lengths: dict[str, int]
    name: str

    def copies(self, at: int, length: int, count: int) -> Array:
        """The positions of a slice, several times."""
        return np.tile(np.arange(at, at + length), count)

    def overlap(self, arrays: Sequence[Sequence[Axis]]) -> bool:
        """Whether slices next to each other share elements of an array, as offsets do, so that no copies lie there."""
        return any(isinstance(a, AxisExpression) and a.extra and self.name in a.names for axes in arrays for a in axes)

    def taken(self, arrays: Sequence[Sequence[Axis]], positions: Array) -> Take:
        """Takes what belongs to some positions along the dim out of arrays that have these axes."""
        return lambda given: tuple(self._of(x, axes, positions) for x, axes in zip(given, arrays, strict=True))

    def _of(self, array: Array, axes: Sequence[Axis], positions: Array) -> Array:
        for place, axis in enumerate(axes):
            if self.name in dims_in(axis):
                array = array.take(positions_along(axis, self.lengths, {self.name: positions}), place)
        return array
