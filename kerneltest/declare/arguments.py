"""What an argument of a kernel can be: an array, a dim's length, a static value, a pytree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

DEFAULT_FLOATS = ("float32", "bfloat16", "float16")
DEFAULT_INTEGERS = ("int32", "int8", "uint8")

Role = Literal["data", "mask", "index", "length"]


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array argument, or one leaf of a pytree.

    Attributes:
      shape: dim names and fixed lengths, outermost first.
      dtypes: names of what it may hold. Arguments that declare the same several dtypes change together.
      role: `data`, `mask` (booleans), `index` (0 to n - 1) or `length` (0 to n), n being the length of `bounded_by`.
      domain: least and greatest value of data; None for every value the dtype has.
      bounded_by: the dim that an index points into, or whose elements a length counts.
    """

    shape: tuple[str | int, ...]
    dtypes: tuple[str, ...]
    role: Role = "data"
    domain: tuple[float, float] | None = None
    bounded_by: str = ""


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
    """A pytree (dicts, lists and tuples) of arrays."""

    branches: Any


Argument = ArrayArgument | DimSize | Static | Tree


def array(
    shape: str, dtypes: str | Sequence[str] = DEFAULT_FLOATS, *, domain: tuple[float, float] | None = None
) -> ArrayArgument:
    """Declares an array of data.

        kt.array("m k"), kt.array("b 3 n", "int8"), kt.array("n", ("float32", "bfloat16"), domain=(0, 1))

    Args:
      shape: dim names and fixed lengths, outermost first, separated by spaces.
      dtypes: one dtype's name or several. Arguments that declare the same several dtypes change together.
      domain: least and greatest value. None for every value the dtype has, NaN and infinities included; a domain with
        an infinite end admits that infinity and NaN.

    Raises:
      ValueError: a word of `shape` is neither a name nor a length.
    """
    return ArrayArgument(_shape("array", shape), _names(dtypes), "data", domain)


def scalar(dtypes: str | Sequence[str] = DEFAULT_FLOATS, *, domain: tuple[float, float] | None = None) -> ArrayArgument:
    """Declares an array without axes.

    Args:
      dtypes: one dtype's name or several, as for `array`.
      domain: least and greatest value, as for `array`.
    """
    return ArrayArgument((), _names(dtypes), "data", domain)


def mask(shape: str) -> ArrayArgument:
    """Declares an array of booleans, True where an element counts.

    It is filled with nothing masked, everything, whole blocks, a row, a causal, a ragged and a random pattern.

    Args:
      shape: as for `array`, as in `"m n"`. At least one of its dims needs a block, declared in `dims=`.

    Raises:
      ValueError: a word of `shape` is neither a name nor a length.
    """
    return ArrayArgument(_shape("mask", shape), ("bool",), "mask")


def indices(shape: str, *, into: str, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that point at elements along a dim; its first and last element are among them.

    Args:
      shape: of the indices themselves, as in `"q"`.
      into: the dim they point into; values go from 0 to its length - 1.
      dtype: an integer dtype, by name.

    Raises:
      ValueError: a word of `shape` is neither a name nor a length.
    """
    return ArrayArgument(_shape("indices", shape), (dtype,), "index", bounded_by=into)


def lengths(shape: str, *, up_to: str, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that count elements along a dim; 0 and all of them are among them.

    Args:
      shape: of the lengths themselves, as in `"b"`.
      up_to: the dim whose elements they count; values go from 0 to its length.
      dtype: an integer dtype, by name.

    Raises:
      ValueError: a word of `shape` is neither a name nor a length.
    """
    return ArrayArgument(_shape("lengths", shape), (dtype,), "length", bounded_by=up_to)


def dim_size(dim: str) -> DimSize:
    """Declares a static integer argument that is the length of a dim, in elements, as in `iota(n)`.

    Args:
      dim: the dim's name. No array needs to have it.
    """
    return DimSize(dim)


def static(*values: Any, **named: Any) -> Static:
    """Declares a static argument (one that the kernel is traced anew for) and the values it can take.

        activation=kt.static("none", "relu")                    # kernel and oracle get the string
        activation=kt.static(none=None, relu=jax.nn.relu)       # the kernel gets the function, the oracle "relu"

    Args:
      values: what kernel and oracle both get. Records and patterns show `str()` of them.
      named: what the kernel gets, by names of which the oracle gets one.

    Raises:
      ValueError: both values and named values, or none at all.
    """
    if bool(values) == bool(named):
        raise ValueError("static: give either values or name=value options, and at least one")
    return Static(tuple(named.items()) if named else tuple((str(v), v) for v in values), bool(named))


def tree(branches: Any) -> Tree:
    """Declares a pytree of arrays, as in `params=kt.tree({"w": kt.array("m n"), "b": [kt.array("n")]})`.

    Args:
      branches: dicts, lists and tuples whose leaves are made by `array`, `scalar`, `mask`, `indices` or `lengths`. In
        reports and findings a leaf is called by its path, such as `params.b.0`.
    """
    return Tree(branches)


def leaves(name: str, argument: Any) -> Iterator[tuple[str, ArrayArgument]]:
    """The arrays in an argument with their paths, such as `w` or `params.w.0`."""
    if isinstance(argument, ArrayArgument):
        yield name, argument
    elif not isinstance(argument, (DimSize, Static)):
        for key, branch in _children(argument.branches if isinstance(argument, Tree) else argument):
            yield from leaves(f"{name}.{key}", branch)


def rebuild(path: str, branches: Any, values: Mapping[str, Any]) -> Any:
    """The branches of a pytree with each array replaced by its value, found by path."""
    if isinstance(branches, ArrayArgument):
        return values[path]
    children = {key: rebuild(f"{path}.{key}", branch, values) for key, branch in _children(branches)}
    if isinstance(branches, Mapping):
        return {key: children[str(key)] for key in branches}
    return type(branches)(children.values())


def _children(branches: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(branches, Mapping):
        yield from ((str(key), branches[key]) for key in sorted(branches))
    elif isinstance(branches, (list, tuple)):
        yield from ((str(i), branch) for i, branch in enumerate(branches))


def _shape(function: str, text: str) -> tuple[str | int, ...]:
    for word in text.split():
        if not (word.isdigit() or word.isidentifier()):
            raise ValueError(
                f"{function}: {word!r} is neither a dim's name nor a length; separate axes by spaces, as in 'm 3 n'"
            )
    return tuple(int(word) if word.isdigit() else word for word in text.split())


def _names(dtypes: str | Sequence[str]) -> tuple[str, ...]:
    return (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
