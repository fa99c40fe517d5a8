"""Permutations: indices that are all different. Declared by `kt.permutation`."""

from collections.abc import Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import DeclarationError
from kerneltest.declare.kinds.array_argument import array_argument
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


def permutation(shape: str, *, into: str | int | None = None, dtype: str = "int32") -> ArrayArgument:
    """Declares indices that are all different.

        order=kt.permutation("n"), page_table=kt.permutation("b p", into="pages")

    Args:
      shape: of the indices themselves.
      into: the axis they point into. No two in the whole array are equal, so it must not have more elements than that
        axis (declare so with `where=`). None for the last axis itself, each row a permutation of it.
      dtype: an integer dtype, by name.
    """
    return array_argument(shape, dtype, "permutation", bounded_by=into)


@register("permutation")
class Permutation(ArgumentKind):
    """Indices that differ from each other in each row or, if `Slot.globally_unique`, in the whole array."""

    noun = "permutation"
    counts = True
    along_last_axis = True
    jointly_constrained = True
    distinct = True

    def edge_values(self) -> Sequence[EdgeValues]:
        """Returns both orders."""
        return [EdgeValues(self.in_order), EdgeValues(self.in_reverse)]

    def in_order(self, slot: Slot, rng: Rng) -> Array:
        """Indices in ascending order from 0."""
        return slot.canonical()

    def in_reverse(self, slot: Slot, rng: Rng) -> Array:
        """Indices in descending order from the last."""
        return slot.repair(slot.end - 1 - slot.canonical().astype(np.int64))

    def sample(self, slot: Slot, rng: Rng, exact: bool) -> Array:
        """Returns a random permutation, or a part of one."""
        if slot.globally_unique:
            return rng.permutation(max(slot.end, slot.size))[: slot.size].reshape(slot.shape)
        return rng.permuted(self.canonical(slot), axis=-1)

    def canonical(self, slot: Slot) -> Array:
        """Returns the indices of each row in order."""
        return np.broadcast_to(np.arange(slot.shape[-1]), slot.shape)

    def repair(self, slot: Slot, values: Array) -> Array:
        """Returns the ranks of each row or, if globally unique, `values` with repeated ones replaced by unused ones."""
        if not slot.globally_unique:
            return np.asarray(np.argsort(np.argsort(values, axis=-1, kind="stable"), axis=-1, kind="stable"))
        if slot.size > slot.end:
            raise DeclarationError(
                f"{slot.size} different indices do not fit into a length of {slot.end}; exclude it with where="
            )
        flat = np.array(values, np.int64).reshape(-1)
        first = np.zeros(flat.size, bool)
        first[np.unique(flat, return_index=True)[1]] = True
        valid = first & (flat >= 0) & (flat < slot.end)
        unused = np.setdiff1d(np.arange(slot.end), flat[valid])
        flat[~valid] = unused[: int((~valid).sum())]
        return flat.reshape(slot.shape)

    def element_at(self, slot: Slot, position: Sequence[XpArray], code: XpArray, xp: Namespace) -> XpArray:
        """Returns indices in order."""
        return flat_index(position, slot.shape) if slot.globally_unique else position[-1]
