"""The width of the operands of a kernel's matrix products: whether it rounds values to 16 bits before it multiplies."""

from collections.abc import Container, Iterator

import numpy as np

from kerneltest.core.dtypes import is_float
from kerneltest.trace.jax_compat.jaxpr_types import Atom, Equation, Jaxpr, Literal, Var
from kerneltest.trace.walk import MOVES, nested_jaxprs, primitive_name

_STORES = frozenset("swap store masked_swap masked_store addupdate".split())


def has_narrow_products(jaxpr: Jaxpr) -> bool:
    """Returns whether a product may have an operand that the kernel rounded to 16 bits.

    That is so if it multiplies matrices of 16 bits, or values that it rounded to 16 bits and widened again. A kernel
    without matrix products may multiply such values one by one. If in doubt, and without arguments of 16 bits, where it
    does not matter, the answer is yes.
    """
    if not any(_bytes_of_float(each) == 2 for each in jaxpr.invars):
        return True
    nested = list(_iter_jaxprs(jaxpr))
    dots = [(each, dot) for each in nested for dot in each.eqns if primitive_name(dot) == "dot_general"]
    results = {each for each in jaxpr.outvars if not isinstance(each, Literal)}
    rounds = any(
        _is_used(each, equation, results) for each in nested for equation in each.eqns if _is_narrowing(equation)
    )
    if not dots:
        return rounds
    exact = frozenset(jaxpr.invars)
    return any(_is_narrow(each, operand, exact, rounds) for each, dot in dots for operand in dot.invars)


def _iter_jaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Yields a jaxpr and all nested ones."""
    yield jaxpr
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for inner in nested_jaxprs(value):
                yield from _iter_jaxprs(inner)


def _is_narrow(jaxpr: Jaxpr, operand: Atom, exact: frozenset[Var], rounds: bool) -> bool:
    """Returns whether an operand of a product is of 16 bits, or a value that was rounded to 16 bits.

    Args:
      jaxpr: that of the product.
      operand: the operand.
      exact: the kernel's arguments, which it did not round.
      rounds: whether the kernel rounds any value that it does not just store; this decides for values that come from
        outside of the jaxpr.
    """
    if _bytes_of_float(operand) in (1, 2):
        return True
    made_by = {variable: equation for equation in jaxpr.eqns for variable in equation.outvars}
    todo, seen = [operand], set()
    while todo:
        atom = todo.pop()
        if isinstance(atom, Literal) or atom in seen or atom in exact:
            continue
        seen.add(atom)
        equation = made_by.get(atom)
        if equation is None or any(True for value in equation.params.values() for _ in nested_jaxprs(value)):
            if rounds and _bytes_of_float(atom):
                return True
        elif _is_narrowing(equation):
            return True
        elif primitive_name(equation) in MOVES or primitive_name(equation) == "convert_element_type":
            todo.extend(equation.invars)
    return False


def _is_narrowing(equation: Equation) -> bool:
    if primitive_name(equation) == "reduce_precision":
        return True
    if primitive_name(equation) != "convert_element_type":
        return False
    return _bytes_of_float(equation.invars[0]) >= 4 and _bytes_of_float(equation.outvars[0]) in (1, 2)


def _is_used(jaxpr: Jaxpr, narrowing: Equation, results: Container[Var]) -> bool:
    """Returns whether a rounded value goes anywhere but into memory or into the results of the kernel."""
    (rounded,) = narrowing.outvars
    if rounded not in results and any(variable is rounded for variable in jaxpr.outvars):
        return True
    uses = [each for each in jaxpr.eqns if any(variable is rounded for variable in each.invars)]
    return any(primitive_name(each) not in _STORES for each in uses)


def _bytes_of_float(atom: Atom) -> int:
    """Returns the size of an element, 0 if it is not a float."""
    dtype = getattr(atom.aval, "dtype", None)
    try:
        return np.dtype(dtype).itemsize if dtype is not None and is_float(np.dtype(dtype)) else 0
    except TypeError:
        return 0  # a key, a semaphore or a barrier
