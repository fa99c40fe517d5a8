"""Dims: the symbolic axis lengths of a pairing."""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic axis length, in elements.

    Attributes:
      block: the block length the kernel cuts the axis into; None if it does not.
      multiple_of: every length is a multiple of it.
      minimum, maximum: the least and greatest length; `minimum=0` admits the empty axis.
      values: the only lengths there are, in place of boundary lengths.
      production: the length that users run, which may be too long to hold.
      on: what holds in place of all this on some backends, by patterns of their ids or words such as `gpu`.
    """

    block: int | None = None
    multiple_of: int = 1
    minimum: int = 1
    maximum: int | None = None
    values: tuple[int, ...] = ()
    production: int | None = None
    on: Mapping[str, "Dim"] = field(default_factory=dict)

    @property
    def least(self) -> int:
        """The least length but 0."""
        return min((n for n in self.values if n), default=0) if self.values else self.fit(max(self.minimum, 1))

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
    production: int | None = None,
    on: Mapping[str, Dim] | None = None,
) -> Dim:
    """Declares how long an axis may be and how the kernel cuts it, as in `dims=dict(m=kt.dim(block=64))`.

    Args:
      block: the block length the kernel cuts the axis into, in elements; None if it does not.
      multiple_of: every length is a multiple of it.
      minimum: the least length; 0 admits the empty axis.
      maximum: the greatest length; None for no limit.
      values: the only lengths there are, in place of boundary lengths around the block.
      production: the length that users run, such as 131_072. Programs are run at it without holding their arrays, as
        docs/production-sizes.md says.
      on: what holds in place of all this on some backends, as in `on={"gpu": kt.dim(values=(16, 32, 64))}`, by patterns
        of their ids such as `"simulate:*"`, or by `gpu`, `nvidia`, `amd` or `tpu`; the first that fits counts.

    Raises:
      ValueError: what is no whole number, a block or multiple below 1, bounds that admit no length, a production
        length that they do not admit, or an `on` that gives something other than dims.
    """
    if block is not None:
        block = _whole("block", block, least=1)
    if maximum is not None:
        maximum = _whole("maximum", maximum)
    multiple_of, minimum = _whole("multiple_of", multiple_of, least=1), _whole("minimum", minimum)
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise ValueError(f"dim: values are several lengths, as in values=({values},), not {values!r}")
    if production is not None:
        production = _whole("production", production, least=1)
    if on is not None and not (isinstance(on, Mapping) and all(isinstance(each, Dim) for each in on.values())):
        raise ValueError(f"dim: on= gives dims by backend, as in on={{'gpu': kt.dim(values=(16, 32))}}, not {on!r}")
    lengths = tuple(_whole("values", value) for value in values)
    made = Dim(block, multiple_of, minimum, maximum, lengths, production, dict(on or {}))
    if not made.values and not made.admits(made.fit(minimum)):
        raise ValueError(f"dim: no multiple of {multiple_of} lies from minimum={minimum} to maximum={maximum}")
    if production is not None and not made.admits(production):
        raise ValueError(
            f"dim: production={production} is not a length that the dim admits; its other options say which it does"
        )
    return made


def _whole(name: str, value: Any, least: int = 0) -> int:
    try:
        number = operator.index(value) if not isinstance(value, bool) else -1
    except TypeError:
        number = -1
    if number < least:
        raise ValueError(f"dim: {name} counts elements, so it is a whole number of at least {least}, not {value!r}")
    return number
