"""The operations of a lowered body as a list, each with its source expression, and mutations of them."""

import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kerneltest.backends.simulate.ir import Compute, Operation, Region, Rule, Semantics, Type, any_operand
from kerneltest.core.source_location import is_internal, relative_path
from kerneltest.trace.primitives import ACCESSES, PRIMITIVES

# From the number of an operation to the operations that replace it.
Edits = Mapping[int, Sequence[Operation]]

# MLIR's locations: `"FILE.py":LINE:COLUMN to LINE:COLUMN` for each frame, and `loc("PRIMITIVE"...`.
_FRAME = re.compile(r'"([^"]+\.py)":(\d+)(?::(\d+)(?: to (\d*):(\d+))?)?')
_PRIMITIVE = re.compile(r'loc\("([^":]+)')
# Primitives that are lowered to an access and to address arithmetic, which the kernel's author did not write.
_ACCESSES = frozenset(primitive.name for primitive in PRIMITIVES.values() if primitive.kind in ACCESSES)
_FIRST_NEW_VALUE = 1_000_000  # more than any body has


@dataclass(frozen=True, slots=True)
class SourceExpression:
    """The source of an operation."""

    primitive: str  # JAX's primitive that was lowered to it
    place: str  # FILE:LINE of the user's innermost frame; "" if there is none
    text: str  # the expression there, as far as the location tells
    callers: tuple[str, ...]  # FILE:LINE of the outer frames, from the inside out


def _source_of(op: Operation) -> SourceExpression:
    primitive, frames = _PRIMITIVE.match(op.location), _FRAME.findall(op.location)
    frames = [frame for frame in frames if not is_internal(frame[0])]
    places = [f"{relative_path(file)}:{line}" for file, line, *_ in frames]
    return SourceExpression(
        primitive.group(1) if primitive else "",
        places[0] if places else "",
        _text(*frames[0]) if frames else "",
        tuple(places[1:]),
    )


def _text(file: str, line: str, start: str, last: str, end: str) -> str:
    whole = linecache.getline(file, int(line)).rstrip("\n")
    return whole[int(start) : int(end)] if end and last in ("", line) else whole.strip()


class Listing:
    """The operations of a body in order, including those in loops and branches.

    Attributes:
      body: the body.
      names: the names of the arrays that its arguments point to.
      inputs: how many of its arguments point to inputs; the others point to outputs.
      lengths: the lengths of the dims for which it was lowered, by name.
      operations: its operations, without those that define how a reduction combines elements.
      sources: their sources.
      scopes: for each operation, the numbers of the values that it could use.
      types: types of values, by number.
    """

    def __init__(
        self, body: Region, arguments: Sequence[Type], names: Sequence[str], inputs: int, lengths: Mapping[str, int]
    ) -> None:
        self.body, self.names, self.inputs, self.lengths = body, names, inputs, lengths
        self.operations: list[Operation] = []
        self.scopes: list[tuple[int, ...]] = []
        self.types: dict[int, Type] = dict(zip(body.arguments, arguments, strict=True))
        self._add(body, body.arguments)
        self.sources = [_source_of(op) for op in self.operations]

    def _add(self, region: Region, scope: tuple[int, ...]) -> None:
        for op in region.operations:
            self.operations.append(op)
            self.scopes.append(scope)
            self.types.update(zip(op.results, op.types, strict=True))
            if op.name == "scf.for":
                self.types.update(zip(op.regions[0].arguments, (op.operand_types[0], *op.types), strict=True))
            for inner in op.regions if op.name.startswith("scf.") else ():
                typed = tuple(number for number in inner.arguments if number in self.types)
                self._add(inner, (*scope, *typed))
            scope = (*scope, *op.results)

    @cached_property
    def structure(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The same for bodies whose operations correspond, whatever their shapes and constants.

        A program's index along an axis of length 1 is a constant, so the two kinds of operations count as the same.
        """
        interchangeable = ("tt.get_program_id", "arith.constant")
        return tuple(("" if op.name in interchangeable else op.name, op.results) for op in self.operations)

    @cached_property
    def producer(self) -> Mapping[int, int]:
        """The number of the operation that computes each value."""
        return {number: i for i, op in enumerate(self.operations) for number in op.results}

    def is_address_arithmetic(self, i: int) -> bool:
        """Tells whether an operation belongs to the address arithmetic of an access."""
        return self.sources[i].primitive in _ACCESSES and self.operations[i].name not in ("tt.load", "tt.store")

    def is_written_by_user(self, i: int) -> bool:
        """Tells whether the kernel's author wrote an operation."""
        return bool(self.sources[i].place) and not self.is_address_arithmetic(i)

    def apply(self, edits: Edits) -> Region:
        """Returns the body with some operations replaced."""
        return _apply(self.body, {id(self.operations[i]): others for i, others in edits.items()})


def _apply(region: Region, edits: Mapping[int, Sequence[Operation]]) -> Region:
    def replacements(op: Operation) -> Iterator[Operation]:
        if id(op) in edits:
            yield from edits[id(op)]
        elif op.name.startswith("scf."):
            yield replace(op, regions=tuple(_apply(inner, edits) for inner in op.regions))
        else:
            yield op

    return replace(region, operations=tuple(new for op in region.operations for new in replacements(op)))


def numpy_operation(
    op: Operation, compute: Compute, operands: Sequence[int], results: Sequence[int], types: Sequence[Type]
) -> Operation:
    """Returns an operation that is computed by NumPy, at the place of another one."""
    rule = Rule(compute, any_operand)
    semantics = Semantics(lambda _: rule)
    return Operation("computed", semantics, tuple(operands), tuple(results), (), tuple(types), {}, (), op.place)


def new_value(number: int) -> int:
    """Returns the number of a value that no body has."""
    return _FIRST_NEW_VALUE + number


@dataclass(frozen=True, slots=True)
class CodeChange:
    """One change of a lowered body."""

    operation: int  # the number of the operation that is changed, or of the first one
    phrase: str  # `changing <= to <`
    cost: int  # how much the change assumes: 0 for a comparison, a constant or a mask, more for less likely mistakes
    edits: Callable[[Listing], Edits]  # from a listing of the same structure to the edits of its operations
    literal: bool = True  # whether the source spells out at this place what is changed, rather than naming it


# The offset and the mask of an access as expressions, as the lowered code computes them.

# Operations that change only shapes and widths.
_CONVERSIONS = frozenset(
    "tt.splat tt.broadcast tt.expand_dims tt.reshape arith.extsi arith.extui arith.trunci arith.index_cast".split()
)
_SIGNS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.divsi": "//", "arith.remsi": "%"}
INTEGER_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
"""The predicates of `arith.cmpi`, by number; the last four are unsigned."""

Expression = int | str


def describe_offset(listing: Listing, place: str, name: str) -> str:
    """Returns the offset of an access in elements and its mask, as a kernel would spell them; "" for no such access.

    Args:
      listing: the operations of the kernel.
      place: FILE:LINE of the access.
      name: the name of the accessed array.
    """
    for op, source in zip(listing.operations, listing.sources, strict=True):
        if op.name in ("tt.load", "tt.store", "tt.atomic_rmw") and source.place == place:
            buffer, offset = _pointer(listing, op.operands[0])
            if buffer == name:
                mask = _mask(listing, op)
                return f"{offset}, where {mask}" if mask else f"{offset}"
    return ""


def _pointer(listing: Listing, value: int) -> tuple[str, Expression]:
    if value in listing.body.arguments:
        return listing.names[listing.body.arguments.index(value)], 0
    op = _producer(listing, value)
    if op is None or not op.operands:
        return "", "?"
    buffer, offset = _pointer(listing, op.operands[0])
    if op.name == "tt.addptr":
        offset = _combine("+", offset, _expression(listing, op.operands[1]))
    return buffer, offset


def _mask(listing: Listing, op: Operation) -> str:
    at = 1 if op.name == "tt.load" else 2  # after the value that is stored or added
    sizes = op.attributes.get("operandSegmentSizes", ())
    masked = len(op.operands) > at and (len(sizes) < 2 or bool(sizes[1]))
    return str(_expression(listing, op.operands[at])) if masked else ""


def _expression(listing: Listing, value: int) -> Expression:
    # Its number if it is a constant.
    if value in listing.body.arguments:
        return listing.names[listing.body.arguments.index(value)]
    op = _producer(listing, value)
    if op is None:
        return "i"  # the index of a loop
    if op.name == "tt.load":
        buffer, offset = _pointer(listing, op.operands[0])
        return f"{buffer}[{offset}]"
    if op.name == "arith.constant":
        number = op.attributes["value"]
        return int(number) if not hasattr(number, "shape") or not number.shape else "?"
    if op.name == "tt.get_program_id":
        return f"program_id({op.attributes['axis']})"
    if op.name == "tt.make_range":
        return f"arange({op.attributes['end']})"
    operands = [_expression(listing, operand) for operand in op.operands]
    if op.name in _CONVERSIONS:
        return operands[0]
    if op.name in _SIGNS:
        return _combine(_SIGNS[op.name], *operands)
    if op.name == "arith.cmpi":
        return f"{operands[0]} {INTEGER_SIGNS[op.attributes['predicate']]} {operands[1]}"
    if op.name in ("arith.andi", "arith.ori"):
        return f"{operands[0]} {'and' if op.name == 'arith.andi' else 'or'} {operands[1]}"
    return f"{op.name.rpartition('.')[2]}({', '.join(map(str, operands))})"


def _producer(listing: Listing, value: int) -> Operation | None:
    number = listing.producer.get(value)
    return None if number is None else listing.operations[number]


def _combine(sign: str, one: Expression, other: Expression) -> Expression:
    if isinstance(one, int) and isinstance(other, int) and sign in "+-*":
        return {"+": one + other, "-": one - other, "*": one * other}[sign]
    if sign in "+-" and other == 0:
        return one
    if sign == "+" and one == 0:
        return other
    if sign == "*" and 0 in (one, other):
        return 0
    if sign == "*" and 1 in (one, other):
        return other if one == 1 else one
    if sign in "+-":
        return f"{one} {sign} {other}"
    one, other = (
        f"({each})" if isinstance(each, str) and {"+", "-"} & set(each.split()) else each for each in (one, other)
    )
    return f"{one} {sign} {other}"
