"""Equations of a jaxpr, those in nested jaxprs included."""

from collections.abc import Iterator
from typing import Any

from jax.extend.core import Jaxpr

from kerneltest.jaxprs.compat.closed import ClosedJaxpr

# The primitives by which a function enters a Pallas kernel.
ENTRIES = frozenset({"pallas_call", "core_map", "mpmd_map"})
_LOOPS = frozenset({"scan", "while"})


def name_of(equation: Any) -> str:
    """The name of its primitive."""
    return str(equation.primitive.name)


def nested(value: Any) -> Iterator[Any]:
    """The jaxprs in one parameter of an equation."""
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, ClosedJaxpr):
            yield item.jaxpr
        elif isinstance(item, Jaxpr):
            yield item


def equations(jaxpr: Any, *, looped: bool = False) -> Iterator[tuple[Any, bool]]:
    """Every equation at any depth, and whether it lies in a loop."""
    for equation in jaxpr.eqns:
        yield equation, looped
        for value in equation.params.values():
            for inner in nested(value):
                yield from equations(inner, looped=looped or name_of(equation) in _LOOPS)
