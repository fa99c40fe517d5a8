"""Edits of equations: what a mutation operator puts in place of an equation, which defines the same variables."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.core.dtypes import DType, is_float, is_integer
from kerneltest.trace.jax_compat.jaxprs import Atom, Equation, Literal, OpenJaxpr, Var
from kerneltest.trace.rewrite import inline_equations, rename_equations, trace_equations
from kerneltest.trace.walk import new_variable

Function = Callable[..., Any]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class EquationChange:
    """One change of an equation."""

    phrase: str  # the change in words, the same for all signatures: "`<=` for `<`", or `changing < to <=` for a repair
    equations: Callable[[], Sequence[Equation]]  # makes the equations that replace it. They define the same variables
    key: str = ""  # identifies a repair among those of its equation, at all lengths; "" if the phrase does
    cost: int = 0  # how much a repair assumes: 0 for a comparison or a constant, more for less likely mistakes
    literal: bool = True  # whether the source spells out at this place what is changed, rather than naming it
    undone: str = ""  # what a repair undoes, in words that follow "from": `a missing mask`; or ""


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
    return is_array(atom) and is_integer(dtype_of(atom))


def is_boolean_array(atom: Atom) -> bool:
    """Returns whether an operand is an array of booleans."""
    return is_array(atom) and dtype_of(atom) == np.bool_


def same_type(a: Atom, b: Atom) -> bool:
    """Returns whether one operand can take the place of another."""
    if is_array(a) and is_array(b):
        return tuple(a.aval.shape) == tuple(b.aval.shape) and dtype_of(a) == dtype_of(b)
    return not is_array(a) and not is_array(b) and str(a.aval) == str(b.aval)


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

    is_wide = any(dtype_of(atom).itemsize == 8 for atom in (result, *operands))
    with jax.enable_x64(True) if is_wide else nullcontext():
        try:
            widest = jax.dtypes.canonicalize_dtype(np.float64)  # float32 unless 64 bits are enabled
            key = widest, _identity(function), *map(_type_of, (result, *operands))
            if key not in _TRACES:
                if len(_TRACES) >= _MOST_TRACES:
                    _TRACES.clear()
                _TRACES[key] = trace_equations(of_free, free)
            return rename_equations(_TRACES[key], free, [result])
        except (TypeError, ValueError):  # a function without an identity
            return inline_equations(of_free, free, [result])


# Many edits are of the same function, whose trace takes most of their time.
_TRACES: dict[Hashable, OpenJaxpr] = {}
_MOST_TRACES = 4096


def _type_of(atom: Atom) -> Hashable:
    value = np.asarray(atom.val, dtype_of(atom)).tobytes() if isinstance(atom, Literal) else None
    return tuple(atom.aval.shape), dtype_of(atom), value


def _identity(function: Any) -> Hashable:
    # Equal for functions that compute the same: those of one definition, with the same values around it.
    match function:
        case partial(func=inner, args=args, keywords=keywords):
            return partial, _identity(inner), _identity(args), tuple(keywords), _identity(tuple(keywords.values()))
        case FunctionType(__code__=code, __defaults__=defaults, __kwdefaults__=named, __closure__=cells):
            around = tuple(cell.cell_contents for cell in cells or ())
            return code, tuple(named or ()), _identity((defaults, tuple((named or {}).values()), around))
        case list() | tuple():
            return type(function), *map(_identity, function)
        case np.generic() if not isinstance(function, np.object_):  # -0 is another number
            return type(function), function.tobytes()
        case float():
            return float, function.hex()
    hash(function)
    return type(function), function


def compute(equation: Equation, function: Function) -> list[Equation]:
    """Returns equations that compute the only result of an equation as another function of its operands."""
    (result,) = equation.outvars
    return define(result, function, equation.invars)


def keep(equation: Equation, number: int) -> list[Equation]:
    """Returns equations that give an operand in place of the only result."""
    return compute(equation, lambda *operands: operands[number])


def after(equation: Equation, function: Function, *more: Atom) -> list[Equation]:
    """Returns an equation followed by a function of its only result, and of further values."""
    (result,) = equation.outvars
    raw = new_variable(result)
    return [equation.replace(outvars=[raw]), *define(result, function, [raw, *more])]


def before(equation: Equation, functions: Mapping[int, Function], *more: Atom) -> list[Equation]:
    """Returns an equation on changed operands: by their number, a function of each operand and of further values."""
    operands, added = list(equation.invars), []
    for number, function in functions.items():
        operand = operands[number]
        if isinstance(operand, Literal) and not more:
            operands[number] = with_value(operand, function(np.asarray(operand.val, dtype_of(operand))))
        else:
            operands[number] = new_variable(operand)
            added += define(operands[number], function, [operand, *more])
    return [*added, equation.replace(invars=operands)]


def substitute(items: Sequence[Item], number: int, item: Item) -> list[Item]:
    """Returns a sequence with one item replaced."""
    return [*items[:number], item, *items[number + 1 :]]


def with_operand(equation: Equation, number: int, operand: Atom) -> list[Equation]:
    """Returns an equation with another operand."""
    return [equation.replace(invars=substitute(equation.invars, number, operand))]


def with_value(literal: Literal, value: Any) -> Literal:
    """Returns a literal of the same type with another value."""
    return type(literal)(np.asarray(value, dtype_of(literal))[()], literal.aval)


def with_literal(equation: Equation, number: int, value: Any) -> list[Equation]:
    """Returns an equation with another value of a literal."""
    return with_operand(equation, number, with_value(equation.invars[number], value))


def with_params(equation: Equation, **params: Any) -> list[Equation]:
    """Returns an equation with other parameters."""
    return [equation.replace(params={**equation.params, **params})]
