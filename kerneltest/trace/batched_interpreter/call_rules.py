"""The rule for Pallas calls, whose programs run one after another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jax.experimental import pallas as pl

from kerneltest.core.dtypes import Array, DType
from kerneltest.trace.jax_compat.jaxprs import BlockMapping, Equation
from kerneltest.trace.machine import (
    BatchedRef,
    CompiledJaxpr,
    EquationFunction,
    Machine,
    UnknownError,
    Value,
    copy_rows,
    is_uniform,
    pad_unwritten,
    run_by_group,
    scoped_memory,
    unwritten_memory,
)
from kerneltest.trace.rewrite import is_plain_call

MOST_PROGRAMS = 2**13  # that run in reasonable time
_MOST_POSSIBLE = 2**20  # those of a grid that is known only when it runs


@dataclass(frozen=True, slots=True)
class _BlockLayout:
    """The blocks of an array."""

    shape: tuple[int, ...]
    dtype: DType
    padded: tuple[int, ...]  # the shape, rounded up to whole blocks
    lengths: tuple[int, ...]  # a block's
    scale: tuple[int, ...]  # along each axis, the distance in elements between consecutive indices
    squeezed: tuple[int, ...]  # the axes that the kernel does not see
    index_map: CompiledJaxpr  # from the programs' numbers to an index along each axis

    def starts(self, machine: Machine, programs: Sequence[Array], scalars: Sequence[BatchedRef]) -> Array:
        """The first element of each program's block, (programs, axes), clamped so that the block fits into `padded`."""
        count = len(programs[0]) if programs else 1
        rows, machine.rows = machine.rows, None  # the rows here are the programs
        try:
            results = self.index_map([*programs, *scalars])[: len(self.lengths)]
        finally:
            machine.rows = rows
        starts = [np.broadcast_to(np.asarray(index).astype(np.int64), count) for index in results]
        clamped = [
            np.clip(np.where(s * scale < 0, s * scale + n, s * scale), 0, n - length)
            for s, scale, n, length in zip(starts, self.scale, self.padded, self.lengths, strict=True)
        ]
        return np.stack(clamped, axis=1) if clamped else np.zeros((count, 0), np.int64)

    def pad(self, array: Array) -> Array:
        """Extends an array with unwritten memory to whole blocks."""
        return array if self.padded == self.shape else pad_unwritten(array, self.padded)

    def window(self, array: Array, start: Sequence[int]) -> Array:
        at = [
            s if axis in self.squeezed else slice(s, s + n)
            for axis, (s, n) in enumerate(zip(start, self.lengths, strict=True))
        ]
        return array[(slice(None), *at)]


def pallas_call(machine: Machine, equation: Equation) -> EquationFunction:
    """Rule for a `pallas_call`; UnknownError for an unsupported layout, many programs, or an input that is written."""
    params = equation.params
    mapping, body = params["grid_mapping"], params["jaxpr"]
    if not is_plain_call(equation, sized=False) or getattr(mapping, "local_grid_env", None) is not None:
        raise UnknownError("a call with an unsupported layout")
    bounds, scalars = mapping.num_dynamic_grid_bounds, mapping.num_index_operands
    if math.prod(length for length in mapping.grid if isinstance(length, int)) > MOST_PROGRAMS:
        raise UnknownError("too many programs")
    layouts = [_block_layout(machine, block_mapping) for block_mapping in mapping.block_mappings]
    run_program = machine.compile(body)
    inputs = len(equation.invars) - bounds - scalars
    outputs = len(equation.outvars)
    scratch = [scoped_memory(machine.rules, v.aval) for v in body.invars[scalars + inputs + outputs :]]
    aliases = {output: operand - scalars for operand, output in params["input_output_aliases"]}
    used = {v for inside in body.eqns for v in inside.invars if not hasattr(v, "val")}
    # JAX keeps its old value; a device does not, nor do formulas. A kernel that does not follow its own is not asked.
    if not machine.rules.promotes and any(body.invars[scalars + operand] in used for operand in aliases.values()):
        raise UnknownError("an aliased input that the body also uses as an input")
    writes = (effect for effect in body.effects if type(effect).__name__ in ("WriteEffect", "AccumEffect"))
    written = {i for i in (body.invars.index(effect.input) for effect in writes) if i < scalars + inputs}
    if written and not machine.rules.promotes:
        raise UnknownError("an input that is written")
    for each in mapping.block_mappings:
        index_map = each.index_map_jaxpr.jaxpr
        read = {v for inside in index_map.eqns for v in inside.invars if not hasattr(v, "val")}
        if any(v in read and i in written for i, v in enumerate(index_map.invars[len(mapping.grid) :])):
            raise UnknownError("an index map that reads a scalar which the body writes")
    own = [axis for axis in range(len(mapping.grid)) if axis not in mapping.vmapped_dims]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        rows = machine.rows_of(operands)
        shared = [_share_row(x) for x in operands[: bounds + scalars]]
        if not is_uniform(shared):
            return run_by_group(machine, _number_rows(shared, rows), operands, lambda _, part: evaluate(part))
        lengths = iter(int(bound[0]) for bound in shared[:bounds])
        grid = tuple(length if isinstance(length, int) else max(next(lengths), 0) for length in mapping.grid)
        if math.prod(grid) > _MOST_POSSIBLE:
            raise UnknownError("too many programs")

        def writable_if_written(number: int, array: Array) -> Array:
            return copy_rows(array, rows) if number in written else _read_only(array)

        prefetched = [BatchedRef(writable_if_written(i, x)) for i, x in enumerate(shared[bounds:])]
        given = zip(layouts[:inputs], operands[bounds + scalars :], strict=True)
        arrays = [writable_if_written(i, layout.pad(x)) for i, (layout, x) in enumerate(given, scalars)]
        for number, layout in enumerate(layouts[inputs:]):
            if number in aliases:
                operand = aliases[number]
                arrays.append(copy_rows(arrays[operand], rows))
                if machine.rules.promotes and layouts[operand].padded == layout.padded:
                    arrays[operand] = arrays[-1]
            else:
                arrays.append(unwritten_memory((rows, *layout.padded), layout.dtype))
        scoped = [make(rows) for make in scratch]
        numbers = np.indices(grid, np.int32).reshape(len(grid), -1).T if grid else np.zeros((1, 0), np.int32)
        programs = list(numbers.T)
        outer = machine.program, machine.grid
        try:
            machine.program, machine.grid = [programs[axis] for axis in own], [grid[axis] for axis in own]
            starts = [layout.starts(machine, programs, prefetched).tolist() for layout in layouts if len(numbers)]
            for program, row in enumerate(numbers):
                machine.program = [row[axis : axis + 1] for axis in own]
                views = zip(layouts, arrays, starts, strict=True)
                windows = [BatchedRef(layout.window(x, at[program])) for layout, x, at in views]
                run_program([*prefetched, *windows, *scoped])
        finally:
            machine.program, machine.grid = outer
        results = zip(layouts[inputs:], arrays[inputs:], strict=True)
        return [x[(slice(None), *map(slice, layout.shape))] for layout, x in results]

    return evaluate


def _read_only(value: Array) -> Array:
    # Rows with different control flow may share it.
    view = value.view()
    view.flags.writeable = False
    return view


def _share_row(value: Array) -> Array:
    # A value with a single row if all of its rows are equal, as those of an integer are in samples of a kernel.
    return value[:1].copy() if len({row.tobytes() for row in value}) == 1 else value


def _number_rows(values: Sequence[Array], rows: int) -> Array:
    # Returns a number for each row, which is the same for rows in which all values are equal.
    numbers: dict[bytes, int] = {}
    keys = (b"".join(value[row].tobytes() for value in values if len(value) > 1) for row in range(rows))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def _block_layout(machine: Machine, mapping: BlockMapping) -> _BlockLayout:
    array = mapping.array_aval
    lengths, scale = zip(*map(_length_and_scale, mapping.block_shape), strict=True) if mapping.block_shape else ((), ())
    if 0 in lengths:
        raise UnknownError("an empty block")
    shape = tuple(array.shape)
    padded = tuple(-(-n // length) * length for n, length in zip(shape, lengths, strict=True))
    squeezed = tuple(axis for axis, kind in enumerate(mapping.block_shape) if isinstance(kind, pl.Squeezed))
    index_map = machine.compile(mapping.index_map_jaxpr)
    return _BlockLayout(shape, machine.rules.dtype_of(array), padded, lengths, scale, squeezed, index_map)


def _length_and_scale(kind: object) -> tuple[int, int]:
    match kind:
        case pl.Squeezed():
            return 1, 1
        case pl.Blocked(block_size=size) | (int() as size):
            return int(size), int(size)
        case pl.Element(block_size=size, padding=(0, 0)):
            return int(size), 1
    raise UnknownError("an unsupported kind of block")
