"""Index maps that select a block outside of its array, for which an interpreter substitutes another block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from kerneltest.core.details import Access, MemoryFault, Visit
from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.kernel_rules import supported_rule
from kerneltest.trace.batched_interpreter.memory_rules import OperandLeaf, is_slice, operand_leaves
from kerneltest.trace.jax_compat.jaxprs import BlockMapping, Equation, Jaxpr, inner_jaxprs, open_jaxpr, parameter_names
from kerneltest.trace.jax_compat.source_lines import line_of, line_of_function
from kerneltest.trace.machine import EquationFunction, Machine, RuleSet, UnknownError
from kerneltest.trace.primitives import Kind, access_parts, kind_of
from kerneltest.trace.rewrite import is_plain_call
from kerneltest.trace.tracing import Call, Traced, call_of
from kerneltest.trace.walk import primitive_name, unconditional_equations

# The blocks that a Pallas call cuts its arrays into, and the ranges in which their indices must be.


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The indices that an index map may return for one axis of an array."""

    first: int
    last: int
    block: int  # the distance in elements between two indices of an axis that is cut into blocks; 0 for other axes
    size: int  # the number of elements that one index selects
    words: str  # the extent of the axis, for messages

    def describe(self, index: int) -> str:
        """The elements that an index selects, in words."""
        if self.block:
            return f"block {index}"
        return f"element {index}" if self.size == 1 else f"the {self.size} elements from {index}"


@dataclass(frozen=True, eq=False)
class ArrayBlock:
    """The part of one array that each program of a call gets."""

    mapping: BlockMapping
    name: str  # the kernel's parameter
    copied: bool  # whatever the body does

    @cached_property
    def index_map(self) -> Jaxpr:
        """The open jaxpr from the program's numbers and the prefetched scalars to an index for each axis."""
        return open_jaxpr(self.mapping.index_map_jaxpr)

    @cached_property
    def ranges(self) -> tuple[IndexRange, ...]:
        """A range for each axis; () for an empty array, or if an axis is indexed in another way (`pl.BoundedSlice`)."""
        shape = self.mapping.array_aval.shape
        if not all(shape):
            return ()
        found = [self._range(kind, length) for kind, length in zip(self.mapping.block_shape, shape, strict=True)]
        known = tuple(each for each in found if each is not None)
        return known if len(known) == len(found) else ()

    def _range(self, kind: object, length: int) -> IndexRange | None:
        match kind:
            case pl.Squeezed():
                return IndexRange(0, length - 1, 0, 1, f"elements 0 to {length - 1}")
            case pl.Blocked(block_size=size):
                last = -(-length // size) - 1
                blocks = f"{last + 1} blocks (0 to {last})" if last else "one block (0)"
                return IndexRange(0, last, size, size, f"{blocks} of {size} for {length} elements")
            case pl.Element(block_size=size, padding=(before, after)):
                # A copy moves a whole block, so it may not start before the array; a body may skip the part outside.
                first = -before if self.copied else 1 - before - size
                padded = f", padded by {before} and {after}" if before or after else ""
                return IndexRange(first, length + after - 1, 0, size, f"elements 0 to {length - 1}{padded}")
        return None


def blocks_of(equation: Equation, *, copied: bool) -> list[ArrayBlock]:
    """The blocks that every program of a Pallas call accesses whatever the values are; all are `copied` on a TPU."""
    body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    start = mapping.num_index_operands  # scalars, which have no blocks
    references = {ref: number for number, ref in enumerate(body.invars[start:])}
    accesses = ((access_parts(e), operands) for e, operands in unconditional_equations(body, references))
    accessed = {operands[0] for parts, operands in accesses if parts is not None and parts.mask is None}
    blocks = enumerate(zip(mapping.block_mappings, parameter_names(body)[start:], strict=False))
    return [ArrayBlock(each, name or f"argument {i}", copied) for i, (each, name) in blocks if copied or i in accessed]


# The rule set of index maps.


class _IntegerRules(RuleSet):
    """Integer scalars for many programs, one in each row; a reference is to an array, or None if that is unknown."""

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        name = primitive_name(equation)
        if any(v.aval.shape or v.aval.dtype.kind not in "biu" for v in equation.outvars):
            raise UnknownError("an index map that computes with other values than integers")
        if name == "get":
            return self._element(equation)
        is_call = any(True for _ in inner_jaxprs(equation))
        if any(hasattr(v.aval, "inner_aval") for v in equation.invars) and not is_call:
            raise UnknownError("an index map that does more than reading its references")
        evaluate = supported_rule(machine, equation)
        if name not in ("div", "rem"):
            return evaluate

        def divide(operands: Sequence[Array]) -> Sequence[Array]:
            if not operands[1].all():
                raise UnknownError("a division by zero, which is undefined on devices")
            return evaluate(operands)

        return divide

    def _element(self, equation: Equation) -> EquationFunction:
        access = access_parts(equation, operand_leaves(equation))
        if access is None or len(access.transforms) != 1:
            raise UnknownError("a reference that is indexed twice, or not at all")
        leaves = [i for i in access.transforms[0].indices if not is_slice(i)]

        def element(operands: Sequence[Any]) -> Sequence[Array]:
            memory = operands[0]
            indices = [operands[i.number] if isinstance(i, OperandLeaf) else np.array([i]) for i in leaves]
            if memory is None or len(indices) != memory.ndim:
                raise UnknownError("an unknown prefetched array, or a part of one")
            if any(((i < 0) | (i >= n)).any() for i, n in zip(indices, memory.shape, strict=True)):
                raise UnknownError("an index outside of a prefetched array")
            return (memory[tuple(indices)],)

        return element


_PROGRAMS = 2**16  # checked at most: of a larger grid the ends of each axis and some programs between them


@dataclass(frozen=True, eq=False)
class IndexMappedCall:
    """A Pallas call on a grid that runs unconditionally."""

    call: Call
    scalars: tuple[int | None, ...]  # for each prefetched operand the number of its leaf, or None if it is computed

    def find_outside_block(self, leaves: Sequence[Array] | None = None) -> MemoryFault | None:
        """The fault of programs that take a block outside of its array, or None.

        Without the leaves of a case, index maps that read prefetched scalars are not checked.
        """
        scalars = [None if leaves is None or leaf is None else leaves[leaf] for leaf in self.scalars]
        found = [(block, taken) for block in self._blocks if (taken := self._taken_outside(block, scalars)) is not None]
        if not found:
            return None
        (block, (indices, bad)), *others = found
        outside = bad.any(axis=0)
        at = int(outside.argmax())
        axis = int(bad[:, at].argmax())
        allowed, program, count = block.ranges[axis], self._program(at), int(outside.sum())
        element = allowed.describe(int(indices[axis, at]))
        line = line_of_function(block.index_map) or line_of(self.call.equation.source_info)
        also = ", ".join(dict.fromkeys(other.name for other, _ in others))
        words = (
            f"{f'program {program}' if program else 'the only program'} takes {element} of {block.name} along axis "
            f"{axis}, which has {allowed.words}, by the index map at {line}; "
            f"{'' if outside.size == math.prod(self.call.grid) else 'at least '}"
            f"{count} program{'' if count == 1 else 's'} in all{f'; also of {also}' if also else ''}; interpret mode "
            f"substitutes a block inside the array, which hides this: {self._advice(block, axis)}"
        )
        return MemoryFault(self.call.name, Visit(Access.BLOCK, program, line), block.name, element, words)

    @cached_property
    def _blocks(self) -> list[ArrayBlock]:
        return blocks_of(self.call.equation, copied=self.call.dialect == "mosaic_tpu")

    @cached_property
    def _programs(self) -> Array:
        # The numbers of the programs to check along each axis of the grid, (axes, programs).
        counts = list(self.call.grid)
        while math.prod(counts) > _PROGRAMS:
            longest = counts.index(max(counts))
            counts[longest] = -(-counts[longest] // 2)
        pairs = zip(self.call.grid, counts, strict=True)
        numbers = [np.linspace(0, length - 1, count).astype(np.int32) for length, count in pairs]
        return np.reshape(np.meshgrid(*numbers, indexing="ij"), (len(counts), math.prod(counts)))

    def _taken_outside(self, block: ArrayBlock, scalars: Sequence[Array | None]) -> tuple[Array, Array] | None:
        """The indices that each program takes, and which of them are outside, (axes, programs); None if none is."""
        if not block.ranges or not all(self.call.grid):
            return None
        try:
            with np.errstate(all="ignore"):
                indices = Machine(_IntegerRules()).compile(block.index_map)([*self._programs, *scalars])
        except UnknownError:
            return None
        taken = np.array([np.broadcast_to(index, self._programs.shape[1]) for index in indices])
        first, last = np.array([(r.first, r.last) for r in block.ranges]).T[:, :, None]
        bad = (taken < first) | (taken > last)
        return (taken, bad) if bad.any() else None

    def _program(self, at: int) -> tuple[int, ...]:
        # The number of a program that is checked along each axis of the grid, without those that vmap has added.
        vmapped = self.call.equation.params["grid_mapping"].vmapped_dims
        return tuple(int(numbers[at]) for axis, numbers in enumerate(self._programs) if axis not in vmapped)

    def _advice(self, block: ArrayBlock, axis: int) -> str:
        allowed, result = block.ranges[axis], block.index_map.outvars[axis]
        programs = block.index_map.invars[: len(self.call.grid)]
        if not hasattr(result, "val") and result in programs and allowed.block:
            number, length = programs.index(result), block.mapping.array_aval.shape[axis]
            if fitting := [other.name for other in self._blocks if self._is_counted(other, number)]:
                return f"axis {number} of the grid counts the blocks of {fitting[0]}, so return another program id here"
            return f"make axis {number} of the grid pl.cdiv({length}, {allowed.block}) long"
        reads_scalars = any(kind_of(equation) is Kind.READ for equation in block.index_map.eqns)
        what = "the scalars that it reads" if reads_scalars else "the index that it returns"
        return f"keep {what} within {allowed.first} to {allowed.last}"

    def _is_counted(self, block: ArrayBlock, number: int) -> bool:
        # Whether an axis of the grid has a program for each block along an axis of an array.
        pairs = zip(block.index_map.outvars, block.ranges, strict=False)
        return any(v is block.index_map.invars[number] and r.last + 1 == self.call.grid[number] for v, r in pairs)


def calls_with_index_maps(traced: Traced) -> list[IndexMappedCall]:
    """The Pallas calls of a kernel that are laid out in blocks and run unconditionally."""
    jaxpr = traced.jaxpr.jaxpr
    leaves = {variable: number for number, variable in enumerate(jaxpr.invars)}
    return [
        IndexMappedCall(call_of(equation), tuple(operands[: equation.params["grid_mapping"].num_index_operands]))
        for equation, operands in unconditional_equations(jaxpr, leaves)
        if is_plain_call(equation)
    ]
