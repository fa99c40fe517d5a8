"""Equations that compute something else in place of an equation."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import is_float, is_integer
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


def is_float_array(atom: Atom) -> bool:
    """Returns whether an operand is an array of floats."""
    return is_array(atom) and is_float(dtype_of(atom))


def is_integer_array(atom: Atom) -> bool:
    """Returns whether an operand is an array of integers."""
    return is_array(atom) and is_integer(dtype_of(atom)) and dtype_of(atom) != np.bool_


def same_type(a: Atom, b: Atom) -> bool:
    """Returns whether one operand can take the place of another."""
    if is_array(a) and is_array(b):
        return tuple(a.aval.shape) == tuple(b.aval.shape) and dtype_of(a) == dtype_of(b)
    return not is_array(a) and not is_array(b) and str(a.aval) == str(b.aval)


def compute(equation: Equation, function: Function, *more: Atom) -> list[Equation]:
    """Returns equations that compute the only result of an equation as a function of its operands and further ones."""
    (result,) = equation.outvars
    return define(result, function, [*equation.invars, *more])


def define(result: Var, function: Function, operands: Sequence[Atom]) -> list[Equation]:
    """Returns equations that define a variable as a function of operands, literals among them.

    The result of the function is converted to the dtype of the variable and broadcast to its shape.
    """
    free = [operand for operand in operands if not isinstance(operand, Literal)]

    def of_free(*values: Any) -> Any:
        given = iter(values)
        chosen = [np.asarray(o.val, dtype_of(o))[()] if isinstance(o, Literal) else next(given) for o in operands]
        value = jnp.asarray(function(*chosen)).astype(dtype_of(result))
        value = jnp.broadcast_to(value, result.aval.shape)
        # An operation is needed even where nothing changes; this one keeps every value, -0 and NaN included.
        return jnp.logical_or(value, False) if value.dtype == bool else value - np.zeros((), value.dtype)[()]

    is_wide = any(dtype_of(each).itemsize == 8 for each in (result, *operands))
    with jax.enable_x64(True) if is_wide else nullcontext():
        return inline_equations(of_free, free, [result])


def after(equation: Equation, function: Function, *more: Atom) -> list[Equation]:
    """Returns an equation followed by a change of its only result."""
    (result,) = equation.outvars
    raw = new_variable(result)
    return [equation.replace(outvars=[raw]), *define(result, function, [raw, *more])]


def before(equation: Equation, number: int, function: Function, *more: Atom) -> list[Equation]:
    """Returns an equation on a changed operand."""
    operand = equation.invars[number]
    changed = new_variable(operand)
    operands = [*equation.invars[:number], changed, *equation.invars[number + 1 :]]
    return [*define(changed, function, [operand, *more]), equation.replace(invars=operands)]


def with_operand(equation: Equation, number: int, operand: Atom) -> list[Equation]:
    """Returns an equation with another operand."""
    return [equation.replace(invars=[*equation.invars[:number], operand, *equation.invars[number + 1 :]])]


def with_literal(equation: Equation, number: int, value: Any) -> list[Equation]:
    """Returns an equation with another value of a literal."""
    old = equation.invars[number]
    return with_operand(equation, number, type(old)(np.asarray(value, dtype_of(old))[()], old.aval))


def common_floats(value: float) -> tuple[float, ...]:
    """Returns numbers that may have been meant in place of a float; infinities only for what may be a fill."""
    if not np.isfinite(value):
        return 0.0, -np.inf, np.inf
    return (0.0, 1.0, -np.inf, np.inf) if value == 0 or abs(value) >= _LARGEST_TERM else (0.0, 1.0)


_LARGEST_TERM = 1e4  # larger constants are fills, such as -1e30 for -inf


def with_params(equation: Equation, **params: Any) -> list[Equation]:
    """Returns an equation with other parameters."""
    return [equation.replace(params={**equation.params, **params})]
