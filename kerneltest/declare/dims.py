"""Dims: the symbolic axis lengths of a pairing."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from kerneltest.declare.problems import hide_frames


@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic axis length, in elements.

    Attributes:
      block: the length of the blocks that the kernel divides the axis into; None if it does not.
      multiple_of: every length is a multiple of it.
      minimum, maximum: the least and greatest length; `minimum=0` admits the empty axis.
      values: the only lengths, instead of boundary lengths.
      production: the length that users run, which may be too long for memory.
      on: dims that replace this one on some backends, by patterns of their ids or words such as `gpu`.
    """

    block: int | None = None
    multiple_of: int = 1
    minimum: int = 1
    maximum: int | None = None
    values: tuple[int, ...] = ()
    production: int | None = None
    on: Mapping[str, "Dim"] = field(default_factory=dict)

    @property
    def shortest(self) -> int:
        """The least length other than 0."""
        return min((n for n in self.values if n), default=0) if self.values else self.fit(max(self.minimum, 1))

    def admits(self, length: int) -> bool:
        """Returns whether the axis can have this length."""
        if self.values:
            return length in self.values
        below = self.maximum is None or length <= self.maximum
        return length % self.multiple_of == 0 and length >= self.minimum and below

    def fit(self, length: int) -> int:
        """Returns the next multiple of `multiple_of`, within the bounds if they contain a multiple."""
        rounded = -(-max(length, self.minimum) // self.multiple_of) * self.multiple_of
        return rounded if self.maximum is None else min(rounded, self.maximum // self.multiple_of * self.multiple_of)


@hide_frames
def dim(
    *,
    block: int | None = None,
    multiple_of: int = 1,
    minimum: int = 1,
    maximum: int | None = None,
    values: Iterable[int] = (),
    production: int | None = None,
    on: Mapping[str, Dim] | None = None,
) -> Dim:
    """Declares the lengths of an axis and how the kernel divides it, as in `dims=dict(m=kt.dim(block=64))`.

    Args:
      block: the length, in elements, of the blocks that the kernel divides the axis into; None if it does not.
      multiple_of: every length is a multiple of it.
      minimum: the least length; 0 admits the empty axis.
      maximum: the greatest length; None for no limit.
      values: the only lengths, instead of boundary lengths around the block.
      production: the length that users run, such as 131_072. Programs are run at that length without storing their
        arrays, as described in docs/production-sizes.md.
      on: dims that replace this one on some backends, as in `on={"gpu": kt.dim(values=(16, 32, 64))}`, by patterns of
        their ids such as `"simulate:*"`, or by `gpu`, `nvidia`, `amd` or `tpu`; the first match counts.

    Raises:
      ValueError: a length is not a whole number, a block or multiple is below 1, the bounds admit no length or not the
        production length, or `on` contains something other than dims.
    """
    if block is not None:
        block = _whole("block", block, least=1)
    if maximum is not None:
        maximum = _whole("maximum", maximum)
    multiple_of, minimum = _whole("multiple_of", multiple_of, least=1), _whole("minimum", minimum)
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ValueError(f"dim: values is a sequence of lengths, as in values=({values},), not {values!r}")
    if production is not None:
        production = _whole("production", production, least=1)
    if on is not None and not (isinstance(on, Mapping) and all(isinstance(each, Dim) for each in on.values())):
        raise ValueError(f"dim: on= gives dims by backend, as in on={{'gpu': kt.dim(values=(16, 32))}}, not {on!r}")
    lengths = tuple(_whole("values", value) for value in values)
    made = Dim(block, multiple_of, minimum, maximum, lengths, production, dict(on or {}))
    if not made.values and not made.admits(made.fit(minimum)):
        raise ValueError(f"dim: no multiple of {multiple_of} is between minimum={minimum} and maximum={maximum}")
    if production is not None and not made.admits(production):
        raise ValueError(f"dim: production={production} is excluded by the dim's other options")
    return made


def _whole(name: str, value: object, least: int = 0) -> int:
    try:
        number = operator.index(cast(int, value)) if not isinstance(value, bool) else -1
    except TypeError:
        number = -1
    if number < least:
        raise ValueError(f"dim: {name} counts elements, so it is a whole number of at least {least}, not {value!r}")
    return number
