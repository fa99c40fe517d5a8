"""A lowered body as a list of operations, what the source says of each, and what a change of some of them is."""

import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kerneltest.backends.simulate.ir import Operation, Region, Rule, Semantics, Type, any_operand
from kerneltest.core.source_location import is_ours, shown

# Operations, by their numbers, to those that take their place.
Edits = Mapping[int, Sequence[Operation]]

_FRAME = re.compile(r'"([^"]+\.py)":(\d+)(?::(\d+)(?: to (\d*):(\d+))?)?')
_PRIMITIVE = re.compile(r'loc\("([^":]+)')
# What these lower to computes addresses, of which the kernel's author has written nothing.
_ACCESSES = frozenset({"masked_load", "masked_swap", "get", "swap", "load", "store", "addupdate", "atomic_rmw"})
_FRESH = 1_000_000  # numbers of values that no body has


@dataclass(frozen=True, slots=True)
class Source:
    """Where an operation comes from.

    Attributes:
      primitive: JAX's, which was lowered to it.
      place: the user's line, the innermost one, as FILE:LINE; "" where there is none.
      text: the expression that stands there, as far as it can be read.
      callers: the lines that the innermost one was called from, from the inside out.
    """

    primitive: str
    place: str
    text: str
    callers: tuple[str, ...]


def source_of(op: Operation) -> Source:
    """What an operation's location says."""
    named, frames = _PRIMITIVE.match(op.location), _FRAME.findall(op.location)
    frames = [frame for frame in frames if not is_ours(frame[0])]
    places = [f"{shown(file)}:{line}" for file, line, *_ in frames]
    return Source(
        named.group(1) if named else "",
        places[0] if places else "",
        _text(*frames[0]) if frames else "",
        tuple(places[1:]),
    )


def _text(file: str, line: str, start: str, last: str, end: str) -> str:
    whole = linecache.getline(file, int(line)).rstrip("\n")
    return whole[int(start) : int(end)] if end and last in ("", line) else whole.strip()


class Listing:
    """The operations of a body, those in loops and branches among them, in order.

    Attributes:
      body: what is listed.
      lengths: of the dims for which it was lowered, by name.
      names: of the arrays that its arguments point to.
      inputs: how many of its arguments point to inputs; the others point to outputs.
      operations: of it; those that only say how a reduction combines are left out.
      sources: where each comes from.
      scopes: for each, the numbers of the values that it could use.
      types: of values, by number.
    """

    def __init__(
        self, body: Region, arguments: Sequence[Type], names: Sequence[str], inputs: int, lengths: Mapping[str, int]
    ) -> None:
        self.body, self.names, self.inputs, self.lengths = body, names, inputs, lengths
        self.operations: list[Operation] = []
        self.scopes: list[tuple[int, ...]] = []
        self.types: dict[int, Type] = dict(zip(body.arguments, arguments, strict=True))
        self._list(body, body.arguments)
        self.sources = [source_of(op) for op in self.operations]

    def _list(self, region: Region, scope: tuple[int, ...]) -> None:
        for op in region.operations:
            self.operations.append(op)
            self.scopes.append(scope)
            self.types.update(zip(op.results, op.types, strict=True))
            if op.name == "scf.for":
                self.types.update(zip(op.regions[0].arguments, (op.operand_types[0], *op.types), strict=True))
            for inner in op.regions if op.name.startswith("scf.") else ():
                typed = tuple(number for number in inner.arguments if number in self.types)
                self._list(inner, (*scope, *typed))
            scope = (*scope, *op.results)

    @cached_property
    def structure(self) -> tuple[Any, ...]:
        """Alike for bodies whose operations correspond, whatever their shapes and constants.

        The program's id along an axis of one program is a constant.
        """
        ids = ("tt.get_program_id", "arith.constant")
        return tuple(("" if op.name in ids else op.name, op.results) for op in self.operations)

    @cached_property
    def producer(self) -> Mapping[int, int]:
        """The operation that each value is a result of."""
        return {result: i for i, op in enumerate(self.operations) for result in op.results}

    def is_address(self, i: int) -> bool:
        """Whether an operation belongs to the address of an access, and not to the access itself."""
        return self.sources[i].primitive in _ACCESSES and self.operations[i].name not in ("tt.load", "tt.store")

    def is_users(self, i: int) -> bool:
        """Whether an operation is one that the kernel's author has written."""
        return bool(self.sources[i].place) and not self.is_address(i)

    def changed(self, edits: Edits) -> Region:
        """The body with other operations in the place of some."""
        by_operation = {id(self.operations[i]): others for i, others in edits.items()}
        return _changed(self.body, by_operation)


def _changed(region: Region, edits: Mapping[int, Sequence[Operation]]) -> Region:
    def others(op: Operation) -> Iterator[Operation]:
        if id(op) in edits:
            yield from edits[id(op)]
        elif op.name.startswith("scf."):
            yield replace(op, regions=tuple(_changed(inner, edits) for inner in op.regions))
        else:
            yield op

    return replace(region, operations=tuple(new for op in region.operations for new in others(op)))


def computed(
    op: Operation, compute: Callable[..., Any], operands: Sequence[int], results: Sequence[int], types: Sequence[Type]
) -> Operation:
    """An operation of NumPy's, at the place of another one."""
    rule = Rule(compute, any_operand)
    semantics = Semantics(lambda _: rule)
    return Operation("computed", semantics, tuple(operands), tuple(results), (), tuple(types), {}, (), op.place)


def fresh(number: int) -> int:
    """The number of a value that no body has."""
    return _FRESH + number


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a body.

    Attributes:
      operation: the one that is changed, or the first of them, by its number.
      words: `with < in place of <=`.
      reach: how much it takes: 0 for a comparison, a constant or a mask, more for what a slip of the pen explains less.
      said: the source says there what is changed: a number that stands in it, and not a name for one.
      edits: from a listing of the same structure to what is changed in it.
    """

    operation: int
    words: str
    reach: int
    edits: Callable[[Listing], Edits]
    said: bool = True
