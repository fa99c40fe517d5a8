"""Programs that take a block outside of its array, where an interpreter gives them another one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kerneltest.core.details import Access, MemoryFault, Visit
from kerneltest.core.dtypes import Array
from kerneltest.trace.blocks import Block, blocks_of
from kerneltest.trace.jax_compat.names import line_of
from kerneltest.trace.rewrite import is_plain_call
from kerneltest.trace.scalars import UnknownError, evaluate_scalars
from kerneltest.trace.tracing import Call, Traced, call_of
from kerneltest.trace.unconditional import certain

_PROGRAMS = 2**16  # of a grid are looked at; of a larger one the ends of each axis and some between them


@dataclass(frozen=True, slots=True)
class _Stray:
    """Blocks outside of one array.

    Attributes:
      array: the parameter.
      visit: the first program that takes one.
      element: the block that it takes: `block 4`.
      words: who takes them.
      advice: what to write instead.
    """

    array: str
    visit: Visit
    element: str
    words: str
    advice: str


@dataclass(frozen=True, eq=False)
class MappedCall:
    """A Pallas call on a grid, which runs whatever the values are.

    Attributes:
      call: as the kernel has it.
      scalars: for each prefetched operand the leaf that it is, or None where it is computed.
    """

    call: Call
    scalars: tuple[int | None, ...]

    def outside(self, leaves: Sequence[Array] | None = None) -> MemoryFault | None:
        """Returns the programs that take a block outside its array, if any.

        Args:
          leaves: of a case. Index maps that read prefetched scalars are known only with these.
        """
        given = [None if leaves is None or leaf is None else leaves[leaf] for leaf in self.scalars]
        found = [stray for block in self._blocks if (stray := self._stray(block, given)) is not None]
        if not found:
            return None
        first = found[0]
        others = dict.fromkeys(stray.array for stray in found[1:])
        also = f"; likewise of {', '.join(others)}" if others else ""
        words = (
            f"{first.words}{also}; interpret mode substitutes a block that lies inside, which hides this: "
            f"{first.advice}"
        )
        return MemoryFault(self.call.name, first.visit, first.array, first.element, words)

    @cached_property
    def _blocks(self) -> list[Block]:
        return blocks_of(self.call.equation, copied=self.call.dialect == "mosaic_tpu")

    @cached_property
    def _programs(self) -> list[Array]:
        """The numbers of the programs that are looked at, along each axis of the grid, as an open mesh."""
        counts = list(self.call.grid)
        while math.prod(counts) > _PROGRAMS:
            longest = counts.index(max(counts))
            counts[longest] = -(-counts[longest] // 2)
        pairs = zip(self.call.grid, counts, strict=True)
        return list(np.ix_(*(np.linspace(0, length - 1, count).astype(np.int32) for length, count in pairs)))

    def _stray(self, block: Block, scalars: Sequence[Array | None]) -> _Stray | None:
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
        stray = np.logical_or.reduce([np.broadcast_to(each, mesh) for each in bad])
        at = tuple(np.argwhere(stray)[0])
        axis = next(axis for axis, each in enumerate(bad) if np.broadcast_to(each, mesh)[at])
        index = int(np.broadcast_to(indices[axis], mesh)[at])
        count = int(stray.sum())
        place = block.place or line_of(self.call.equation.source_info)
        program, element = self._program(at), block.ranges[axis].taken(index)
        who = f"program {program}" if program else "the one program"
        words = (
            f"{who} takes {element} of {block.name} along axis {axis}, which has {block.ranges[axis].words}, "
            f"by the index map at {place}; "
            f"{'' if stray.size == math.prod(self.call.grid) else 'at least '}"
            f"{count} program{'' if count == 1 else 's'} in all"
        )
        visit = Visit(Access.BLOCK, program, place)
        return _Stray(block.name, visit, element, words, self._advice(block, axis))

    def _program(self, at: Sequence[int]) -> tuple[int, ...]:
        """Returns the number of the program at an index of the mesh, without the axes that vmap has added."""
        vmapped = self.call.equation.params["grid_mapping"].vmapped_dims
        pairs = enumerate(zip(self._programs, at, strict=True))
        return tuple(int(numbers.ravel()[i]) for axis, (numbers, i) in pairs if axis not in vmapped)

    def _advice(self, block: Block, axis: int) -> str:
        """What to write instead of an index map that leaves the array along an axis."""
        allowed, given = block.ranges[axis], block.index_map.outvars[axis]
        programs = block.index_map.invars[: len(self.call.grid)]
        if not hasattr(given, "val") and given in programs and allowed.block:
            length = block.mapping.array_aval.shape[axis]
            return f"let axis {programs.index(given)} of the grid be pl.cdiv({length}, {allowed.block}) long"
        what = "the scalars that it reads" if block.reads else "what the index map gives"
        return f"keep {what} within {allowed.first} to {allowed.last}"


def mapped_calls(traced: Traced) -> list[MappedCall]:
    """The Pallas calls of a kernel that are laid out in blocks and run whatever the values are."""
    jaxpr = traced.jaxpr.jaxpr
    leaves = {variable: number for number, variable in enumerate(jaxpr.invars)}
    return [
        MappedCall(call_of(equation), tuple(operands[: equation.params["grid_mapping"].num_index_operands]))
        for equation, operands in certain(jaxpr, leaves)
        if is_plain_call(equation)
    ]
