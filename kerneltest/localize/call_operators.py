"""Mutation operators on the frame of a Pallas call: the grid, the index maps, the program's ids.

Mistakes in them are planted as changes of one equation, the call. A repair has a place of its own, the line of the grid
or of the index map, and may be one of several calls, by the value that the line would have at other lengths.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product

from kerneltest.core.source_location import location_of_argument
from kerneltest.localize.edits import EquationChange, Function, define, substitute, with_params, with_value
from kerneltest.localize.sites import Site
from kerneltest.trace.jax_compat.jaxprs import BlockMapping, Equation, Jaxpr, Literal, Var, open_jaxpr
from kerneltest.trace.jax_compat.source_lines import line_of, line_of_function
from kerneltest.trace.rewrite import is_plain_call, rewrite_jaxpr
from kerneltest.trace.walk import iter_equations, new_variable, primitive_name


@dataclass(frozen=True, slots=True)
class CallRepair:
    """One change of a Pallas call."""

    place: str  # FILE:LINE of what is changed; "" if there is no single one
    phrase: str  # `launching more than 2 programs along axis 0 of the grid`
    equations: tuple[Equation, ...]  # the changed call, once for each value that the line could have at other lengths


def call_repairs(equation: Equation) -> Iterator[CallRepair]:
    """Yields the changes of a call that may repair it, in an order that does not depend on lengths.

    A program beyond the last block repairs nothing: an interpreter has it compute the last block again, as it would be
    for other positions. Where a change makes such programs, the call stays as it is.
    """
    if is_plain_call(equation):
        for change in (*_longer_grids(equation), *_mixed_up(equation), *_groupings(equation)):
            inside = tuple(call for call in change.equations if _stays_inside(call))
            yield CallRepair(change.place, change.phrase, inside or (equation,))


def shorten_grid(site: Site) -> Iterator[EquationChange]:
    """Yields calls with a program less along an axis."""
    for axis, length in enumerate(site.equation.params["grid_mapping"].grid if is_plain_call(site.equation) else ()):
        if length > 1:
            phrase = f"a program less along axis {axis} of the grid"
            yield EquationChange(phrase, partial(_with_grid, site.equation, axis, length - 1))


def shift_block(site: Site) -> Iterator[EquationChange]:
    """Yields calls in which an array's index map gives the next block along an axis."""
    for number, block in enumerate(_blocks(site.equation) if is_plain_call(site.equation) else ()):
        for axis, size in enumerate(block.block_shape):
            size = getattr(size, "block_size", size)
            if isinstance(size, int) and size < block.array_aval.shape[axis]:  # otherwise, the only block
                phrase = f"the next block along axis {axis} of block spec {number}"
                yield EquationChange(phrase, partial(_with_next_block, site.equation, number, axis))


def mix_up_axes(site: Site) -> Iterator[EquationChange]:
    """Yields calls with axes of the grid or of an index map exchanged."""
    for change in _mixed_up(site.equation) if is_plain_call(site.equation) else ():
        yield EquationChange(change.phrase, partial(list, change.equations))


def _with_grid(equation: Equation, axis: int, length: int) -> list[Equation]:
    mapping = equation.params["grid_mapping"]
    return with_params(equation, grid_mapping=mapping.replace(grid=tuple(substitute(mapping.grid, axis, length))))


def _longer_grids(equation: Equation) -> Iterator[CallRepair]:
    place = location_of_argument(line_of(equation.source_info), "grid")
    for axis, length in enumerate(equation.params["grid_mapping"].grid):
        others = sorted({length + 1, length + 2, length + 3, 2 * length, 1 << length.bit_length()})
        calls = [call for other in others for call in _with_grid(equation, axis, other)]
        phrase = f"launching more than {length} program{'' if length == 1 else 's'} along axis {axis} of the grid"
        yield CallRepair(place, phrase, tuple(calls))


def _mixed_up(equation: Equation) -> Iterator[CallRepair]:
    # Two axes of the grid are swapped wherever the body asks for the program's id, or the index map of one array uses
    # another program's id or swaps two axes.
    jaxpr = equation.params["jaxpr"]
    requests = [e for e, _ in iter_equations(jaxpr) if primitive_name(e) == "program_id"]
    lines = {line_of(e.source_info) for e in requests}
    for first, second in combinations(sorted({e.params["axis"] for e in requests}), 2):
        rule = partial(_swapped_program, {first: second, second: first})
        (call,) = with_params(equation, jaxpr=rewrite_jaxpr(jaxpr, rule))
        phrase = f"swapping program_id({first}) and program_id({second})"
        yield CallRepair(min(lines) if len(lines) == 1 else "", phrase, (call,))
    for number, line, index_map, programs in _index_maps(equation):
        for outputs, phrase in _other_indices(index_map.outvars, programs):
            call = _with_index_map(equation, number, index_map.replace(outvars=outputs))
            yield CallRepair(line, f"{phrase} in the index map", (call,))


def _swapped_program(axes: dict[int, int], equation: Equation) -> list[Equation] | None:
    axis = equation.params.get("axis")
    is_swapped = primitive_name(equation) == "program_id" and axis in axes
    return with_params(equation, axis=axes[axis]) if is_swapped else None


def _other_indices(outputs: Sequence[Var], programs: Sequence[Var]) -> Iterator[tuple[list[Var], str]]:
    for axis, old in enumerate(outputs):
        for grid_axis, new in enumerate(programs):
            if new is not old:
                yield substitute(outputs, axis, new), f"using program_id({grid_axis}) along axis {axis}"
    for a, b in combinations(range(len(outputs)), 2):
        yield substitute(substitute(outputs, a, outputs[b]), b, outputs[a]), f"swapping axes {a} and {b}"


def _blocks(equation: Equation) -> Sequence[BlockMapping]:
    blocks: Sequence[BlockMapping] = equation.params["grid_mapping"].block_mappings
    return blocks


def _index_maps(equation: Equation) -> Iterator[tuple[int, str, Jaxpr, Sequence[Var]]]:
    # Those in the user's source: the number of the array, FILE:LINE, the index map, and its ids of programs.
    for number, block in enumerate(_blocks(equation)):
        index_map = open_jaxpr(block.index_map_jaxpr)
        if line := line_of_function(index_map):
            yield number, line, index_map, index_map.invars[: len(equation.params["grid_mapping"].grid)]


def _with_index_map(equation: Equation, number: int, index_map: Jaxpr) -> Equation:
    block = _blocks(equation)[number]
    whole = block.index_map_jaxpr
    closed = whole.replace(jaxpr=index_map) if whole is not open_jaxpr(whole) else index_map
    blocks = tuple(substitute(_blocks(equation), number, block.replace(index_map_jaxpr=closed)))
    (call,) = with_params(equation, grid_mapping=equation.params["grid_mapping"].replace(block_mappings=blocks))
    return call


def _with_index(index_map: Jaxpr, axis: int, function: Function, operand: Var) -> Jaxpr:
    # The index along an axis becomes a function of a value of the index map.
    index = new_variable(operand)
    equations = [*index_map.eqns, *define(index, function, [operand])]
    return index_map.replace(eqns=equations, outvars=substitute(index_map.outvars, axis, index))


def _with_next_block(equation: Equation, number: int, axis: int) -> list[Equation]:
    index_map = open_jaxpr(_blocks(equation)[number].index_map_jaxpr)
    old = index_map.outvars[axis]
    if isinstance(old, Literal):
        moved = index_map.replace(outvars=substitute(index_map.outvars, axis, with_value(old, old.val + 1)))
    else:
        moved = _with_index(index_map, axis, lambda index: index + 1, old)
    return [_with_index_map(equation, number, moved)]


def _groupings(equation: Equation) -> Iterator[CallRepair]:
    # An axis of an array has fewer blocks than there are programs, as heads that share keys: consecutive programs share
    # a block, or those that are as far apart as there are blocks.
    grid = equation.params["grid_mapping"].grid
    for number, line, index_map, programs in _index_maps(equation):
        counts = _counts(_blocks(equation)[number])
        for (axis, count), (grid_axis, length) in product(enumerate(counts), enumerate(grid)):
            per_block, count = max(length // max(count, 1), 1), max(count, 1)
            ways: tuple[tuple[str, Function], ...] = (
                (f"// {per_block}", lambda index, by=per_block: index // by),
                (f"% {count}", lambda index, by=count: index % by),
            )
            for words, function in ways:
                changed = _with_index(index_map, axis, function, programs[grid_axis])
                phrase = f"using program_id({grid_axis}) {words} along axis {axis} in the index map"
                yield CallRepair(line, phrase, (_with_index_map(equation, number, changed),))


def _stays_inside(equation: Equation) -> bool:
    # No index that is a program's id exceeds the blocks of its array.
    for block in _blocks(equation):
        index_map = open_jaxpr(block.index_map_jaxpr)
        grid = equation.params["grid_mapping"].grid
        programs = {id(program): length for program, length in zip(index_map.invars, grid, strict=False)}
        for index, count in zip(index_map.outvars, _counts(block), strict=False):
            if programs.get(id(index), 0) > count:
                return False
    return True


def _counts(block: BlockMapping) -> list[int]:
    # The number of blocks along each axis of an array.
    sizes = [length if isinstance(length, int) else getattr(length, "block_size", 1) for length in block.block_shape]
    return [-(-n // size) if size else 1 for n, size in zip(block.array_aval.shape, sizes, strict=True)]
