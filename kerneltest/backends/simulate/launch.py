"""One launch of a kernel: its programs, the buffers they share, and who does what to these."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kerneltest.backends.simulate.memory import Access, Buffer, Watch
from kerneltest.core.dtypes import Array


@dataclass(eq=False, slots=True)
class Launch:
    """Programs and the buffers they share.

    Attributes:
      grid: programs along x, y and z.
      programs: the linear ids of those that run, in ascending order, int32 (programs,).
      buffers: in the order of the function's arguments.
      watch: sees what the programs do to them.
      dynamic: whether an address, a mask or a branch depends on loaded values, so that every access is checked as it
        happens.
      stores: those whose elements are known beforehand.
    """

    grid: tuple[int, int, int]
    programs: Array
    buffers: Sequence[Buffer]
    watch: Watch
    dynamic: bool = False
    stores: list[Access] = field(default_factory=list)
    _accesses: int = 0

    def access(self, kind: str, buffer: int, place: str, where: Sequence[Array]) -> Access:
        """The next access.

        Args:
          kind: `load`, `store` or `atomic`.
          buffer: its number.
          place: the source line.
          where: the elements' offsets, and masks of those that are enabled.
        """
        offset, *enabling = where
        enabled = np.ones((1,) * offset.ndim, bool)
        for each in enabling:
            enabled = enabled & each.reshape(*each.shape, *(1,) * (offset.ndim - each.ndim))
        shape = np.broadcast_shapes(offset.shape, enabled.shape)
        if self.buffers[buffer].writable:
            shape = (self.programs.size, *shape[1:])  # who it was matters
        self._accesses += 1
        return Access(
            kind,
            self._accesses,
            self.buffers[buffer],
            np.broadcast_to(offset, shape),
            np.broadcast_to(enabled, shape),
            place,
        )
