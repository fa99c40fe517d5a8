"""Dims: the symbolic axis lengths of a pairing."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic axis length, in elements.

    Attributes:
      block: the block length the kernel cuts the axis into; None if it does not.
      multiple_of: every length is a multiple of it.
      minimum, maximum: the least and greatest length; `minimum=0` admits the empty axis.
      values: the only lengths there are, in place of boundary lengths.
    """

    block: int | None = None
    multiple_of: int = 1
    minimum: int = 1
    maximum: int | None = None
    values: tuple[int, ...] = ()

    def admits(self, length: int) -> bool:
        """Whether the axis can have this length."""
        if self.values:
            return length in self.values
        below = self.maximum is None or length <= self.maximum
        return length % self.multiple_of == 0 and length >= self.minimum and below

    def fit(self, length: int) -> int:
        """A length near another one: a multiple of `multiple_of`, and within the bounds where any multiple is."""
        rounded = -(-max(length, self.minimum) // self.multiple_of) * self.multiple_of
        return rounded if self.maximum is None else min(rounded, self.maximum // self.multiple_of * self.multiple_of)


def dim(
    *,
    block: int | None = None,
    multiple_of: int = 1,
    minimum: int = 1,
    maximum: int | None = None,
    values: Iterable[int] = (),
) -> Dim:
    """Declares how long an axis may be and how the kernel cuts it, as in `dims=dict(m=kt.dim(block=64))`.

    Args:
      block: the block length the kernel cuts the axis into, in elements; None if it does not.
      multiple_of: every length is a multiple of it.
      minimum: the least length; 0 admits the empty axis.
      maximum: the greatest length; None for no limit.
      values: the only lengths there are, in place of boundary lengths around the block.

    Raises:
      ValueError: a block or multiple below 1, or bounds that admit no length.
    """
    lengths = tuple(values)
    if (block is not None and block < 1) or multiple_of < 1:
        raise ValueError("dim: block and multiple_of count elements, so they are at least 1")
    if minimum < 0 or (maximum is not None and maximum < minimum) or any(v < 0 for v in lengths):
        raise ValueError(f"dim: no length lies between minimum={minimum} and maximum={maximum}")
    return Dim(block, multiple_of, minimum, maximum, lengths)
