"""Equations that compute something else in place of an equation, for mutation operators."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import is_float
from kerneltest.trace.jax_compat.jaxpr_types import Atom, DType, Equation, Literal, Var
from kerneltest.trace.rewrite import inline_equations
from kerneltest.trace.walk import new_variable

Function = Callable[..., Any]


def is_array(atom: Atom) -> bool:
    """Returns whether an operand is an array of numbers or booleans, rather than a reference, a token or a key."""
    aval = atom.aval
    try:
        return hasattr(aval, "shape") and not hasattr(aval, "inner_aval") and np.dtype(aval.dtype).kind != "O"
    except TypeError:
        return False


def dtype_of(atom: Atom) -> DType:
    """The dtype of an array."""
    dtype: DType = np.dtype(atom.aval.dtype)
    return dtype


def shape_of(atom: Atom) -> tuple[int, ...]:
    """The shape of an array."""
    shape: tuple[int, ...] = atom.aval.shape
    return shape


def is_float_array(atom: Atom) -> bool:
    """Returns whether an operand is an array of floats."""
    return is_array(atom) and is_float(dtype_of(atom))


def compute(equation: Equation, function: Function) -> list[Equation]:
    """Returns equations that compute the only result of an equation as another function of its operands.

    What the function returns is converted to the dtype of the result and broadcast to its shape.
    """
    (result,) = equation.outvars
    return define(result, function, equation.invars)


def define(result: Var, function: Function, operands: Sequence[Atom]) -> list[Equation]:
    """Returns equations that define a variable as a function of operands, literals among them."""
    free = [operand for operand in operands if not isinstance(operand, Literal)]

    def of_free(*values: Any) -> Any:
        given = iter(values)
        chosen = [np.asarray(o.val, dtype_of(o))[()] if isinstance(o, Literal) else next(given) for o in operands]
        value = jnp.asarray(function(*chosen)).astype(dtype_of(result))
        # An operation is needed even where nothing changes; this one keeps every value, -0 and NaN included.
        value = jnp.logical_or(value, False) if value.dtype == bool else value - np.zeros((), value.dtype)[()]
        return jnp.broadcast_to(value, result.aval.shape)

    is_wide = any(dtype_of(each).itemsize == 8 for each in (result, *operands))
    with jax.enable_x64(True) if is_wide else nullcontext():
        return inline_equations(of_free, free, [result])


def after(equation: Equation, function: Function, output: int = 0) -> list[Equation]:
    """Returns an equation followed by a change of one of its results."""
    result = equation.outvars[output]
    raw = new_variable(result)
    results = [*equation.outvars[:output], raw, *equation.outvars[output + 1 :]]
    return [equation.replace(outvars=results), *define(result, function, [raw])]


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


def with_params(equation: Equation, **params: Any) -> list[Equation]:
    """Returns an equation with other parameters."""
    return [equation.replace(params={**equation.params, **params})]


def with_primitive(equation: Equation, other: Any, **params: Any) -> list[Equation]:
    """Returns an equation with another primitive, with its own parameters if none are given."""
    return [equation.replace(primitive=other, params=params or dict(equation.params))]


def are_discarded(variables: Sequence[Var]) -> bool:
    """Returns whether nothing uses variables, as JAX marks them."""
    return all(type(variable).__name__ == "DropVar" for variable in variables)
