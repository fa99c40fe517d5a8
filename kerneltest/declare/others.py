"""What declares lengths, static values, pytrees, and arrays that follow from others or may be absent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kerneltest.core.failures import format_exception
from kerneltest.declare.arguments import ArrayArgument, Derivation, DimSize, Optional, SameAs, Static, Tree
from kerneltest.declare.arrays import DEFAULT_FLOATS, array
from kerneltest.declare.relations import required

_NAME = 60  # characters of a static value's own name


@dataclass(frozen=True, slots=True)
class Named:
    """A static value with the name that records show. As `named` makes it."""

    name: str
    value: Any


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
        config=kt.static(kt.named("small", Config(64)), kt.named("large", Config(128)))  # both get the object

    Args:
      values: what kernel and oracle both get, whatever it is: a number, a function, a frozen dataclass. Records and
        patterns show a function's name, the name that `kt.named` gives, or else `str()` of it.
      named: what the kernel gets, by names of which the oracle gets one.

    Raises:
      ValueError: both values and named values, none at all, two that read the same, one that has no short name, or one
        that has two.
    """
    if bool(values) == bool(named):
        raise ValueError("static: give either values or name=value options, and at least one")
    if named:
        if wrapped := [name for name, value in named.items() if isinstance(value, Named)]:
            raise ValueError(f"static: {wrapped[0]}= is a name already; give the value itself, without kt.named")
        return Static(tuple(named.items()), named=True)
    options = [(each.name, each.value) if isinstance(each, Named) else (_text(each), each) for each in values]
    texts = [text for text, _ in options]
    if twice := [text for text in texts if texts.count(text) > 1]:
        raise ValueError(
            f"static: two values read {twice[0]!r} in records; name them, as in kt.static(kt.named('one', ...), ...)"
        )
    return Static(tuple(options), named=False)


def named(name: str, value: Any) -> Named:
    """A value of `kt.static` with the name that records show, for an object whose `str()` is long or tells nothing.

    Args:
      name: of the value, as in `"small"`.
      value: what kernel and oracle both get.

    Raises:
      ValueError: a name that is no identifier.
    """
    if not (isinstance(name, str) and name.isidentifier()):
        raise ValueError(f"named: the name is one word, such as 'small', not {name!r}")
    return Named(name, value)


def _text(value: Any) -> str:
    name = getattr(value, "__name__", None)
    text = name if callable(value) and isinstance(name, str) and name.isidentifier() else str(value)
    if " at 0x" in text or len(text) > _NAME or "\n" in text:
        shown = text if len(text) <= _NAME else f"{text[:_NAME]}..."
        raise ValueError(f"static: {shown} is no name to tell it by in records; give it one: kt.named('small', ...)")
    return text


def tree(branches: Any) -> Tree:
    """Declares a pytree of arrays, as in `params=kt.tree({"w": kt.array("m n"), "b": [kt.array("n")]})`.

    Args:
      branches: a pytree (dicts, lists, tuples, NamedTuples, dataclasses) whose leaves are arrays, as `kt.array` and its
        neighbours declare them, or `kt.optional` of these. Fields of a dataclass that JAX does not know may hold
        anything else. Kernel and oracle get the same types. In reports and findings a leaf is called by its path, such
        as `params.b.0`.
    """
    return Tree(branches)


def optional(argument: ArrayArgument | Tree) -> Optional:
    """Declares an array or a pytree that may be absent: both are planned for.

        bias=kt.optional(kt.array("n"))

    Where it is absent, kernel and oracle are called without the argument if their parameter has a default, and get None
    if not; in a pytree, None or the default of a dataclass's field stands in its place. Records show `bias=absent`.

    Args:
      argument: as `kt.array` and its neighbours, or `kt.tree`, declare it.

    Raises:
      ValueError: it is neither.
    """
    if not isinstance(argument, (ArrayArgument, Tree)):
        raise ValueError(f"optional: give an array or a tree, as in kt.optional(kt.array('n')), not {argument!r}")
    return Optional(argument)


def derived(shape: str, function: Callable[..., Any], *, dtypes: str | Sequence[str] = DEFAULT_FLOATS) -> ArrayArgument:
    """Declares an array that follows from other arguments, and with them is made smaller when a finding is minimised.

        count=kt.derived("", lambda mask: mask.sum(), dtypes="int32")
        tables=kt.derived("b p", lambda rng, lengths, pages: ..., dtypes="int32")

    Args:
      shape: as for `array`.
      function: makes it. Its parameters are names of arguments (NumPy arrays in the kernel's dtypes, static values), of
        dims (lengths), and `rng`, a NumPy generator whose seed follows from the arrays that it takes. One with a
        default is left alone.
      dtypes: as for `array`; what the function returns is cast.
    """
    made = array(shape, dtypes)
    try:
        of = required(function)
    except (TypeError, ValueError) as error:
        return ArrayArgument(
            (), (), "derived", problem=f"it follows from no function of its own: {format_exception(error)}"
        )
    return ArrayArgument(made.shape, made.dtypes, "derived", derivation=Derivation(function, of), problem=made.problem)


def same_as(name: str) -> SameAs:
    """Declares an argument that always equals another one: `v=kt.same_as("k")`.

    Args:
      name: of the other argument, an array.
    """
    return SameAs(name)
