"""Arguments of a kernel: arrays, lengths of dims, static values, pytrees, and any of them absent."""

import csv
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneltest.declare.dims import Relation, StaticValue, parse_relation, required_parameters
from kerneltest.declare.kinds.base import ArrayArgument as ArrayArgument
from kerneltest.declare.kinds.base import XpArray
from kerneltest.declare.problems import hide_frames

Pytree = Any  # of declarations or of values: dicts, lists, tuples, dataclasses, leaves


@dataclass(frozen=True, slots=True)
class DimSize:
    """A static argument that is the length of a dim."""

    dim: str


@dataclass(frozen=True, slots=True)
class Static:
    """A static argument with few values."""

    options: tuple[tuple[str, StaticValue], ...]  # pairs of an option's name and the value that the kernel gets
    named: bool  # the oracle gets the option's name instead of its value
    key: Callable[..., Any] | None = None  # from lengths to the key of the only option that the kernel takes then

    def value(self, name: str) -> StaticValue:
        return dict(self.options)[name]

    def selected(self, name: str, relation: Relation | None) -> Relation:
        """Returns the relation that the argument of this name is the row of a table, in addition to another one."""
        assert self.key is not None
        key, option, more = parse_relation(self.key), option_of(name), relation.parameters if relation else ()

        def holds(**known: Any) -> bool:
            row = _row_name(key.function(**{each: known[each] for each in key.parameters}))
            return row == known[option] and (relation is None or relation.holds(known, {}))

        return Relation(holds, tuple(dict.fromkeys((*key.parameters, option, *more))))


def option_of(name: str) -> str:
    """The name by which relations get the option of a static argument, and not its value, which rows may share."""
    return f"the option of {name}"


@dataclass(frozen=True, slots=True)
class Tree:
    """A pytree of arrays: any type that JAX accepts as one, and dataclasses that JAX does not know."""

    branches: Pytree

    def parts(self, name: str) -> Iterator[tuple[str, Pytree]]:
        """Yields its leaves by path, such as `params.w.0`; a ValueError if JAX cannot sort its keys."""
        from jax import tree_util  # only JAX knows its pytrees; the kernel has imported it already

        for keys, part in tree_util.tree_flatten_with_path(self.branches)[0]:
            path = f"{name}.{tree_util.keystr(keys, simple=True, separator='.')}" if keys else name
            if _is_opaque_dataclass(part):
                for field in _declared_fields(part):
                    yield from Tree(getattr(part, field)).parts(f"{path}.{field}")
            else:
                yield path, part

    def fill(self, name: str, values: Mapping[str, XpArray]) -> Pytree:
        """Returns the same tree with the value at each array's path; absent ones have their default, or None."""
        from jax import tree_util

        keyed, structure = tree_util.tree_flatten_with_path(self.branches)
        paths = [f"{name}.{tree_util.keystr(keys, simple=True, separator='.')}" if keys else name for keys, _ in keyed]
        filled = [
            _fill_dataclass(part, path, values) if _is_opaque_dataclass(part) else fill_argument(path, part, values)
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


def tables_in(arguments: Mapping[str, object]) -> dict[str, Static]:
    """Returns the static arguments that are rows of tables, by name."""
    return {name: each for name, each in arguments.items() if isinstance(each, Static) and each.key is not None}


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


def fill_argument(name: str, argument: object, values: Mapping[str, XpArray]) -> Pytree:
    """Returns an argument with each array replaced by the value at its path, None if it is absent; others as given."""
    match argument:
        case ArrayArgument():
            return values[name]
        case Tree():
            return argument.fill(name, values)
        case Optional():
            present = any(path in values for path, _ in leaves(name, argument))
            return fill_argument(name, argument.argument, values) if present else None
    return argument


def _is_opaque_dataclass(part: object) -> bool:
    """Returns whether a leaf is a dataclass of the author's that is not registered with JAX."""
    return dataclasses.is_dataclass(part) and not isinstance(part, (type, *DECLARED))


def _declared_fields(part: Any) -> list[str]:
    """Returns the fields of a dataclass that hold declarations; the others stay as they are."""
    named = ((field.name, getattr(part, field.name)) for field in dataclasses.fields(part))
    return [name for name, value in named if any(True for _ in leaves(name, Tree(value)))]


def _fill_dataclass(part: Any, path: str, values: Mapping[str, XpArray]) -> Pytree:
    defaults = {field.name: field.default for field in dataclasses.fields(part)}
    changed = {}
    for name in _declared_fields(part):
        value = Tree(getattr(part, name)).fill(f"{path}.{name}", values)
        absent = value is None and defaults[name] is not dataclasses.MISSING
        changed[name] = defaults[name] if absent else value
    return dataclasses.replace(part, **changed)


# Declarations of static arguments: values that the kernel is traced anew for, and lengths of dims.

_LONGEST_NAME = 60  # characters


@dataclass(frozen=True, slots=True)
class NamedOption:
    """A static value with the name that records show, as returned by `named`."""

    name: str
    value: StaticValue


@hide_frames
def dim_size(dim: str) -> DimSize:
    """Declares a static integer argument that is the length of a dim, as in `n=kt.dim_size("n")` for `iota(n)`.

    Args:
      dim: the dim's name. It need not be an axis of an array.
    """
    return DimSize(dim)


class StaticDeclaration:
    """Declares a static argument by its values, as `kt.static("none", "relu")`, or by a table, as its `from_table`."""

    def __repr__(self) -> str:
        return "kt.static"

    @hide_frames
    def __call__(self, *values: StaticValue, **named: StaticValue) -> Static:
        """Declares a static argument (one that the kernel is traced anew for) and the values it can take.

            activation=kt.static("none", "relu")                    # kernel and oracle get the string
            activation=kt.static(none=None, relu=jax.nn.relu)       # the kernel gets the function, the oracle "relu"
            config=kt.static(kt.named("small", Config(64)), kt.named("large", Config(128)))  # both get the object

        Args:
          values: what both the kernel and the oracle get: a number, a function, a frozen dataclass. Records and
            patterns show a function's name, the name given by `kt.named`, or else `str()` of the value.
          named: values for the kernel, by the names that the oracle gets in their place.

        Raises:
          ValueError: there are both values and named values, or neither; two values have the same name; a value has no
            short name, or two names; or the only value is a list or a set.
        """
        if bool(values) == bool(named):
            raise ValueError("static: give either values or name=value options, and at least one")
        if named:
            if wrapped := [name for name, value in named.items() if isinstance(value, NamedOption)]:
                raise ValueError(f"static: {wrapped[0]}= is a name already; give the value itself, without kt.named")
            return Static(tuple(named.items()), named=True)
        if len(values) == 1 and isinstance(values[0], list | set):
            shown = ", ".join(map(repr, values[0]))
            raise ValueError(f"static: {values[0]!r} is one value; give each as an argument: kt.static({shown})")
        options = [(v.name, v.value) if isinstance(v, NamedOption) else (_name_of(v), v) for v in values]
        names = [name for name, _ in options]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(
                f"static: two values read {twice[0]!r} in records; name them, as in "
                "kt.static(kt.named('one', ...), ...)"
            )
        return Static(tuple(options), named=False)

    @hide_frames
    def from_table(self, table: "Mapping[Any, StaticValue] | str | Path", *, key: Callable[..., Any]) -> Static:
        """Declares a static argument that is a row of a table, as a tuned configuration for some lengths is.

            config=kt.static.from_table("tuned.json", key=lambda m, k: (m, k))

        Args:
          table: a mapping from keys to rows, or a file of one: a JSON object, or CSV with columns for the parameters of
            `key`, of which a row is a dictionary of the others. Numbers, `true` and `false` in CSV are converted. Keys
            are compared as text: `64x128` for `(64, 128)`.
          key: takes lengths of dims by name, and returns the key of the row that the kernel gets then.

        Raises:
          ValueError: the table has no rows, lacks a column or a field, or has two rows for one key.
        """
        if not isinstance(table, Mapping):
            text = Path(table).read_text(encoding="utf-8")
            table = json.loads(text) if str(table).endswith(".json") else _csv_rows(text, required_parameters(key))
        if not isinstance(table, Mapping) or not table:
            raise ValueError("static.from_table: give a mapping from keys to rows, a JSON object, or a CSV file")
        names = [_row_name(each) for each in table]
        if any(isinstance(row, NamedOption) for row in table.values()):
            raise ValueError("static.from_table: the key of a row is its name; give the row itself, without kt.named")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"static.from_table: two keys of the table read {twice[0]!r} as text")
        return Static(tuple(zip(names, table.values(), strict=True)), named=False, key=key)


static = StaticDeclaration()


def _row_name(key: Any) -> str:
    return "x".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _csv_rows(text: str, keys: Sequence[str]) -> dict[tuple[Any, ...], StaticValue]:
    found = csv.DictReader(text.splitlines(), skipinitialspace=True)
    if missing := [name for name in keys if name not in (found.fieldnames or ())]:
        raise ValueError(f"static.from_table: the table has no column {missing[0]!r}, which key= takes")
    rows = {}
    for row in found:
        if None in row or None in row.values():
            raise ValueError(f"static.from_table: line {found.line_num} has another number of fields than the first")
        values = {name: _csv_value(value) for name, value in row.items()}
        key = tuple(values.pop(name) for name in keys)
        if key in rows:
            raise ValueError(f"static.from_table: line {found.line_num} is a second row for {_row_name(key)}")
        rows[key] = values
    return rows


def _csv_value(text: str) -> StaticValue:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


@hide_frames
def named(name: str, value: StaticValue) -> NamedOption:
    """Returns a value of `kt.static` with the name that records show, for an object whose `str()` is long or opaque.

    Args:
      name: of the value, as in `"small"`.
      value: what kernel and oracle both get.

    Raises:
      ValueError: the name is not an identifier.
    """
    if not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(f"named: the name is one word, such as 'small', not {name!r}")
    return NamedOption(name, value)


def _name_of(value: StaticValue) -> str:
    """Returns the name that records show for a value."""
    name = getattr(value, "__name__", None)
    text = name if callable(value) and isinstance(name, str) and name.isidentifier() else str(value)
    if " at 0x" in text or len(text) > _LONGEST_NAME or "\n" in text:
        shown = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
        raise ValueError(f"static: {shown} is not a usable name in records; name the value: kt.named('small', ...)")
    return text


# Declarations that combine arrays: pytrees, arrays that may be absent, and arrays that equal others.


@hide_frames
def tree(branches: Pytree) -> Tree:
    """Declares a pytree of arrays, as in `params=kt.tree({"w": kt.array("m n"), "b": [kt.array("n")]})`.

    Args:
      branches: a pytree (dicts, lists, tuples, NamedTuples, dataclasses) whose leaves are declared by `kt.array`,
        `kt.mask` and so on, or by `kt.optional`. Fields of a dataclass that JAX does not know may hold anything else.
        Kernel and oracle get the same types. Reports and findings call a leaf by its path, such as `params.b.0`.
    """
    return Tree(branches)


@hide_frames
def optional(argument: ArrayArgument | Tree) -> Optional:
    """Declares an array or a pytree that may be absent: both cases are planned.

        bias=kt.optional(kt.array("n"))

    If it is absent, kernel and oracle are called without the argument if their parameter has a default, and get None
    otherwise. In a pytree, it is None or the default of a dataclass's field. Records show `bias=absent`.

    Args:
      argument: an array or a `kt.tree`.

    Raises:
      ValueError: it is neither.
    """
    if not isinstance(argument, (ArrayArgument, Tree)):
        raise ValueError(f"optional: give an array or a tree, as in kt.optional(kt.array('n')), not {argument!r}")
    return Optional(argument)


@hide_frames
def same_as(name: str) -> SameAs:
    """Declares an argument that always equals another one: `v=kt.same_as("k")`.

    Args:
      name: of the other argument, an array.
    """
    return SameAs(name)
