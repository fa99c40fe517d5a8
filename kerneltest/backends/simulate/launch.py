"""One launch of a kernel: its programs, the buffers that they share, and the checks of their accesses."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.simulate.access_checker import AccessChecker, MemoryAccess
from kerneltest.backends.simulate.buffers import SimulatedBuffer
from kerneltest.core.details import Access
from kerneltest.core.dtypes import Array


@dataclass(eq=False, slots=True)
class Launch:
    """Programs and the buffers that they share.

    Attributes:
      grid: programs along x, y and z.
      programs: the linear ids of those that run, in ascending order, int32 (programs,).
      buffers: the buffers, in the order of the function's arguments.
      checker: checks the programs' accesses to the buffers.
      dynamic: whether an address, a mask or a branch depends on loaded values, so that every access is checked when it
        happens.
    """

    grid: tuple[int, int, int]
    programs: Array
    buffers: Sequence[SimulatedBuffer]
    checker: AccessChecker
    dynamic: bool = False
    _accesses: int = 0

    def next_access(self, kind: Access, buffer: int, place: str, where: Sequence[Array]) -> MemoryAccess:
        """Returns the next access.

        Args:
          kind: load, store or atomic.
          buffer: the buffer's number.
          place: FILE:LINE of the source.
          where: the elements' offsets, followed by any number of masks.
        """
        offset, *masks = where
        enabled = intersect_masks(masks, offset.ndim)
        shape = np.broadcast_shapes(offset.shape, enabled.shape)
        if self.buffers[buffer].writable:
            shape = (self.programs.size, *shape[1:])  # races depend on which program accesses an element
        self._accesses += 1
        return MemoryAccess(
            kind,
            self._accesses,
            self.buffers[buffer],
            np.broadcast_to(offset, shape),
            np.broadcast_to(enabled, shape),
            place,
        )


def intersect_masks(masks: Sequence[Array], axes: int) -> Array:
    """Returns the conjunction of masks, all of which have the programs' axis first, with a number of axes."""
    enabled = np.ones((1,) * axes, bool)
    for mask in masks:
        enabled = enabled & mask.reshape(*mask.shape, *(1,) * (axes - mask.ndim))
    return enabled
