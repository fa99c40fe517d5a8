"""Axes: lengths that are numbers, dims, or products and sums of dims."""

import keyword
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from kerneltest.core.dtypes import Array


@dataclass(frozen=True, slots=True)
class AxisExpression:
    """A length composed of several dims, or of a dim and numbers, such as `g*h` or `b+1`.

    Attributes:
      terms: products of dims and lengths, the outermost factor first; the terms follow one another along the axis.
      extra: the number of additional elements, which every slice along a dim has as well: 1 in `b+1`.
    """

    terms: tuple[tuple[str | int, ...], ...]
    extra: int = 0

    def __str__(self) -> str:
        text = "+".join("*".join(map(str, term)) for term in self.terms)
        return f"{text}{self.extra:+d}" if self.extra else text

    @property
    def names(self) -> tuple[str, ...]:
        """The dims in it, without repetitions."""
        return tuple(dict.fromkeys(f for term in self.terms for f in term if isinstance(f, str)))

    def length(self, lengths: Mapping[str, int]) -> int:
        """Returns the length in elements for lengths of the dims."""
        return sum(math.prod(_factors(term, lengths)) for term in self.terms) + self.extra

    def positions(self, lengths: Mapping[str, int], dim_positions: Mapping[str, Array]) -> Array:
        """Returns the positions along the axis (int64) of elements at some positions along dims, in their order.

        Args:
          lengths: of the dims.
          dim_positions: positions along some dims, consecutive if the axis has `extra`; the other dims are taken whole.
        """
        found, start = [], 0
        for term in self.terms:
            factors = _factors(term, lengths)
            places = np.zeros((), np.int64)
            for factor, length in zip(term, factors, strict=True):
                along_factor = dim_positions.get(factor) if isinstance(factor, str) else None
                places = places[..., None] * length + (np.arange(length) if along_factor is None else along_factor)
            found.append(start + places.reshape(-1))
            start += math.prod(factors)
        all_found = np.concatenate(found)
        if self.extra <= 0:
            return all_found[: all_found.size + self.extra]
        last = int(all_found[-1]) + 1 if all_found.size else 0
        return np.concatenate([all_found, np.arange(last, last + self.extra)])


Axis = str | int | AxisExpression


def parse_axis(word: str) -> Axis:
    """Returns the axis that a word of a shape denotes, such as `m`, `128`, `2*h` or `b+1`.

    Raises:
      ValueError: the word is malformed.
    """
    if word.isdecimal() and word.isascii():
        return int(word)
    if is_dim_name(word):
        return word
    if word[:1] in ("+", "-"):
        raise ValueError(
            f"{word!r} starts with a sign, and a length is positive; separate axes by spaces, as in 'm 3 n'"
        )
    terms: list[tuple[str | int, ...]] = []
    more = 0
    for sign, text in re.findall(r"([+-]?)([^+-]*)", word)[:-1]:
        factors = tuple(_factor(each, word) for each in text.split("*"))
        if all(isinstance(factor, int) for factor in factors):
            more += math.prod(f for f in factors if isinstance(f, int)) * (-1 if sign == "-" else 1)
        elif sign == "-":
            raise ValueError(f"{word!r} takes a dim away; only a number can be, as in 'n-1'")
        else:
            terms.append(factors)
    if not terms:
        raise ValueError(f"{word!r} names no dim; write the length itself")
    return AxisExpression(tuple(terms), more)


def _factor(text: str, word: str) -> str | int:
    if text.isdecimal() and text.isascii():
        return int(text)
    if is_dim_name(text):
        return text
    raise ValueError(
        f"{word!r} is neither a dim's name nor a length, nor made of these by * and +; separate axes by spaces, as in "
        "'m 3 n'"
    )


def is_dim_name(name: object) -> TypeGuard[str]:
    """Returns whether a value can be the name of a dim."""
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def length_of(axis: Axis, lengths: Mapping[str, int]) -> int:
    """Returns the length of an axis in elements for lengths of the dims."""
    match axis:
        case int():
            return axis
        case str():
            return lengths[axis]
        case AxisExpression():
            return axis.length(lengths)


def dims_in(axis: Axis) -> tuple[str, ...]:
    """Returns the dims in an axis."""
    return axis.names if isinstance(axis, AxisExpression) else (axis,) if isinstance(axis, str) else ()


def dims_in_axes(axes: Sequence[Axis]) -> Iterator[str]:
    """Yields the dims in some axes, in order and with repetitions."""
    for axis in axes:
        yield from dims_in(axis)


def positions_along(axis: Axis, lengths: Mapping[str, int], dim_positions: Mapping[str, Array]) -> Array:
    """Returns the positions along an axis (int64) of elements at some positions along dims.

    It returns all positions if the axis contains none of those dims. Arguments are those of `AxisExpression.positions`.
    """
    match axis:
        case str() if axis in dim_positions:
            return dim_positions[axis]
        case AxisExpression():
            return axis.positions(lengths, dim_positions)
    return np.arange(length_of(axis, lengths))


def _factors(term: Sequence[str | int], lengths: Mapping[str, int]) -> list[int]:
    return [factor if isinstance(factor, int) else lengths[factor] for factor in term]
