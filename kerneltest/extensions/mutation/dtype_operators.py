"""Mutation operators on dtypes, accumulators and matrix products."""

from collections.abc import Iterator
from functools import partial

import jax.numpy as jnp
import numpy as np

from kerneltest.extensions.mutation.edits import before
from kerneltest.extensions.mutation.operators import EquationChange, mutation_operator
from kerneltest.localize.equation_edits import after, dtype_of, is_array, is_float_array, with_params
from kerneltest.trace.jax_compat.jaxpr_types import Equation, JaxArray
from kerneltest.trace.walk import primitive_name


def _round_to_16_bits(x: JaxArray) -> JaxArray:
    return jnp.asarray(x).astype(jnp.bfloat16).astype(x.dtype)


def _is_float32(equation: Equation) -> bool:
    return (
        len(equation.outvars) == 1
        and is_float_array(equation.outvars[0])
        and dtype_of(equation.outvars[0]) == np.float32
    )


@mutation_operator(order=80)
def sum_narrowed(equation: Equation) -> Iterator[EquationChange]:
    """Sums are accumulated in 16 bits."""
    if primitive_name(equation) in ("add", "reduce_sum", "cumsum", "dot_general") and _is_float32(equation):
        yield EquationChange("rounded to bfloat16", lambda: after(equation, _round_to_16_bits))


@mutation_operator(order=81)
def result_narrowed(equation: Equation) -> Iterator[EquationChange]:
    """A result is kept in 16 bits."""
    names = ("mul", "sub", "div", "exp", "exp2", "log", "rsqrt", "sqrt", "tanh", "logistic", "erf", "reduce_max")
    if primitive_name(equation) in names and _is_float32(equation):
        yield EquationChange("rounded to bfloat16", lambda: after(equation, _round_to_16_bits))


@mutation_operator(order=82)
def cast_narrowed(equation: Equation) -> Iterator[EquationChange]:
    """A cast goes through a narrower type."""
    if primitive_name(equation) == "convert_element_type" and is_array(equation.invars[0]):
        old, new = dtype_of(equation.invars[0]), dtype_of(equation.outvars[0])
        if np.issubdtype(old, np.integer) and old.itemsize > 1 and np.issubdtype(new, np.integer):
            yield EquationChange("cast by way of int8", lambda: before(equation, {0: lambda x: x.astype(np.int8)}))
        elif np.issubdtype(old, np.integer) and old.itemsize > 1 and new == np.float32:
            yield EquationChange("cast by way of bfloat16", lambda: after(equation, _round_to_16_bits))


@mutation_operator(order=83)
def product_narrowed(equation: Equation) -> Iterator[EquationChange]:
    """A matrix product takes its operands in 16 bits."""
    if primitive_name(equation) == "dot_general" and all(dtype_of(v) == np.float32 for v in equation.invars):
        change = {0: _round_to_16_bits, 1: _round_to_16_bits}
        yield EquationChange("operands rounded to bfloat16", lambda: before(equation, change))


@mutation_operator(order=84)
def product_transposed(equation: Equation) -> Iterator[EquationChange]:
    """An operand of a matrix product is transposed."""
    if primitive_name(equation) != "dot_general":
        return
    (left, right), batch = equation.params["dimension_numbers"]
    if batch != ((), ()) and any(map(len, batch)):
        return
    for number, axes in enumerate((left, right)):
        shape = equation.invars[number].aval.shape
        if len(shape) == 2 and shape[0] == shape[1] and len(axes) == 1:
            other: list[tuple[int, ...]] = [tuple(left), tuple(right)]
            other[number] = (1 - axes[0],)
            numbers = (tuple(other), batch)
            phrase = f"operand {number + 1} transposed"
            yield EquationChange(phrase, partial(with_params, equation, dimension_numbers=numbers))


@mutation_operator(order=85)
def transpose_dropped(equation: Equation) -> Iterator[EquationChange]:
    """An axis is transposed or not."""
    if primitive_name(equation) == "transpose" and len(set(equation.invars[0].aval.shape)) == 1:
        order = tuple(range(len(equation.params["permutation"])))
        if order != tuple(equation.params["permutation"]):
            yield EquationChange("not transposed", lambda: with_params(equation, permutation=order))
