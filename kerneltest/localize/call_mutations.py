"""Mutation operators on the frame of a Pallas call: the grid, the index maps, the program's ids."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from kerneltest.core.source_location import location_of_argument
from kerneltest.localize.equation_mutations import define
from kerneltest.trace.jax_compat.jaxprs import BlockMapping, Equation, Var
from kerneltest.trace.jax_compat.source_lines import line_of, line_of_function
from kerneltest.trace.rewrite import is_plain_call, rewrite_jaxpr
from kerneltest.trace.walk import iter_equations, new_variable, primitive_name


@dataclass(frozen=True, slots=True)
class CallMutation:
    """One change of a Pallas call.

    Attributes:
      place: FILE:LINE of what is changed.
      phrase: `launching more than 2 programs positions_along axis 0 of the grid`.
      equations: the changed call, once for each value that the line could have at other lengths.
    """

    place: str
    phrase: str
    equations: tuple[Equation, ...]


def call_mutations(equation: Equation) -> Iterator[CallMutation]:
    """Yields the mutations of a call with blocks and a grid, in an order that does not depend on lengths."""
    if is_plain_call(equation):
        yield from _grids(equation)
        yield from _program_ids(equation)
        yield from _index_maps(equation)


def _grids(equation: Equation) -> Iterator[CallMutation]:
    mapping = equation.params["grid_mapping"]
    place = location_of_argument(line_of(equation.source_info), "grid")
    for axis, length in enumerate(mapping.grid):
        others = sorted({length + 1, length + 2, length + 3, 2 * length, 1 << length.bit_length()})
        grids = [(*mapping.grid[:axis], other, *mapping.grid[axis + 1 :]) for other in others]
        calls = (_with_params(equation, grid_mapping=mapping.replace(grid=grid)) for grid in grids)
        phrase = f"launching more than {length} program{'' if length == 1 else 's'} along axis {axis} of the grid"
        yield CallMutation(place, phrase, tuple(calls))


def _program_ids(equation: Equation) -> Iterator[CallMutation]:
    """Swaps two axes of the grid wherever the body asks for the program's id."""
    jaxpr = equation.params["jaxpr"]
    requests = [e for e, _ in iter_equations(jaxpr) if primitive_name(e) == "program_id"]
    lines = {line_of(e.source_info) for e in requests}
    axes = sorted({e.params["axis"] for e in requests})
    for first, second in combinations(axes, 2):
        swap = {first: second, second: first}

        def rule(inner: Equation, swap: dict[int, int] = swap) -> Sequence[Equation] | None:
            axis = inner.params.get("axis")
            is_swapped = primitive_name(inner) == "program_id" and axis in swap
            return [_with_params(inner, axis=swap[axis])] if is_swapped else None

        place = min(lines) if len(lines) == 1 else ""
        phrase = f"swapping program_id({first}) and program_id({second})"
        yield CallMutation(place, phrase, (_with_params(equation, jaxpr=rewrite_jaxpr(jaxpr, rule)),))


def _index_maps(equation: Equation) -> Iterator[CallMutation]:
    """Changes an axis of the index map of one array at a time."""
    mapping = equation.params["grid_mapping"]
    for number, block in enumerate(mapping.block_mappings):
        whole = block.index_map_jaxpr
        jaxpr = getattr(whole, "jaxpr", whole)  # some versions of JAX close it
        line = line_of_function(jaxpr)
        programs = jaxpr.invars[: len(mapping.grid)]
        for outputs, phrase in _index_map_outputs(jaxpr.outvars, programs) if line else ():
            inner = jaxpr.replace(outvars=outputs)
            other = block.replace(index_map_jaxpr=whole.replace(jaxpr=inner) if whole is not jaxpr else inner)
            blocks = (*mapping.block_mappings[:number], other, *mapping.block_mappings[number + 1 :])
            call = _with_params(equation, grid_mapping=mapping.replace(block_mappings=blocks))
            yield CallMutation(line, f"{phrase} in the index map", (call,))


def _index_map_outputs(outputs: Sequence[Var], programs: Sequence[Var]) -> Iterator[tuple[list[Var], str]]:
    """Yields the outputs of mutated index maps: a program's id along one axis, or two axes swapped."""
    for axis, old in enumerate(outputs):
        for grid_axis, new in enumerate(programs):
            if new is not old:
                phrase = f"using program_id({grid_axis}) along axis {axis}"
                yield [*outputs[:axis], new, *outputs[axis + 1 :]], phrase
    for a, b in combinations(range(len(outputs)), 2):
        swapped = list(outputs)
        swapped[a], swapped[b] = outputs[b], outputs[a]
        yield swapped, f"swapping axes {a} and {b}"


def _with_params(equation: Equation, **params: Any) -> Equation:
    return equation.replace(params={**equation.params, **params})


# Repairs of a call: its mutations, and index maps by which several programs share a block.


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
