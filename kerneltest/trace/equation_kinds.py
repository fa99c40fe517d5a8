"""The kinds of equations in a kernel: what the rule that evaluates an equation goes by, apart from values and lengths.

Two signatures of a kernel mostly consist of equations of the same kinds, though no two of their jaxprs are alike.
"""

import re
from collections.abc import Hashable, Iterator
from enum import Enum

import numpy as np
from jax.tree_util import PyTreeDef

from kerneltest.trace.jax_compat.jaxpr_types import Atom, BlockMapping, ClosedJaxpr, Equation, Jaxpr, Literal
from kerneltest.trace.walk import iter_equations, nested_jaxprs, primitive_name, scan_counts

# Primitives that read or write a part of an array.
_ACCESSES = frozenset("get swap addupdate masked_load masked_swap load store atomic_rmw".split())
# Parameters that are lengths and positions. Numbers in others, such as axes, are of one kind only if they are equal.
_LENGTHS = frozenset("shape sizes slice_sizes new_sizes start_indices limit_indices length".split())
_LARGEST_AXIS = 7


def equation_kinds(jaxpr: ClosedJaxpr | Jaxpr) -> frozenset[Hashable]:
    """Returns the kinds of the equations at any depth of a jaxpr.

    An equation's kind is its primitive, its parameters, and the dtypes and shapes of what it takes and returns, in
    which a length is 0, 1 or more. How an access fits its array, and a block the array that it divides, are kinds of
    their own, for each axis.
    """
    return frozenset(kind for equation, _ in iter_equations(jaxpr) for kind in _kinds(equation))


def _kinds(equation: Equation) -> Iterator[Hashable]:
    name, parameters = primitive_name(equation), equation.params
    plain = tuple((key, _plain(value, key in _LENGTHS)) for key, value in sorted(parameters.items()))
    if any(True for value in parameters.values() for _ in nested_jaxprs(value)):  # whose equations follow
        yield name, plain, scan_counts(parameters) if name == "scan" else ()
    else:
        yield name, plain, tuple(map(_type, equation.invars)), tuple(map(_type, equation.outvars))
    if name in _ACCESSES:
        array, *others = (getattr(each.aval, "shape", ()) for each in (*equation.invars, *equation.outvars))
        for other in others:
            pairs = zip(array[::-1], other[::-1], strict=False)  # an access may select one index of the leading axes
            yield from ((name, axis, _fit(*pair)) for axis, pair in enumerate(pairs))
    if (grid := parameters.get("grid_mapping")) is not None:
        yield "grid", _plain(grid.grid, is_length=True)
        for number, block in enumerate(grid.block_mappings):
            yield from ((number, kind) for kind in _block_kinds(block))


def _block_kinds(block: BlockMapping) -> Iterator[Hashable]:
    for axis, (length, kind) in enumerate(zip(block.array_aval.shape, block.block_shape, strict=True)):
        yield axis, type(kind).__name__, _fit(length, getattr(kind, "block_size", kind))
    index_map = block.index_map_jaxpr
    yield from equation_kinds(index_map)
    opened = getattr(index_map, "jaxpr", index_map)
    programs = {variable: place for place, variable in enumerate(opened.invars)}
    yield tuple(
        programs.get(each, "computed") if not isinstance(each, Literal) else _type(each) for each in opened.outvars
    )


def _type(atom: Atom) -> Hashable:
    """Returns the type of an operand or result, and whether it is used; a constant number counts as a length."""
    if isinstance(atom, Literal) and np.ndim(atom.val) == 0 and np.asarray(atom.val).dtype.kind in "iu":
        return _plain(int(atom.val), is_length=True)
    shape = tuple(_plain(length, is_length=True) for length in getattr(atom.aval, "shape", ()))
    return str(getattr(atom.aval, "dtype", type(atom.aval).__name__)), shape, type(atom).__name__


def _plain(value: object, is_length: bool) -> Hashable:
    """Returns a parameter in a form to compare: a number below -1, or above 1 (lengths) or 7 (others), is a word."""
    if isinstance(value, (int, np.integer)):
        return "less" if value < -1 else int(value) if value <= (1 if is_length else _LARGEST_AXIS) else "more"
    if isinstance(value, (tuple, list)):
        return tuple(_plain(each, is_length) for each in value)
    if isinstance(value, PyTreeDef):  # holds the parts of an access
        return re.sub(r"\d+", lambda number: str(_plain(int(number[0]), is_length=True)), str(value))
    if value is None or isinstance(value, (str, Enum, np.dtype)):
        return str(value)
    return type(value).__name__


def _fit(length: object, part: object) -> str:
    """Returns how a part of an axis fits the axis: which of them is longer, and whether the part divides it."""
    if not (isinstance(length, int) and isinstance(part, int)):
        return type(part).__name__
    order = "<" if length < part else "=" if length == part else ">"
    return f"{order} whole" if part > 0 and length % part == 0 else order
