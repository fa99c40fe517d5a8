"""Edits of equations that only mutation operators need, in addition to those of `localize.equation_edits`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerneltest.localize.equation_edits import Function, define, dtype_of
from kerneltest.trace.jax_compat.jaxpr_types import Atom, Equation, Literal, Var
from kerneltest.trace.walk import new_variable


def shape_of(atom: Atom) -> tuple[int, ...]:
    """The shape of an array."""
    shape: tuple[int, ...] = atom.aval.shape
    return shape


def before(equation: Equation, functions: dict[int, Function]) -> list[Equation]:
    """Returns an equation on changed operands: by their number, the function that changes each."""
    operands, added = list(equation.invars), []
    for number, function in functions.items():
        operand = operands[number]
        if isinstance(operand, Literal):
            value = np.asarray(function(np.asarray(operand.val, dtype_of(operand))), dtype_of(operand))
            operands[number] = with_value(operand, value)
        else:
            operands[number] = new_variable(operand)
            added += define(operands[number], function, [operand])
    return [*added, equation.replace(invars=operands)]


def with_value(literal: Literal, value: Any) -> Literal:
    """Returns a literal of the same type with another value."""
    return type(literal)(np.asarray(value, dtype_of(literal))[()], literal.aval)


def with_primitive(equation: Equation, other: Any, **params: Any) -> list[Equation]:
    """Returns an equation with another primitive, with its own parameters if none are given."""
    return [equation.replace(primitive=other, params=params or dict(equation.params))]


def are_discarded(variables: Sequence[Var]) -> bool:
    """Returns whether JAX marks all of these variables as unused."""
    return all(type(variable).__name__ == "DropVar" for variable in variables)
