"""Mutation operators on the frame of a Pallas call: the grid, the index maps, the program's ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from kerneltest.core.source_location import location_of_argument
from kerneltest.trace.jax_compat.jaxpr_types import Equation, Var
from kerneltest.trace.jax_compat.source_lines import line_of, line_of_function
from kerneltest.trace.rewrite import is_plain_call, rewrite_jaxpr
from kerneltest.trace.walk import iter_equations, primitive_name


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
