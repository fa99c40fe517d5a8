"""Relations between dims and static arguments that every signature meets, and functions of other arguments."""

import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from kerneltest.declare.dims import Dim

Function = Callable[..., Any]  # a function of the author's
StaticValue = Any  # of a static argument, as the kernel gets it

_MOST_SINGLE, _MOST_PAIRED = 4096, 96  # lengths of a dim that are tried by themselves, and with those of another dim


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """A condition on lengths and static arguments.

    Attributes:
      function: takes lengths and static arguments and returns whether they meet the condition.
      parameters: the names of its parameters: dims, static and optional arguments.
    """

    function: Function
    parameters: tuple[str, ...]

    def holds(self, lengths: Mapping[str, int], statics: Mapping[str, StaticValue]) -> bool:
        """Returns whether lengths and static arguments meet the condition.

        Args:
          lengths: of all dims.
          statics: the kernel's value of each static argument.
        """
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

        Args:
          dims: the lengths that each dim admits.
          lengths: of all dims, to start from.
          statics: the kernel's value of each static argument.
          fixed: dims whose length must not change.

        Returns:
          None if the search fails. Starting from `lengths` and from the shortest lengths, it changes one dim, then two
          dims; it sets all dims to one length; and it combines a few lengths of every dim.
        """
        shortest = {name: lengths[name] if name in fixed else dim.shortest for name, dim in dims.items()}
        for start in (lengths, shortest):
            known = {**statics, **start}
            arguments = {
                name: known[name] for name in self.parameters
            }  # outside the loop, which may run a million times
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
    """The function by which an array follows from other arguments.

    Attributes:
      function: takes the other arguments and returns the array.
      parameters: its parameters: arguments (arrays), dims (lengths), static arguments, and `rng`, a NumPy generator.
    """

    function: Function
    parameters: tuple[str, ...]


def required_parameters(function: Function) -> tuple[str, ...]:
    """Returns the names of a function's parameters without a default.

    Raises:
      TypeError, ValueError: Python cannot inspect its parameters.
    """
    return tuple(name for name, each in inspect.signature(function).parameters.items() if each.default is each.empty)


def parse_relation(function: Function) -> Relation:
    """Returns the relation that a function defines.

    Raises:
      ValueError: it is not a function that has parameters without a default.
    """
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
