"""What an argument of a kernel can be: an array, a dim's length, a static value, a pytree."""

import keyword
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

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
      problem: what is wrong with it, as its pairing tells once it knows the argument's name; "" if nothing is.
    """

    shape: tuple[str | int, ...]
    dtypes: tuple[str, ...]
    role: Role = "data"
    domain: tuple[float, float] | None = None
    bounded_by: str = ""
    problem: str = ""


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
    """A pytree of arrays: whatever JAX takes for one."""

    branches: Any

    def leaves(self, name: str) -> Iterator[tuple[str, Any]]:
        """What is in it, each with its path, such as `params.w.0`, from the tree's name on.

        Raises:
          ValueError: keys that JAX cannot sort.
        """
        from jax import tree_util  # JAX alone knows what is a pytree; who declares one has a kernel, and so JAX

        for keys, leaf in tree_util.tree_flatten_with_path(self.branches)[0]:
            yield f"{name}.{tree_util.keystr(keys, simple=True, separator='.')}" if keys else name, leaf

    def filled(self, name: str, values: Mapping[str, Any]) -> Any:
        """The same tree, of the same types, with each array replaced by its value, found by path."""
        from jax import tree_util

        structure = tree_util.tree_structure(self.branches)
        return tree_util.tree_unflatten(structure, [values[path] for path, _ in self.leaves(name)])


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
    """
    return _checked(shape, dtypes, "data", domain)


def scalar(dtypes: str | Sequence[str] = DEFAULT_FLOATS, *, domain: tuple[float, float] | None = None) -> ArrayArgument:
    """Declares an array without axes.

    Args:
      dtypes: one dtype's name or several, as for `array`.
      domain: least and greatest value, as for `array`.
    """
    return _checked("", dtypes, "data", domain)


def mask(shape: str) -> ArrayArgument:
    """Declares an array of booleans, True where an element counts.

    It is filled with nothing masked, everything, whole blocks, a row, a causal, a ragged and a random pattern.

    Args:
      shape: as for `array`, as in `"m n"`. At least one of its dims needs a block, declared in `dims=`.
    """
    return _checked(shape, "bool", "mask")


def indices(shape: str, *, into: str, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that point at elements along a dim; its first and last element are among them.

    Args:
      shape: of the indices themselves, as in `"q"`.
      into: the dim they point into; values go from 0 to its length - 1.
      dtype: an integer dtype, by name.
    """
    return _checked(shape, dtype, "index", bounded_by=into)


def lengths(shape: str, *, up_to: str, dtype: str = "int32") -> ArrayArgument:
    """Declares integers that count elements along a dim; 0 and all of them are among them.

    Args:
      shape: of the lengths themselves, as in `"b"`.
      up_to: the dim whose elements they count; values go from 0 to its length.
      dtype: an integer dtype, by name.
    """
    return _checked(shape, dtype, "length", bounded_by=up_to)


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
      ValueError: both values and named values, none at all, or two that read the same.
    """
    if bool(values) == bool(named):
        raise ValueError("static: give either values or name=value options, and at least one")
    texts = [str(value) for value in values]
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise ValueError(
            f"static: two values read {twice[0]!r} in records; name them, as in kt.static(one=..., two=...)"
        )
    return Static(tuple(named.items()) if named else tuple((str(v), v) for v in values), bool(named))


def tree(branches: Any) -> Tree:
    """Declares a pytree of arrays, as in `params=kt.tree({"w": kt.array("m n"), "b": [kt.array("n")]})`.

    Args:
      branches: a pytree (dicts, lists, tuples, NamedTuples, dataclasses that JAX knows) whose leaves are made by
        `array`, `scalar`, `mask`, `indices` or `lengths`. Kernel and oracle get the same types. In reports and findings
        a leaf is called by its path, such as `params.b.0`.
    """
    return Tree(branches)


def leaves(name: str, argument: Any) -> Iterator[tuple[str, ArrayArgument]]:
    """The arrays in an argument with their paths, such as `w` or `params.w.0`."""
    if isinstance(argument, ArrayArgument):
        yield name, argument
    elif isinstance(argument, Tree):
        yield from argument.leaves(name)


def _checked(shape: Any, dtypes: Any, role: Role, domain: Any = None, bounded_by: Any = "") -> ArrayArgument:
    """An array argument, or one that says what is wrong with it."""
    problem = (
        _shape_problem(shape) or _dtypes_problem(dtypes) or _domain_problem(domain)
        or (_name_problem(bounded_by) if role in ("index", "length") else "")
    )  # fmt: skip
    if problem:
        return ArrayArgument((), (), role, problem=problem)
    axes = tuple(int(word) if word.isdecimal() else word for word in shape.split())
    names = (dtypes,) if isinstance(dtypes, str) else tuple(dtypes)
    return ArrayArgument(axes, names, role, domain, bounded_by)


def _shape_problem(shape: Any) -> str:
    if not isinstance(shape, str):
        axes = " ".join(map(str, shape if isinstance(shape, (tuple, list)) else (shape,)))
        return f"its shape is one string, as in {axes!r}, not {shape!r}"
    for word in shape.split():
        if not (_is_name(word) or (word.isdecimal() and word.isascii())):
            return f"{word!r} is neither a dim's name nor a length; separate axes by spaces, as in 'm 3 n'"
    return ""


def _dtypes_problem(dtypes: Any) -> str:
    if isinstance(dtypes, str):
        return ""
    for each in dtypes if isinstance(dtypes, (tuple, list)) else (dtypes,):
        if not isinstance(each, str):
            return f"its dtypes are given by name, as in {_name_of_dtype(each)!r}, not {each!r}"
    return ""


def _name_of_dtype(given: Any) -> str:
    try:
        return str(np.dtype(given).name)
    except TypeError:
        return "float32"


def _domain_problem(domain: Any) -> str:
    if domain is None:
        return ""
    pair = isinstance(domain, (tuple, list)) and len(domain) == 2
    if not pair or not all(isinstance(end, (Real, np.number)) and not math.isnan(end) for end in domain):
        return f"its domain is the least and the greatest value, as in domain=(0, 1), not {domain!r}"
    return "" if domain[0] <= domain[1] else f"its domain {domain} is empty"


def _name_problem(name: Any) -> str:
    return "" if _is_name(name) else f"a dim is given by its name, as in 'n', not {name!r}"


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
