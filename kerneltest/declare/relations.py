"""Relations between dims and static arguments, which every signature meets."""

import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from kerneltest.declare.dims import Dim

_ALONE, _IN_PAIRS = 4096, 96  # lengths of a dim that are tried: by itself, and together with those of another


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """What must hold of lengths and static arguments.

    Attributes:
      function: from them to whether it does.
      of: what it takes: names of dims and of static arguments.
    """

    function: Callable[..., Any]
    of: tuple[str, ...]

    def holds(self, lengths: Mapping[str, int], statics: Mapping[str, Any]) -> bool:
        """Whether it does.

        Args:
          lengths: of all dims.
          statics: what the kernel gets for each static argument.
        """
        known = {**statics, **lengths}
        return bool(self.function(**{name: known[name] for name in self.of}))

    def nearest(
        self,
        dims: Mapping[str, Dim],
        lengths: Mapping[str, int],
        statics: Mapping[str, Any],
        fixed: Collection[str] = (),
    ) -> dict[str, int] | None:
        """Admitted lengths for which it holds: with as few dims changed as will do, and these as little as will do.

        Args:
          dims: which lengths there are.
          lengths: to begin with, of all dims.
          statics: what the kernel gets for each static argument.
          fixed: dims whose length stays.

        Returns:
          None where none were found: with one or two dims changed, of these lengths or of the shortest ones, with
          all of one length, or with all among a few.
        """
        shortest = {name: lengths[name] if name in fixed else dim.least for name, dim in dims.items()}
        for start in (lengths, shortest):
            known = {**statics, **start}
            given = {name: known[name] for name in self.of}  # once: up to millions of changes are tried
            for changed in self._changes(dims, start, fixed):
                if self.function(**{**given, **changed}):
                    return {**start, **changed}
        return None

    def _changes(
        self, dims: Mapping[str, Dim], lengths: Mapping[str, int], fixed: Collection[str]
    ) -> Iterator[Mapping[str, int]]:
        free = [name for name in self.of if name in dims and name not in fixed]
        reach = 4 * max([64, *lengths.values(), *(dim.block or 0 for dim in dims.values())])
        ladders = {name: _ladder(dims[name], lengths[name], reach) for name in free}
        yield {}
        for name in free:
            yield from ({name: length} for length in ladders[name][:_ALONE])
        for one, other in itertools.combinations(free, 2):
            ways = ([(abs(n - lengths[name]), n) for n in _some(ladders[name])] for name in (one, other))
            pairs = ((far + further, a, b) for (far, a), (further, b) in itertools.product(*ways))
            yield from ({one: a, other: b} for _, a, b in sorted(pairs, key=itemgetter(0)))
        if len(free) > 2:
            yield from (dict.fromkeys(free, n) for n in ladders[free[0]] if all(dims[name].admits(n) for name in free))
            few = (_few(ladders[name], lengths[name]) for name in free)
            yield from (dict(zip(free, chosen, strict=True)) for chosen in itertools.product(*few))


def required(function: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters of a function that have no default.

    Raises:
      TypeError, ValueError: it has no parameters that Python knows.
    """
    return tuple(name for name, each in inspect.signature(function).parameters.items() if each.default is each.empty)


def relation(function: Callable[..., Any]) -> Relation:
    """A relation as its author wrote it.

    Raises:
      ValueError: it is no function with parameters of its own.
    """
    try:
        of = required(function)
    except (TypeError, ValueError):
        of = ()
    if not of:
        raise ValueError(
            f"give a function of dims and static arguments, as in where=lambda m, n: m <= n, not {function!r}"
        )
    return Relation(function, of)


def _ladder(dim: Dim, near: int, reach: int) -> list[int]:
    """Admitted lengths, the nearest to one first."""
    lengths = dim.values or range(dim.fit(dim.minimum), reach + 1, dim.multiple_of)
    return sorted((n for n in lengths if n != near and dim.admits(n)), key=lambda n: (abs(n - near), n))


def _few(ladder: list[int], near: int) -> list[int]:
    """The length itself, those next to it, and those that most numbers divide."""
    round_ones = sorted(ladder, key=lambda n: (-(n & -n), abs(n - near)) if n else (0, 0))
    return list(dict.fromkeys([near, *ladder[:2], *round_ones[:3]]))


def _some(ladder: list[int]) -> list[int]:
    """The nearest lengths of many, then ever fewer of the others."""
    if len(ladder) <= _IN_PAIRS:
        return ladder
    near = _IN_PAIRS // 2
    step = max((len(ladder) - near) // near, 1)
    return ladder[:near] + ladder[near::step]
