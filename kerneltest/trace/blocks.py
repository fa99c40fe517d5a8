"""The blocks that a Pallas call cuts its arrays into, and the ranges in which their indices must be."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from jax.experimental import pallas as pl

from kerneltest.trace.jax_compat.jaxpr_types import BlockMapping, ClosedJaxpr, Equation, Jaxpr
from kerneltest.trace.jax_compat.source_lines import line_of_function
from kerneltest.trace.walk import primitive_name, unconditional_equations


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The indices that an index map may return for one axis of an array.

    Attributes:
      first, last: the smallest and the largest of them.
      block: the distance in elements between two indices of an axis that is cut into blocks; 0 for other axes.
      size: the number of elements that one index selects.
      words: the extent of the axis, for messages.
    """

    first: int
    last: int
    block: int
    size: int
    words: str

    def describe(self, index: int) -> str:
        """The elements that an index selects, in words."""
        if self.block:
            return f"block {index}"
        return f"element {index}" if self.size == 1 else f"the {self.size} elements from {index}"


@dataclass(frozen=True, eq=False)
class ArrayBlock:
    """The part of one array that each program of a call gets.

    Attributes:
      mapping: JAX's own description.
      name: the kernel's parameter.
      copied: whether it is copied whatever the body does.
    """

    mapping: BlockMapping
    name: str
    copied: bool

    @cached_property
    def index_map(self) -> Jaxpr:
        """The open jaxpr from the program's numbers and the prefetched scalars to an index for each axis."""
        whole = self.mapping.index_map_jaxpr
        return whole.jaxpr if isinstance(whole, ClosedJaxpr) else whole

    @property
    def line(self) -> str:
        """FILE:LINE of the index map, or ""."""
        return line_of_function(self.index_map)

    @property
    def reads_scalars(self) -> bool:
        """Returns whether its index map reads prefetched scalars."""
        return any(primitive_name(equation) == "get" for equation in self.index_map.eqns)

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
    """The blocks that every program of a Pallas call copies, or accesses whatever the values are.

    Args:
      equation: the call.
      copied: whether all blocks are copied, as in a TPU's pipeline. If not, only those that the body accesses count.
    """
    body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    names = list(getattr(body.debug_info, "arg_names", None) or ()) or [""] * len(body.invars)
    start = mapping.num_index_operands  # scalars, which have no blocks
    references = {ref: number for number, ref in enumerate(body.invars[start:])}
    accessed = frozenset(references.values() if copied else _accessed(unconditional_equations(body, references)))
    return [
        ArrayBlock(each, names[start + number] or f"argument {number}", copied)
        for number, each in enumerate(mapping.block_mappings)
        if number in accessed
    ]


# The index of the operand that is the mask.
_MASKS: Mapping[str, int] = {"masked_load": 2, "masked_swap": 3, "atomic_rmw": 3}
_PLAIN = frozenset({"get", "swap", "addupdate", "atomic_cas"})


def _accessed(equations: Iterable[tuple[Equation, list[int | None]]]) -> Iterator[int]:
    """Yields the numbers of the references that are read or written without a mask."""
    for equation, operands in equations:
        name = primitive_name(equation)
        plain = name in _PLAIN or (
            name in _MASKS and equation.params["args_tree"].unflatten(equation.invars)[_MASKS[name]] is None
        )
        if plain and operands[0] is not None:
            yield operands[0]
