"""The axes whose elements integer arguments count, or divide into parts."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from kerneltest.declare.axis_expressions import Axis, AxisExpression, length_of
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature


@dataclass(frozen=True, slots=True)
class CountedAxis:
    """The axis whose elements an argument counts, or divides into parts.

    Attributes:
      role: the argument's: `length`, `partition` or `offsets`.
      name: the axis as it was declared.
      length: in elements.
      block: the elements of one page or block of the axis; 0 if it has none.
      block_name: the same in words.
    """

    role: str
    name: str
    length: int
    block: int
    block_name: str


_ROLES = frozenset({"length", "partition", "offsets"})


@functools.lru_cache(maxsize=256)
def counted_axes(pairing: Pairing, signature: Signature) -> Mapping[str, CountedAxis]:
    """Returns the axis that each integer argument counts or divides, by path."""
    lengths, found = dict(signature.dims), {}
    for path, leaf in pairing.leaves.items():
        if leaf.role in _ROLES and path in dict(signature.dtypes):
            block, name = _block(pairing, leaf.bound, lengths)
            found[path] = CountedAxis(leaf.role, str(leaf.bound), length_of(leaf.bound, lengths), block, name)
    return found


def _block(pairing: Pairing, axis: Axis, lengths: Mapping[str, int]) -> tuple[int, str]:
    """Returns the elements in a page or block of an axis, and the same in words: `pages*size` has pages of `size`."""
    if isinstance(axis, AxisExpression):
        last = axis.terms[0][-1] if len(axis.terms) == 1 and len(axis.terms[0]) > 1 and not axis.extra else 0
        return (last if isinstance(last, int) else lengths[last]), str(last)
    block = pairing.dims[axis].block if isinstance(axis, str) else None
    return (block, f"{block}, a block of {axis}") if block else (0, "")
