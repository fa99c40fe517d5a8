"""Arguments of a kernel: arrays, lengths of dims, static values, pytrees, and any of them absent."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kerneltest.declare.kinds.base import ArrayArgument as ArrayArgument
from kerneltest.declare.kinds.base import XpArray
from kerneltest.declare.relations import StaticValue

Pytree = Any  # of declarations or of values: dicts, lists, tuples, dataclasses, leaves


@dataclass(frozen=True, slots=True)
class DimSize:
    """A static argument that is the length of a dim."""

    dim: str


@dataclass(frozen=True, slots=True)
class Static:
    """A static argument with few values.

    Attributes:
      options: pairs of an option's name and the value that the kernel gets.
      named: the oracle gets the option's name instead of its value.
    """

    options: tuple[tuple[str, StaticValue], ...]
    named: bool

    def value(self, name: str) -> StaticValue:
        """Returns the value that the kernel gets for an option."""
        return dict(self.options)[name]


@dataclass(frozen=True, slots=True)
class Tree:
    """A pytree of arrays: any type that JAX accepts as one, and dataclasses that JAX does not know."""

    branches: Pytree

    def parts(self, name: str) -> Iterator[tuple[str, Pytree]]:
        """Yields its leaves, each with a path that starts with the tree's name, such as `params.w.0`.

        Raises:
          ValueError: JAX cannot sort its keys.
        """
        from jax import tree_util  # only JAX knows its pytrees; the kernel has imported it already

        for keys, part in tree_util.tree_flatten_with_path(self.branches)[0]:
            path = f"{name}.{tree_util.keystr(keys, simple=True, separator='.')}" if keys else name
            if _is_opaque_dataclass(part):
                for field in _declared_fields(part):
                    yield from Tree(getattr(part, field)).parts(f"{path}.{field}")
            else:
                yield path, part

    def fill(self, name: str, values: Mapping[str, XpArray]) -> Pytree:
        """Returns the same tree, of the same types, with each array replaced by the value at its path.

        An array without a value is absent: it is the default of a dataclass's field, and None anywhere else.
        """
        from jax import tree_util

        keyed, structure = tree_util.tree_flatten_with_path(self.branches)
        paths = [f"{name}.{tree_util.keystr(keys, simple=True, separator='.')}" if keys else name for keys, _ in keyed]
        filled = [
            _fill_dataclass(part, path, values) if _is_opaque_dataclass(part) else _fill_part(part, path, values)
            for path, (_, part) in zip(paths, keyed, strict=True)
        ]
        return tree_util.tree_unflatten(structure, filled)


@dataclass(frozen=True, slots=True)
class Optional:
    """An array or a pytree that is either given or absent as a whole."""

    argument: ArrayArgument | Tree


@dataclass(frozen=True, slots=True)
class SameAs:
    """An argument that always equals another array, given by its name. `oracle_for` resolves it."""

    name: str


Argument = ArrayArgument | DimSize | Static | Tree | Optional
DECLARED = (ArrayArgument, DimSize, Static, Tree, Optional, SameAs)


def leaves(name: str, argument: object) -> Iterator[tuple[str, ArrayArgument]]:
    """Yields the arrays in an argument with their paths, such as `w` or `params.w.0`."""
    match argument:
        case ArrayArgument():
            yield name, argument
        case Optional():
            yield from leaves(name, argument.argument)
        case Tree():
            for path, part in argument.parts(name):
                yield from leaves(path, part)


def optional_parts(name: str, argument: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the parts of an argument that may be absent: the path of each, and those of the arrays in it."""
    match argument:
        case Optional():
            yield name, tuple(path for path, _ in leaves(name, argument))
        case Tree():
            for path, part in argument.parts(name):
                yield from optional_parts(path, part)


def fill_argument(name: str, argument: ArrayArgument | Tree | Optional, values: Mapping[str, XpArray]) -> Pytree:
    """Returns an argument with each array replaced by the value at its path; None if it is absent."""
    match argument:
        case ArrayArgument():
            return values[name]
        case Tree():
            return argument.fill(name, values)
        case Optional():
            present = any(path in values for path, _ in leaves(name, argument))
            return fill_argument(name, argument.argument, values) if present else None


def _is_opaque_dataclass(part: object) -> bool:
    """Returns whether a leaf is a dataclass of the author's that is not registered with JAX."""
    return dataclasses.is_dataclass(part) and not isinstance(part, (type, *DECLARED))


def _declared_fields(part: Any) -> list[str]:
    """Returns the fields of a dataclass that hold declarations; the others stay as they are."""
    named = ((field.name, getattr(part, field.name)) for field in dataclasses.fields(part))
    return [name for name, value in named if any(True for _ in leaves(name, Tree(value)))]


def _fill_part(part: object, path: str, values: Mapping[str, XpArray]) -> Pytree:
    return fill_argument(path, part, values) if isinstance(part, (ArrayArgument, Tree, Optional)) else part


def _fill_dataclass(part: Any, path: str, values: Mapping[str, XpArray]) -> Pytree:
    defaults = {field.name: field.default for field in dataclasses.fields(part)}
    changed = {}
    for name in _declared_fields(part):
        value = Tree(getattr(part, name)).fill(f"{path}.{name}", values)
        absent = value is None and defaults[name] is not dataclasses.MISSING
        changed[name] = defaults[name] if absent else value
    return dataclasses.replace(part, **changed)
