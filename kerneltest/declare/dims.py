"""Dims: the symbolic axis lengths of a pairing."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


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
      ValueError: what is no whole number, a block or multiple below 1, or bounds that admit no length.
    """
    if block is not None:
        block = _whole("block", block, least=1)
    if maximum is not None:
        maximum = _whole("maximum", maximum)
    multiple_of, minimum = _whole("multiple_of", multiple_of, least=1), _whole("minimum", minimum)
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ValueError(f"dim: values are several lengths, as in values=({values},), not {values!r}")
    made = Dim(block, multiple_of, minimum, maximum, tuple(_whole("values", value) for value in values))
    if not made.values and not made.admits(made.fit(minimum)):
        raise ValueError(f"dim: no multiple of {multiple_of} lies from minimum={minimum} to maximum={maximum}")
    return made


def _whole(name: str, value: Any, least: int = 0) -> int:
    try:
        number = operator.index(value) if not isinstance(value, bool) else -1
    except TypeError:
        number = -1
    if number < least:
        raise ValueError(f"dim: {name} counts elements, so it is a whole number of at least {least}, not {value!r}")
    return number
