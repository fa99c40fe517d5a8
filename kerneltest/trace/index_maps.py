"""Index maps that select a block outside of its array, for which an interpreter substitutes another block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kerneltest.core.details import Access, MemoryFault, Visit
from kerneltest.core.dtypes import Array
from kerneltest.trace.blocks import ArrayBlock, blocks_of
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.rewrite import is_plain_call
from kerneltest.trace.scalars import UnknownError, evaluate_scalars
from kerneltest.trace.tracing import Call, Traced, call_of
from kerneltest.trace.walk import unconditional_equations

_PROGRAMS = 2**16  # checked at most: of a larger grid the ends of each axis and some programs between them


@dataclass(frozen=True, slots=True)
class _Outside:
    """Blocks outside of one array.

    Attributes:
      buffer: the array's parameter.
      element: the block or element along the axis on which it leaves the array.
      visit: the first program that takes one.
      words: the programs and the blocks.
      advice: the change to make.
    """

    buffer: str
    element: str
    visit: Visit
    words: str
    advice: str


@dataclass(frozen=True, eq=False)
class IndexMappedCall:
    """A Pallas call on a grid that runs unconditionally.

    Attributes:
      call: the kernel's.
      scalars: for each prefetched operand the number of its leaf, or None if it is computed.
    """

    call: Call
    scalars: tuple[int | None, ...]

    def find_outside_block(self, leaves: Sequence[Array] | None = None) -> MemoryFault | None:
        """The fault of programs that take a block outside of its array, or None.

        Args:
          leaves: a case's. Without them, index maps that read prefetched scalars are not checked.
        """
        scalars = [None if leaves is None or leaf is None else leaves[leaf] for leaf in self.scalars]
        found = [outside for block in self._blocks if (outside := self._outside(block, scalars)) is not None]
        if not found:
            return None
        first, others = found[0], dict.fromkeys(each.buffer for each in found[1:])
        also = f"; also of {', '.join(others)}" if others else ""
        words = (
            f"{first.words}{also}; interpret mode substitutes a block inside the array, which hides this: "
            f"{first.advice}"
        )
        return MemoryFault(self.call.name, first.visit, first.buffer, first.element, words)

    @cached_property
    def _blocks(self) -> list[ArrayBlock]:
        return blocks_of(self.call.equation, copied=self.call.dialect == "mosaic_tpu")

    @cached_property
    def _programs(self) -> list[Array]:
        """The numbers of the programs to check along each axis of the grid, as an open mesh."""
        counts = list(self.call.grid)
        while math.prod(counts) > _PROGRAMS:
            longest = counts.index(max(counts))
            counts[longest] = -(-counts[longest] // 2)
        pairs = zip(self.call.grid, counts, strict=True)
        return list(np.ix_(*(np.linspace(0, length - 1, count).astype(np.int32) for length, count in pairs)))

    def _outside(self, block: ArrayBlock, scalars: Sequence[Array | None]) -> _Outside | None:
        if not block.ranges or not all(self.call.grid):
            return None
        try:
            indices = evaluate_scalars(block.index_map, [*self._programs, *scalars])
        except UnknownError:
            return None
        bad = [(i < r.first) | (i > r.last) for i, r in zip(indices, block.ranges, strict=True)]
        if not any(each.any() for each in bad):
            return None
        mesh = np.broadcast_shapes(*(numbers.shape for numbers in self._programs))
        outside = np.logical_or.reduce([np.broadcast_to(each, mesh) for each in bad])
        at = tuple(np.argwhere(outside)[0])
        axis = next(axis for axis, each in enumerate(bad) if np.broadcast_to(each, mesh)[at])
        index = int(np.broadcast_to(indices[axis], mesh)[at])
        element, count = block.ranges[axis].describe(index), int(outside.sum())
        line = block.line or line_of(self.call.equation.source_info)
        program = self._program(at)
        words = (
            f"{f'program {program}' if program else 'the only program'} takes {element} of {block.name} along axis "
            f"{axis}, which has {block.ranges[axis].words}, by the index map at {line}; "
            f"{'' if outside.size == math.prod(self.call.grid) else 'at least '}"
            f"{count} program{'' if count == 1 else 's'} in all"
        )
        return _Outside(block.name, element, Visit(Access.BLOCK, program, line), words, self._advice(block, axis))

    def _program(self, at: Sequence[int]) -> tuple[int, ...]:
        """The number of the program at a point of the mesh along each axis, without the axes that vmap has added."""
        vmapped = self.call.equation.params["grid_mapping"].vmapped_dims
        pairs = enumerate(zip(self._programs, at, strict=True))
        return tuple(int(numbers.ravel()[i]) for axis, (numbers, i) in pairs if axis not in vmapped)

    def _advice(self, block: ArrayBlock, axis: int) -> str:
        """The change that keeps an index map inside the array along an axis."""
        allowed, result = block.ranges[axis], block.index_map.outvars[axis]
        programs = block.index_map.invars[: len(self.call.grid)]
        if not hasattr(result, "val") and result in programs and allowed.block:
            length = block.mapping.array_aval.shape[axis]
            return f"make axis {programs.index(result)} of the grid pl.cdiv({length}, {allowed.block}) long"
        what = "the scalars that it reads" if block.reads_scalars else "the index that it returns"
        return f"keep {what} within {allowed.first} to {allowed.last}"


def calls_with_index_maps(traced: Traced) -> list[IndexMappedCall]:
    """The Pallas calls of a kernel that are laid out in blocks and run unconditionally."""
    jaxpr = traced.jaxpr.jaxpr
    leaves = {variable: number for number, variable in enumerate(jaxpr.invars)}
    return [
        IndexMappedCall(call_of(equation), tuple(operands[: equation.params["grid_mapping"].num_index_operands]))
        for equation, operands in unconditional_equations(jaxpr, leaves)
        if is_plain_call(equation)
    ]
