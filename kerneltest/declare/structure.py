"""Declarations that combine arrays: pytrees, arrays that may be absent, and arrays that equal others."""

from kerneltest.declare.arguments import ArrayArgument, Optional, Pytree, SameAs, Tree
from kerneltest.declare.problems import hide_frames


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


def same_as(name: str) -> SameAs:
    """Declares an argument that always equals another one: `v=kt.same_as("k")`.

    Args:
      name: of the other argument, an array.
    """
    return SameAs(name)
