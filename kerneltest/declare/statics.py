"""Declarations of static arguments: values that the kernel is traced anew for, and lengths of dims."""

from dataclasses import dataclass

from kerneltest.declare.arguments import DimSize, Static
from kerneltest.declare.problems import hide_frames
from kerneltest.declare.relations import StaticValue

_LONGEST_NAME = 60  # characters


@dataclass(frozen=True, slots=True)
class NamedOption:
    """A static value with the name that records show, as returned by `named`."""

    name: str
    value: StaticValue


def dim_size(dim: str) -> DimSize:
    """Declares a static integer argument that is the length of a dim, in elements, as in `iota(n)`.

    Args:
      dim: the dim's name. It need not be an axis of an array.
    """
    return DimSize(dim)


@hide_frames
def static(*values: StaticValue, **named: StaticValue) -> Static:
    """Declares a static argument (one that the kernel is traced anew for) and the values it can take.

        activation=kt.static("none", "relu")                    # kernel and oracle get the string
        activation=kt.static(none=None, relu=jax.nn.relu)       # the kernel gets the function, the oracle "relu"
        config=kt.static(kt.named("small", Config(64)), kt.named("large", Config(128)))  # both get the object

    Args:
      values: what both the kernel and the oracle get: a number, a function, a frozen dataclass. Records and patterns
        show a function's name, the name given by `kt.named`, or else `str()` of the value.
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
    options = [(each.name, each.value) if isinstance(each, NamedOption) else (_name_of(each), each) for each in values]
    names = [name for name, _ in options]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"static: two values read {twice[0]!r} in records; name them, as in kt.static(kt.named('one', ...), ...)"
        )
    return Static(tuple(options), named=False)


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
