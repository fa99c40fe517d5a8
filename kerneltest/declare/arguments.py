"""What an argument of a kernel can be: an array, a dim's length, a static value, a pytree, or absent."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kerneltest.declare.axes import Axis
from kerneltest.declare.domains import EVERYTHING, Domain, Interval

Role = Literal[
    "data",
    "mask",
    "index",
    "length",
    "offsets",
    "partition",
    "permutation",
    "segments",
    "one_hot",
    "key",
    "raw_key",
    "derived",
]
COUNTING: frozenset[Role] = frozenset({"index", "length", "offsets", "partition", "permutation", "segments"})
"""Roles whose values are places or numbers of elements, so that their dtype is an integer."""

ALONG_AN_AXIS: frozenset[Role] = frozenset({"offsets", "one_hot", "partition", "permutation", "segments"})
"""Roles whose values hang together along the last axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Derivation:
    """How an array follows from other arguments.

    Attributes:
      function: from them to the array.
      of: what it takes, by name: arguments (arrays), dims (lengths), static arguments, and `rng`, a NumPy generator.
    """

    function: Callable[..., Any]
    of: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array argument, or one leaf of a pytree.

    Attributes:
      shape: its axes, outermost first: dims, fixed lengths, or products and sums of them.
      dtypes: names of what it may hold. Arguments that declare the same several dtypes change together.
      role: `data`, `mask` (whether an element counts), `index` (0 to n - 1), `length` (0 to n), n being the length of
        `bounded_by`, or what else `kt.offsets` and its neighbours make.
      domain: which data it may hold, for each dtype or for all.
      bounded_by: what an index points into, a length counts, or a partition adds up to; None for its own last axis.
      whole: a partition comes to all of `bounded_by`, and offsets end there.
      fills: what a mask holds where an element does not count, and where it does.
      derivation: how it follows from other arguments.
      on: dtypes in place of `dtypes` on some backends, by patterns.
      problem: what is wrong with it, as its pairing tells once it knows the argument's name; "" if nothing is.
    """

    shape: tuple[Axis, ...]
    dtypes: tuple[str, ...]
    role: Role = "data"
    domain: Domain = EVERYTHING
    bounded_by: Axis | None = None
    whole: bool = False
    fills: tuple[float, float] = (0, 1)
    derivation: Derivation | None = None
    on: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    problem: str = ""

    def interval(self, dtype: str) -> Interval:
        """Its domain in a dtype."""
        return self.domain if isinstance(self.domain, Interval) else self.domain[dtype]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All that its shape and its values are about."""
        return self.shape if self.bounded_by is None else (*self.shape, self.bounded_by)


@dataclass(frozen=True, slots=True)
class DimSize:
    """A static argument that is the length of a dim."""

    dim: str


@dataclass(frozen=True, slots=True)
class Static:
    """A static argument with few values.

    Attributes:
      options: the option's name to what the kernel gets.
      named: the oracle gets the option's name instead of its value.
    """

    options: tuple[tuple[str, Any], ...]
    named: bool

    def value(self, name: str) -> Any:
        """What the kernel gets for an option."""
        return dict(self.options)[name]


@dataclass(frozen=True, slots=True)
class Tree:
    """A pytree of arrays: whatever JAX takes for one, and dataclasses that it does not know."""

    branches: Any

    def parts(self, name: str) -> Iterator[tuple[str, Any]]:
        """What is in it, each with its path, such as `params.w.0`, from the tree's name on.

        Raises:
          ValueError: keys that JAX cannot sort.
        """
        from jax import tree_util  # JAX alone knows what is a pytree; who declares one has a kernel, and so JAX

        for keys, part in tree_util.tree_flatten_with_path(self.branches)[0]:
            path = f"{name}.{tree_util.keystr(keys, simple=True, separator='.')}" if keys else name
            if _is_unknown(part):
                for field in _arrays_of(part):
                    yield from Tree(getattr(part, field)).parts(f"{path}.{field}")
            else:
                yield path, part

    def filled(self, name: str, values: Mapping[str, Any]) -> Any:
        """The same tree, of the same types, with each array replaced by its value, found by path.

        What has no value is absent: a dataclass has its default in that place, and anything else None.
        """
        from jax import tree_util

        keyed, structure = tree_util.tree_flatten_with_path(self.branches)
        paths = [f"{name}.{tree_util.keystr(keys, simple=True, separator='.')}" if keys else name for keys, _ in keyed]
        filled = [
            _refilled(part, path, values) if _is_unknown(part) else _filled(part, path, values)
            for path, (_, part) in zip(paths, keyed, strict=True)
        ]
        return tree_util.tree_unflatten(structure, filled)


@dataclass(frozen=True, slots=True)
class Optional:
    """An array or a pytree that is given or absent, all of it."""

    argument: ArrayArgument | Tree


@dataclass(frozen=True, slots=True)
class SameAs:
    """An argument that always equals another array, given by its name. `oracle_for` resolves it."""

    name: str


Argument = ArrayArgument | DimSize | Static | Tree | Optional
DECLARED = (ArrayArgument, DimSize, Static, Tree, Optional, SameAs)


def leaves(name: str, argument: Any) -> Iterator[tuple[str, ArrayArgument]]:
    """The arrays in an argument with their paths, such as `w` or `params.w.0`."""
    match argument:
        case ArrayArgument():
            yield name, argument
        case Optional():
            yield from leaves(name, argument.argument)
        case Tree():
            for path, part in argument.parts(name):
                yield from leaves(path, part)


def optionals(name: str, argument: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What of an argument may be absent: its path, and those of the arrays in it."""
    match argument:
        case Optional():
            yield name, tuple(path for path, _ in leaves(name, argument))
        case Tree():
            for path, part in argument.parts(name):
                yield from optionals(path, part)


def given(name: str, argument: ArrayArgument | Tree | Optional, values: Mapping[str, Any]) -> Any:
    """What stands for an argument, with the value of each array found by path; None where it is absent."""
    match argument:
        case ArrayArgument():
            return values[name]
        case Tree():
            return argument.filled(name, values)
        case Optional():
            present = any(path in values for path, _ in leaves(name, argument))
            return given(name, argument.argument, values) if present else None


def _is_unknown(part: Any) -> bool:
    """Whether JAX takes a dataclass of the author's for one value."""
    return dataclasses.is_dataclass(part) and not isinstance(part, (type, *DECLARED))


def _arrays_of(part: Any) -> list[str]:
    """The fields of a dataclass that hold something declared; others are as they are."""
    named = ((field.name, getattr(part, field.name)) for field in dataclasses.fields(part))
    return [name for name, value in named if any(True for _ in leaves(name, Tree(value)))]


def _filled(part: Any, path: str, values: Mapping[str, Any]) -> Any:
    return given(path, part, values) if isinstance(part, (ArrayArgument, Tree, Optional)) else part


def _refilled(part: Any, path: str, values: Mapping[str, Any]) -> Any:
    defaults = {field.name: field.default for field in dataclasses.fields(part)}
    changed = {}
    for name in _arrays_of(part):
        inner = f"{path}.{name}"
        made = Tree(getattr(part, name)).filled(inner, values)
        absent = made is None and defaults[name] is not dataclasses.MISSING
        changed[name] = defaults[name] if absent else made
    return dataclasses.replace(part, **changed)
