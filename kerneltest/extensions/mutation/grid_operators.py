"""Mutation operators on Pallas calls: the grid, the index maps and the programs' ids."""

from collections.abc import Iterator, Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np

from kerneltest.extensions.mutation.operators import EquationChange, mutation_operator
from kerneltest.localize.call_mutations import CallMutation, call_mutations
from kerneltest.localize.equation_edits import after, define, dtype_of, with_params
from kerneltest.trace.jax_compat.jaxpr_types import Equation, Jaxpr, Literal
from kerneltest.trace.rewrite import is_plain_call
from kerneltest.trace.walk import new_variable, primitive_name


@mutation_operator(order=100)
def program_id_shifted(equation: Equation) -> Iterator[EquationChange]:
    """A program works on the block of the program before it."""
    if primitive_name(equation) == "program_id":
        yield EquationChange("one less, but not below 0", lambda: after(equation, lambda i: jnp.maximum(i - 1, 0)))


@mutation_operator(order=102)
def grid_shortened(equation: Equation) -> Iterator[EquationChange]:
    """The last programs are never launched."""
    if is_plain_call(equation):
        mapping = equation.params["grid_mapping"]
        for axis, length in enumerate(mapping.grid):
            if length > 1:
                grid = (*mapping.grid[:axis], length - 1, *mapping.grid[axis + 1 :])
                phrase = f"a program less along axis {axis} of the grid"
                yield EquationChange(phrase, partial(with_params, equation, grid_mapping=mapping.replace(grid=grid)))


@mutation_operator(order=103)
def block_shifted(equation: Equation) -> Iterator[EquationChange]:
    """An index map takes the next block."""
    if not is_plain_call(equation):
        return
    mapping = equation.params["grid_mapping"]
    for number, block in enumerate(mapping.block_mappings):
        shape = [getattr(length, "block_size", length) for length in block.block_shape]
        for axis, size in enumerate(shape):
            whole = block.array_aval.shape[axis]
            if isinstance(size, int) and size < whole:  # otherwise, the only block
                phrase = f"the next block along axis {axis} of block spec {number}"
                yield EquationChange(phrase, partial(_with_next_block, equation, number, axis))


def _with_next_block(equation: Equation, number: int, axis: int) -> list[Equation]:
    mapping = equation.params["grid_mapping"]
    block = mapping.block_mappings[number]
    whole = block.index_map_jaxpr
    inner = getattr(whole, "jaxpr", whole)  # some versions of JAX close it
    shifted = _with_larger_output(inner, axis)
    other = block.replace(index_map_jaxpr=whole.replace(jaxpr=shifted) if whole is not inner else shifted)
    blocks = (*mapping.block_mappings[:number], other, *mapping.block_mappings[number + 1 :])
    return with_params(equation, grid_mapping=mapping.replace(block_mappings=blocks))


def _with_larger_output(jaxpr: Jaxpr, axis: int) -> Jaxpr:
    old = jaxpr.outvars[axis]
    outputs, equations = list(jaxpr.outvars), list(jaxpr.eqns)
    if isinstance(old, Literal):
        outputs[axis] = type(old)(np.asarray(old.val + 1, dtype_of(old))[()], old.aval)
    else:
        outputs[axis] = new_variable(old)
        equations += define(outputs[axis], lambda index: index + 1, [old])
    return jaxpr.replace(outvars=outputs, eqns=equations)


@mutation_operator(order=104)
def axes_mixed_up(equation: Equation) -> Iterator[EquationChange]:
    """Axes of a grid or of an index map are mixed up."""
    for mutation in call_mutations(equation):
        if not mutation.phrase.startswith("launching"):  # more programs than needed are not a bug
            yield EquationChange(mutation.phrase, partial(_equations_of, mutation))


def _equations_of(mutation: CallMutation) -> Sequence[Equation]:
    return mutation.equations
