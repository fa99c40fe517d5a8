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
      role: `data`, `mask` (booleans), `index` (0 to n - 1) or `length` (0 to n), n being the length of `of`.
      domain: least and greatest value of data; None for every value the dtype has.
      of: the dim that an index points into, or that a length is counted in.
    """

    shape: tuple[str | int, ...]
    dtypes: tuple[str, ...]
    role: Role = "data"
    domain: tuple[float, float] | None = None
    of: str = ""


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

    Args:
      shape: dim names and fixed lengths, outermost first, as in `"m k"` or `"b 3 n"`.
      dtypes: one name or several. Arguments that declare the same several dtypes change together.
      domain: least and greatest value; None for every value the dtype has, NaN and infinities included.
    """
    return ArrayArgument(_shape(shape), _names(dtypes), "data", domain)


def scalar(dtypes: str | Sequence[str] = DEFAULT_FLOATS, *, domain: tuple[float, float] | None = None) -> ArrayArgument:
    """Declares an array without axes; see `array` for `dtypes` and `domain`."""
    return ArrayArgument((), _names(dtypes), "data", domain)


def mask(shape: str) -> ArrayArgument:
    """Declares booleans of a shape such as `"m n"`: filled with none, all, causal, ragged and whole-block patterns."""
    return ArrayArgument(_shape(shape), ("bool",), "mask")


def indices(shape: str, *, into: str, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that point at elements of a dim; the first and the last element are among them.

    Args:
      shape: of the indices, as in `"q"`.
      into: the dim they point into; values go from 0 to its length - 1.
      dtype: an integer dtype, by name.
    """
    return ArrayArgument(_shape(shape), (dtype,), "index", of=into)


def lengths(shape: str, *, up_to: str, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that count elements of a dim; 0 and all of it are among them.

    Args:
      shape: of the lengths, as in `"b"`.
      up_to: the dim they count; values go from 0 to its length.
      dtype: an integer dtype, by name.
    """
    return ArrayArgument(_shape(shape), (dtype,), "length", of=up_to)


def dim_size(dim: str) -> DimSize:
    """Declares a static integer argument that is the length of `dim`, as in `iota(n)`."""
    return DimSize(dim)


def static(*values: Any, **named: Any) -> Static:
    """Declares a static argument and its options.

    `static("none", "relu")` gives kernel and oracle the value itself. `static(none=None, relu=jax.nn.relu)` gives the
    kernel the value and the oracle the name.

    Raises:
      ValueError: both values and named options, or none at all.
    """
    if bool(values) == bool(named):
        raise ValueError("static: give either values or name=value options, and at least one")
    return Static(tuple(named.items()) if named else tuple((str(v), v) for v in values), bool(named))


def tree(branches: Any) -> Tree:
    """Declares a pytree: dicts, lists and tuples whose leaves are `array`, `scalar`, `mask`, `indices`, `lengths`."""
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


def _shape(text: str) -> tuple[str | int, ...]:
    return tuple(int(word) if word.isdigit() else word for word in text.split())


def _names(dtypes: str | Sequence[str]) -> tuple[str, ...]:
    return (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
