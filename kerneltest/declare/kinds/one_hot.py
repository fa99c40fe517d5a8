"""One-hot rows: zeros and a single one. Declared by `kt.one_hot`."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.kinds.array_argument import DEFAULT_FLOATS, Dtypes, array_argument
from kerneltest.declare.kinds.base import (
    ArgumentKind,
    ArrayArgument,
    EdgeValues,
    Namespace,
    Rng,
    Slot,
    XpArray,
    register,
)
from kerneltest.declare.kinds.index import flat_index


def one_hot(shape: str, dtypes: Dtypes = DEFAULT_FLOATS) -> ArrayArgument:
    """Declares rows, along the last axis, of zeros and a single one.

    Args:
      shape: as for `array`, as in `"n classes"`.
      dtypes: as for `array`.
    """
    return array_argument(shape, dtypes, "one_hot")


@register("one_hot")
class OneHot(ArgumentKind):
    """Rows of zeros and a single one."""

    noun = "one-hot"
    along_last_axis = True
    jointly_constrained = True

    def edge_values(self) -> Sequence[EdgeValues]:
        """Returns ones at both ends of the rows."""
        return [EdgeValues(self.ends), EdgeValues(self.ends_reversed)]

    def ends(self, slot: Slot, rng: Rng) -> Array:
        """The one is first, last, second, or second to last."""
        last = max(slot.end - 1, 0)
        hot = np.resize(np.clip([0, last, 1, last - 1], 0, last), slot.shape[:-1])
        return np.asarray(np.arange(slot.shape[-1]) == hot[..., None]).astype(slot.dtype)

    def ends_reversed(self, slot: Slot, rng: Rng) -> Array:
        """The one is last, first, second to last, or second."""
        return self.ends(slot, rng)[..., ::-1]

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns random numbers, the greatest of which becomes the one."""
        return rng.random(slot.shape)

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns rows with the one at the greatest of `values`."""
        if not slot.shape[-1]:
            return np.zeros(slot.shape)
        return np.asarray(np.arange(slot.shape[-1]) == np.argmax(np.asarray(values, np.float64), axis=-1)[..., None])

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns rows whose one moves on by one element from row to row."""
        length = max(slot.shape[-1], 1)
        return position[-1] == flat_index(position, slot.shape) // length % length
