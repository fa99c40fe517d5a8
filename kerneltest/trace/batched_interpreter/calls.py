"""A Pallas call on a grid: its blocks, and its programs one after another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.machine import Block, Machine
from kerneltest.trace.batched_interpreter.values import (
    Memory,
    Step,
    UnknownError,
    Value,
    dtype_of,
    is_uniform,
    rows_of,
    unwritten,
)
from kerneltest.trace.rewrite import is_plain_call

_MOST = 2**13  # programs


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How an array is cut.

    Attributes:
      shape, dtype: of the array.
      padded: its shape in whole blocks.
      lengths: of a block.
      scale: elements from one index to the next.
      squeezed: axes that the kernel does not see.
      index_map: from the programs' numbers to an index along each axis.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    padded: tuple[int, ...]
    lengths: tuple[int, ...]
    scale: tuple[int, ...]
    squeezed: tuple[int, ...]
    index_map: Block

    def starts(self, programs: Sequence[Array], scalars: Sequence[Memory]) -> Array:
        """The first element of each program's block, (programs, axes), where the whole block fits into the array."""
        count = len(programs[0]) if programs else 1
        results = self.index_map([*programs, *scalars])[: len(self.lengths)]
        starts = [np.broadcast_to(np.asarray(index).astype(np.int64), count) for index in results]
        moved = [
            np.clip(np.where(s * scale < 0, s * scale + n, s * scale), 0, n - length)
            for s, scale, n, length in zip(starts, self.scale, self.padded, self.lengths, strict=True)
        ]
        return np.stack(moved, axis=1) if moved else np.zeros((count, 0), np.int64)

    def held(self, array: Array) -> Array:
        """An array with unwritten memory behind it, up to a whole block."""
        if self.padded == self.shape:
            return array
        whole = unwritten((len(array), *self.padded), array.dtype)
        whole[(slice(None), *map(slice, self.shape))] = array
        return whole

    def window(self, array: Array, start: Sequence[int]) -> Array:
        """A program's part of an array, which it shares."""
        at = [
            s if axis in self.squeezed else slice(s, s + n)
            for axis, (s, n) in enumerate(zip(start, self.lengths, strict=True))
        ]
        return array[(slice(None), *at)]


def pallas_call(machine: Machine, equation: Any) -> Step:
    """What runs a `pallas_call`.

    Raises:
      UnknownError: it is laid out in a way that is not known here.
    """
    params = equation.params
    mapping, body = params["grid_mapping"], params["jaxpr"]
    if not is_plain_call(equation, sized=False) or getattr(mapping, "local_grid_env", None) is not None:
        raise UnknownError("a call that is laid out in another way")
    bounds, scalars = mapping.num_dynamic_grid_bounds, mapping.num_index_operands
    if math.prod(length for length in mapping.grid if isinstance(length, int)) > _MOST:
        raise UnknownError("more programs than run in good time")
    blocks = [_cut(machine, each) for each in mapping.block_mappings]
    inner = machine.block(body)
    inputs = len(equation.invars) - bounds - scalars
    outputs = len(equation.outvars)
    scratch = [(tuple(v.aval.shape), dtype_of(v.aval)) for v in body.invars[scalars + inputs + outputs :]]
    aliases = {output: operand - scalars for operand, output in params["input_output_aliases"]}
    touched = _touched(body)
    if any(body.invars[scalars + operand] in touched for operand in aliases.values()):
        raise UnknownError("an input that is an output too, and read or written as itself")
    written = [scalars + inputs > i >= scalars for i in _written(body)]
    if any(written):
        raise UnknownError("an input that is written")
    own = [axis for axis in range(len(mapping.grid)) if axis not in mapping.vmapped_dims]

    def step(operands: Sequence[Value]) -> Sequence[Value]:
        rows = rows_of(operands)
        if not is_uniform(operands[: bounds + scalars]):
            single = [step([_row(x, row) for x in operands]) for row in range(rows)]
            return [np.concatenate(column) for column in zip(*single, strict=True)]
        known = iter(int(bound[0]) for bound in operands[:bounds])
        grid = tuple(length if isinstance(length, int) else next(known) for length in mapping.grid)
        given, arrays = [Memory(x) for x in operands[bounds : bounds + scalars]], list(operands[bounds + scalars :])
        held = [cut.held(array) for cut, array in zip(blocks[:inputs], arrays, strict=True)]
        for number, cut in enumerate(blocks[inputs:]):
            if number in aliases:
                old = held[aliases[number]]
                held.append(np.repeat(old, rows, 0) if len(old) < rows else old.copy())
            else:
                held.append(unwritten((rows, *cut.padded), cut.dtype))
        scoped = [Memory(unwritten((rows, *shape), dtype)) for shape, dtype in scratch]
        numbers = np.indices(grid, np.int32).reshape(len(grid), -1).T if grid else np.zeros((1, 0), np.int32)
        programs = list(numbers.T)
        outer = machine.program, machine.grid
        try:
            machine.program, machine.grid = [programs[axis] for axis in own], [grid[axis] for axis in own]
            starts = [cut.starts(programs, given).tolist() for cut in blocks] if len(numbers) else []
            for program, row in enumerate(numbers):
                machine.program = [row[axis : axis + 1] for axis in own]
                windows = [Memory(cut.window(x, at[program])) for cut, x, at in zip(blocks, held, starts, strict=True)]
                inner([*given, *windows, *scoped])
        finally:
            machine.program, machine.grid = outer
        return [x[(slice(None), *map(slice, cut.shape))] for cut, x in zip(blocks[inputs:], held[inputs:], strict=True)]

    return step


def _row(value: Array, row: int) -> Array:
    return value[row : row + 1] if len(value) > 1 else value


def _cut(machine: Machine, mapping: Any) -> _Blocks:
    array = mapping.array_aval
    lengths, scale, squeezed = [], [], []
    for axis, kind in enumerate(mapping.block_shape):
        match kind:
            case pl.Squeezed():
                squeezed.append(axis)
                lengths.append(1)
                scale.append(1)
            case pl.Blocked(block_size=size):
                lengths.append(int(size))
                scale.append(int(size))
            case pl.Element(block_size=size, padding=(0, 0)):
                lengths.append(int(size))
                scale.append(1)
            case int():
                lengths.append(kind)
                scale.append(kind)
            case _:
                raise UnknownError("a block of another kind")
    shape = tuple(array.shape)
    padded = tuple((n - 1) // length * length + length for n, length in zip(shape, lengths, strict=True))
    return _Blocks(
        shape,
        dtype_of(array),
        padded,
        tuple(lengths),
        tuple(scale),
        tuple(squeezed),
        machine.block(mapping.index_map_jaxpr),
    )


def _touched(body: Any) -> set[Any]:
    """The variables of a body that any equation takes."""
    return {v for equation in body.eqns for v in equation.invars if not hasattr(v, "val")}


def _written(body: Any) -> list[int]:
    """The numbers of the references that a body writes to."""
    effects = (effect for effect in body.effects if type(effect).__name__ in ("WriteEffect", "AccumEffect"))
    found = []
    for effect in effects:
        number = getattr(effect, "input_index", None)
        found.append(body.invars.index(effect.input) if number is None else number)
    return found
