"""The blocks that a Pallas call cuts an array into: which there are, and which of them a program touches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jax.experimental import pallas as pl

from kerneltest.trace.jax_compat.names import ClosedJaxpr, line_of_function
from kerneltest.trace.unconditional import certain
from kerneltest.trace.walk import name_of


@dataclass(frozen=True, slots=True)
class Range:
    """Which indices an index map may give along one axis of an array.

    Attributes:
      first, last: of those allowed.
      block: elements from one to the next, of an array that is cut into blocks; else 0.
      size: elements that one index takes.
      words: what the array has there.
    """

    first: int
    last: int
    block: int
    size: int
    words: str

    def taken(self, index: int) -> str:
        """What an index stands for."""
        if self.block:
            return f"block {index}"
        return f"element {index}" if self.size == 1 else f"the {self.size} elements from {index} on"


@dataclass(frozen=True, eq=False)
class Block:
    """What a program has of one array.

    Attributes:
      mapping: as JAX keeps it.
      name: of the kernel's parameter.
      copied: it is copied, whatever the body does.
    """

    mapping: Any
    name: str
    copied: bool

    @cached_property
    def index_map(self) -> Any:
        """From the program's numbers and the prefetched scalars to an index along each axis: an open jaxpr."""
        whole = self.mapping.index_map_jaxpr
        return whole.jaxpr if isinstance(whole, ClosedJaxpr) else whole

    @property
    def place(self) -> str:
        """FILE:LINE of the index map, or ""."""
        return line_of_function(self.index_map)

    @property
    def reads(self) -> bool:
        """Whether its index map reads prefetched scalars."""
        return any(name_of(equation) == "get" for equation in self.index_map.eqns)

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """Of each axis; none of an empty array, nor where an axis is indexed in another way (`pl.BoundedSlice`)."""
        shape = self.mapping.array_aval.shape
        found = [self._range(kind, length) for kind, length in zip(self.mapping.block_shape, shape, strict=True)]
        known = tuple(each for each in found if each is not None)
        return known if len(known) == len(found) and all(shape) else ()

    def _range(self, kind: Any, length: int) -> Range | None:
        match kind:
            case pl.Squeezed():
                return Range(0, length - 1, 0, 1, f"elements 0 to {length - 1}")
            case pl.Blocked(block_size=size):
                last = -(-length // size) - 1
                held = f"{last + 1} blocks (0 to {last})" if last else "one block (0)"
                return Range(0, last, size, size, f"{held} of {size} for {length} elements")
            case pl.Element(block_size=size, padding=(before, after)):
                # A copy takes all of a block that starts before the array; a body may leave out what lies there.
                first = -before if self.copied else 1 - before - size
                padded = f", padded by {before} and {after}" if before or after else ""
                return Range(first, length + after - 1, 0, size, f"elements 0 to {length - 1}{padded}")
        return None


def blocks_of(equation: Any, *, copied: bool) -> list[Block]:
    """The blocks that every program of a Pallas call copies, or touches whatever the values are.

    Args:
      equation: the call.
      copied: all are copied, as a TPU's pipeline does; else only those are meant that the body touches.
    """
    body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    names = list(getattr(body.debug_info, "arg_names", None) or ()) or [""] * len(body.invars)
    start = mapping.num_index_operands  # scalars, which have no blocks
    references = {ref: number for number, ref in enumerate(body.invars[start:])}
    touched = frozenset(references.values() if copied else _touched(certain(body, references)))
    return [
        Block(each, names[start + number] or f"argument {number}", copied)
        for number, each in enumerate(mapping.block_mappings)
        if number in touched
    ]


_MASKS: Mapping[str, int] = {"masked_load": 2, "masked_swap": 3, "atomic_rmw": 3}  # which operand is the mask
_PLAIN = frozenset({"get", "swap", "addupdate", "atomic_cas"})


def _touched(equations: Iterator[tuple[Any, list[int | None]]]) -> Iterator[int]:
    """The numbers of the references that are read or written without a mask."""
    for equation, operands in equations:
        name = name_of(equation)
        plain = name in _PLAIN or (
            name in _MASKS and equation.params["args_tree"].unflatten(equation.invars)[_MASKS[name]] is None
        )
        if plain and operands[0] is not None:
            yield operands[0]
