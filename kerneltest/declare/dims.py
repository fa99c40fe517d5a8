"""Dims: the symbolic axis lengths of a pairing."""

import inspect
import itertools
import keyword
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeGuard, cast

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.problems import hide_frames


@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic axis length, in elements. Its fields are the arguments of `dim`."""

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
        if self.values:
            return length in self.values
        below = self.maximum is None or length <= self.maximum
        return length % self.multiple_of == 0 and length >= self.minimum and below

    def fit(self, length: int) -> int:
        """Returns the next multiple of `multiple_of`, within the bounds if they contain a multiple."""
        rounded = -(-max(length, self.minimum) // self.multiple_of) * self.multiple_of
        return rounded if self.maximum is None else min(rounded, self.maximum // self.multiple_of * self.multiple_of)

    def with_block(self, block: int | None) -> "Dim":
        """Returns it with a block, also on some backends; where a block or `values` are declared, these stay."""
        own = self.block if self.block or self.values else block
        return replace(self, block=own, on={name: dim.with_block(block) for name, dim in self.on.items()})


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
      block: the length, in elements, of the blocks that the kernel divides the axis into; None for that which traces
        of the kernel show, if any.
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


# Axes: lengths that are numbers, dims, or products and sums of dims.


@dataclass(frozen=True, slots=True)
class AxisExpression:
    """A length composed of several dims, or of a dim and numbers, such as `g*h` or `b+1`."""

    # products of dims and lengths, the outermost factor first; the terms follow one another along the axis
    terms: tuple[tuple[str | int, ...], ...]
    extra: int = 0  # the number of additional elements, which every slice along a dim has as well: 1 in `b+1`

    def __str__(self) -> str:
        text = "+".join("*".join(map(str, term)) for term in self.terms)
        return f"{text}{self.extra:+d}" if self.extra else text

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f for term in self.terms for f in term if isinstance(f, str)))

    def length(self, lengths: Mapping[str, int]) -> int:
        return sum(math.prod(_factors(term, lengths)) for term in self.terms) + self.extra

    def positions(self, lengths: Mapping[str, int], dim_positions: Mapping[str, Array]) -> Array:
        """Returns the positions along the axis (int64) of elements at some positions along dims, in their order.

        Those along a dim are consecutive if the axis has `extra`; dims without positions are taken whole.
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
    """Returns the axis of a word of a shape: `m`, `128`, `2*h`, `b+1`; a ValueError if the word is malformed."""
    if not set(word) & set("+-*"):
        return _factor(word, word)
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
    """Returns the positions along an axis as `AxisExpression.positions` does; all if it contains none of those dims."""
    match axis:
        case str() if axis in dim_positions:
            return dim_positions[axis]
        case AxisExpression():
            return axis.positions(lengths, dim_positions)
    return np.arange(length_of(axis, lengths))


def _factors(term: Sequence[str | int], lengths: Mapping[str, int]) -> list[int]:
    return [factor if isinstance(factor, int) else lengths[factor] for factor in term]


# Relations between dims and static arguments that every signature meets, and functions of other arguments.

Function = Callable[..., Any]  # a function of the author's
StaticValue = Any  # of a static argument, as the kernel gets it

_MOST_SINGLE, _MOST_PAIRED = 4096, 96  # lengths of a dim that are tried by themselves, and with those of another dim


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """A condition on lengths and static arguments."""

    function: Function  # takes lengths and static arguments and returns whether they meet the condition
    parameters: tuple[str, ...]  # the names of its parameters: dims, static and optional arguments

    def holds(self, lengths: Mapping[str, int], statics: Mapping[str, StaticValue]) -> bool:
        known = {**statics, **lengths}
        return bool(self.function(**{name: known[name] for name in self.parameters}))

    def nearest_lengths(
        self,
        dims: Mapping[str, Dim],
        lengths: Mapping[str, int],
        statics: Mapping[str, StaticValue],
        fixed: Collection[str] = (),
    ) -> dict[str, int] | None:
        """Returns admitted lengths that meet the condition, with as few dims changed as possible, each by the least.

        None if the search fails: from `lengths` and from the shortest lengths, it changes one dim, then two dims, but
        none that is `fixed`; it sets all dims to one length; and it combines a few lengths of every dim.
        """
        shortest = {name: lengths[name] if name in fixed else dim.shortest for name, dim in dims.items()}
        for start in (lengths, shortest):
            known = {**statics, **start}  # outside the loop, which may run a million times
            arguments = {name: known[name] for name in self.parameters}
            for changed in self._changes(dims, start, fixed):
                if self.function(**{**arguments, **changed}):
                    return {**start, **changed}
        return None

    def _changes(
        self, dims: Mapping[str, Dim], lengths: Mapping[str, int], fixed: Collection[str]
    ) -> Iterator[Mapping[str, int]]:
        free = [name for name in self.parameters if name in dims and name not in fixed]
        reach = 4 * max([64, *lengths.values(), *(dim.block or 0 for dim in dims.values())])
        ladders = {name: _ladder(dims[name], lengths[name], reach) for name in free}
        yield {}
        for name in free:
            yield from ({name: length} for length in ladders[name][:_MOST_SINGLE])
        for one, other in itertools.combinations(free, 2):
            ways = ([(abs(n - lengths[name]), n) for n in _thin_out(ladders[name])] for name in (one, other))
            pairs = ((far + further, a, b) for (far, a), (further, b) in itertools.product(*ways))
            yield from ({one: a, other: b} for _, a, b in sorted(pairs, key=itemgetter(0)))
        if len(free) > 2:
            yield from (dict.fromkeys(free, n) for n in ladders[free[0]] if all(dims[name].admits(n) for name in free))
            few = (_select_few(ladders[name], lengths[name]) for name in free)
            yield from (dict(zip(free, chosen, strict=True)) for chosen in itertools.product(*few))


@dataclass(frozen=True, slots=True, eq=False)
class Derivation:
    """The function by which an array follows from other arguments."""

    function: Function  # takes the other arguments and returns the array
    # its parameters: arguments (arrays), dims (lengths), static arguments, and `rng`, a NumPy generator
    parameters: tuple[str, ...]


def required_parameters(function: Function) -> tuple[str, ...]:
    """Returns the parameters that every call gives; a TypeError or ValueError if Python cannot inspect them."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return tuple(one.name for one in parameters if one.default is one.empty and one.kind not in variadic)


def parse_relation(function: Function) -> Relation:
    """Returns the relation that a function defines; a ValueError unless it has parameters without a default."""
    try:
        of = required_parameters(function)
    except (TypeError, ValueError):
        of = ()
    if not of:
        raise ValueError(
            f"give a function of dims and static arguments, as in where=lambda m, n: m <= n, not {function!r}"
        )
    return Relation(function, of)


def _ladder(dim: Dim, near: int, reach: int) -> list[int]:
    """Returns the admitted lengths up to `reach` other than `near`, the nearest to it first."""
    lengths = dim.values or range(dim.fit(dim.minimum), reach + 1, dim.multiple_of)
    return sorted((n for n in lengths if n != near and dim.admits(n)), key=lambda n: (abs(n - near), n))


def _select_few(ladder: list[int], near: int) -> list[int]:
    """Returns the length itself, its neighbours, and lengths divisible by high powers of two."""
    round_ones = sorted(ladder, key=lambda n: (-(n & -n), abs(n - near)) if n else (0, 0))
    return list(dict.fromkeys([near, *ladder[:2], *round_ones[:3]]))


def _thin_out(ladder: list[int]) -> list[int]:
    """Returns the nearest of many lengths, then others at equal steps."""
    if len(ladder) <= _MOST_PAIRED:
        return ladder
    near = _MOST_PAIRED // 2
    step = max((len(ladder) - near) // near, 1)
    return ladder[:near] + ladder[near::step]
