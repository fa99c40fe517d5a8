"""Repairs of a call: its mutations, and index maps by which several programs share a block."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from kerneltest.localize.call_mutations import CallMutation, call_mutations
from kerneltest.localize.equation_edits import define
from kerneltest.trace.jax_compat.jaxpr_types import BlockMapping, Equation
from kerneltest.trace.jax_compat.source_lines import line_of_function
from kerneltest.trace.rewrite import is_plain_call
from kerneltest.trace.walk import new_variable


def call_repairs(equation: Equation) -> Iterator[CallMutation]:
    """Yields the changes of a call that may repair it, in an order that does not depend on lengths.

    A program beyond the last block repairs nothing: an interpreter has it compute the last block again, as it would be
    for other positions. Where a change makes such programs, the call stays as it is.
    """
    if is_plain_call(equation):
        for change in (*call_mutations(equation), *_groupings(equation)):
            inside = tuple(each for each in change.equations if _stays_inside(each))
            yield replace(change, equations=inside or (equation,))


def _stays_inside(equation: Equation) -> bool:
    """Returns whether no index that is a program's id exceeds the blocks of its array."""
    mapping = equation.params["grid_mapping"]
    for block in mapping.block_mappings:
        whole = block.index_map_jaxpr
        jaxpr = getattr(whole, "jaxpr", whole)
        for index, count in zip(jaxpr.outvars, _counts(block), strict=False):
            axis = next((axis for axis, program in enumerate(jaxpr.invars) if program is index), len(mapping.grid))
            if axis < len(mapping.grid) and mapping.grid[axis] > count:
                return False
    return True


def _groupings(equation: Equation) -> Iterator[CallMutation]:
    """Yields calls in which an axis of an array has fewer blocks than there are programs, as heads that share keys.

    Consecutive programs then share a block, or those that are as far apart as there are blocks.
    """
    mapping = equation.params["grid_mapping"]
    for number, block in enumerate(mapping.block_mappings):
        whole = block.index_map_jaxpr
        line = line_of_function(getattr(whole, "jaxpr", whole))  # some versions of JAX close it
        axes = product(enumerate(_counts(block)), enumerate(mapping.grid)) if line else ()
        for (axis, count), (grid_axis, programs) in axes:
            count = max(count, 1)
            each = max(programs // count, 1)
            for sign, combine, by in (("//", operator.floordiv, each), ("%", operator.mod, count)):
                other = _indexed_by(block, axis, grid_axis, combine, by)
                blocks = (*mapping.block_mappings[:number], other, *mapping.block_mappings[number + 1 :])
                params = {**equation.params, "grid_mapping": mapping.replace(block_mappings=blocks)}
                phrase = f"using program_id({grid_axis}) {sign} {by} along axis {axis} in the index map"
                yield CallMutation(line, phrase, (equation.replace(params=params),))


def _indexed_by(
    block: BlockMapping, axis: int, grid_axis: int, combine: Callable[[Any, int], Any], by: int
) -> BlockMapping:
    """Returns a block whose index along an axis is that of a program, combined with a number."""
    whole = block.index_map_jaxpr
    jaxpr = getattr(whole, "jaxpr", whole)
    program = jaxpr.invars[grid_axis]
    index = new_variable(program)
    changed = jaxpr.replace(
        eqns=[*jaxpr.eqns, *define(index, lambda i: combine(i, by), [program])],
        outvars=[*jaxpr.outvars[:axis], index, *jaxpr.outvars[axis + 1 :]],
    )
    other: BlockMapping = block.replace(index_map_jaxpr=whole.replace(jaxpr=changed) if whole is not jaxpr else changed)
    return other


def _counts(block: BlockMapping) -> list[int]:
    """Returns the number of blocks along each axis of an array."""
    sizes = [length if isinstance(length, int) else getattr(length, "block_size", 1) for length in block.block_shape]
    return [-(-n // size) if size else 1 for n, size in zip(block.array_aval.shape, sizes, strict=True)]
