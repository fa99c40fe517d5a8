"""Pallas calls with one thing in their frame changed: the grid, an index map, which program is which."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from kerneltest.core.source_location import line_of_argument
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr
from kerneltest.trace.jax_compat.names import line_of, line_of_function
from kerneltest.trace.rewrite import is_plain_call, rewritten
from kerneltest.trace.walk import equations, name_of


@dataclass(frozen=True, slots=True)
class Slip:
    """One change of a Pallas call.

    Attributes:
      place: the line that says it, as FILE:LINE.
      words: `with more programs along axis 0 of the grid`.
      equations: the call as it is then, in as many ways as the line could have it for other lengths.
    """

    place: str
    words: str
    equations: tuple[Any, ...]


def slips(equation: Any) -> Iterator[Slip]:
    """All of a call, in an order that does not depend on lengths; none of a call that is not laid out in blocks."""
    if is_plain_call(equation):
        yield from _grids(equation)
        yield from _program_ids(equation)
        yield from _index_maps(equation)


def _grids(equation: Any) -> Iterator[Slip]:
    mapping = equation.params["grid_mapping"]
    place = line_of_argument(line_of(equation.source_info), "grid")
    for axis, length in enumerate(mapping.grid):
        others = sorted({length + 1, length + 2, length + 3, 2 * length, 1 << length.bit_length()})
        grids = [(*mapping.grid[:axis], other, *mapping.grid[axis + 1 :]) for other in others]
        calls = (_with(equation, grid_mapping=mapping.replace(grid=grid)) for grid in grids)
        yield Slip(place, f"with more programs than {length} along axis {axis} of the grid", tuple(calls))


def _program_ids(equation: Any) -> Iterator[Slip]:
    """Two axes of the grid taken for each other wherever the body asks for the program's id."""
    jaxpr = equation.params["jaxpr"]
    asking = [e for e, _ in equations(jaxpr) if name_of(e) == "program_id"]
    lines = {line_of(e.source_info) for e in asking}
    axes = sorted({e.params["axis"] for e in asking})
    for first, second in combinations(axes, 2):
        other = {first: second, second: first}

        def rule(inner: Any, other: dict[int, int] = other) -> Sequence[Any] | None:
            axis = inner.params.get("axis")
            return [_with(inner, axis=other[axis])] if name_of(inner) == "program_id" and axis in other else None

        words = f"with program_id({first}) and program_id({second}) the other way round"
        yield Slip(min(lines) if len(lines) == 1 else "", words, (_with(equation, jaxpr=rewritten(jaxpr, rule)),))


def _index_maps(equation: Any) -> Iterator[Slip]:
    """The program's number along an axis of the grid in place of what an index map gives along one of the array."""
    mapping = equation.params["grid_mapping"]
    for number, block in enumerate(mapping.block_mappings):
        whole = block.index_map_jaxpr
        jaxpr = whole.jaxpr if isinstance(whole, ClosedJaxpr) else whole
        line = line_of_function(jaxpr)
        programs = jaxpr.invars[: len(mapping.grid)]
        for chosen in _remapped(jaxpr.outvars, programs) if line else ():
            pairs = enumerate(zip(jaxpr.outvars, chosen, strict=True))
            changed = [(axis, new) for axis, (old, new) in pairs if new is not old]
            parts = [f"program_id({programs.index(new)})" if new in programs else "the other" for _, new in changed]
            words = " and ".join(f"{part} along axis {axis}" for part, (axis, _) in zip(parts, changed, strict=True))
            inner = jaxpr.replace(outvars=list(chosen))
            other = block.replace(index_map_jaxpr=whole.replace(jaxpr=inner) if whole is not jaxpr else inner)
            blocks = (*mapping.block_mappings[:number], other, *mapping.block_mappings[number + 1 :])
            call = _with(equation, grid_mapping=mapping.replace(block_mappings=blocks))
            yield Slip(line, f"with {words} in the index map", (call,))


def _remapped(outputs: Sequence[Any], programs: Sequence[Any]) -> Iterator[list[Any]]:
    """What an index map could give: another program's number along one axis, or two axes the other way round."""
    for axis, old in enumerate(outputs):
        yield from ([*outputs[:axis], new, *outputs[axis + 1 :]] for new in programs if new is not old)
    for a, b in combinations(range(len(outputs)), 2):
        turned = list(outputs)
        turned[a], turned[b] = outputs[b], outputs[a]
        yield turned


def _with(equation: Any, **params: Any) -> Any:
    return equation.replace(params={**equation.params, **params})
