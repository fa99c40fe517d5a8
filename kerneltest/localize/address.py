"""The offset of an access, and what masks it, as the lowered code computes them."""

from kerneltest.backends.simulate.ir import Operation
from kerneltest.backends.simulate.listing import Listing

_ACCESSES = frozenset({"tt.load", "tt.store", "tt.atomic_rmw"})
# Only shapes and widths change.
_SAME = frozenset(
    "tt.splat tt.broadcast tt.expand_dims tt.reshape arith.extsi arith.extui arith.trunci arith.index_cast".split()
)
_SIGNS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.divsi": "//", "arith.remsi": "%"}
_COMPARED = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")  # arith.cmpi's predicates, in its order

Expression = int | str


def address(listing: Listing, place: str, name: str) -> str:
    """The offset of an access in elements, and its mask, in the words of a kernel; "" where there is no such access.

    Args:
      listing: the operations of the kernel.
      place: the line of the access, as FILE:LINE.
      name: of the array that it touches.
    """
    for op, source in zip(listing.operations, listing.sources, strict=True):
        if op.name in _ACCESSES and source.place == place:
            buffer, offset = _pointer(listing, op.operands[0])
            if buffer == name:
                mask = _mask(listing, op)
                return f"{offset}, where {mask}" if mask else f"{offset}"
    return ""


def _pointer(listing: Listing, value: int) -> tuple[str, Expression]:
    """The name of the array that pointers point into, and their offset."""
    if value in listing.body.arguments:
        return listing.names[listing.body.arguments.index(value)], 0
    op = _producer(listing, value)
    if op is None or not op.operands:
        return "", "?"
    buffer, offset = _pointer(listing, op.operands[0])
    if op.name == "tt.addptr":
        offset = _joined("+", offset, _expression(listing, op.operands[1]))
    return buffer, offset


def _mask(listing: Listing, op: Operation) -> str:
    at = 2 if op.name == "tt.store" else 1
    sizes = op.attributes.get("operandSegmentSizes", ())
    masked = len(op.operands) > at and (len(sizes) < 2 or bool(sizes[1]))
    return str(_expression(listing, op.operands[at])) if masked else ""


def _expression(listing: Listing, value: int) -> Expression:
    op = _producer(listing, value)
    if op is None:
        return "i"  # of a loop
    if op.name == "arith.constant":
        number = op.attributes["value"]
        return int(number) if not hasattr(number, "shape") or not number.shape else "?"
    if op.name == "tt.get_program_id":
        return f"program_id({op.attributes['axis']})"
    if op.name == "tt.make_range":
        return f"arange({op.attributes['end']})"
    operands = [_expression(listing, operand) for operand in op.operands]
    if op.name in _SAME:
        return operands[0]
    if op.name in _SIGNS:
        return _joined(_SIGNS[op.name], *operands)
    if op.name == "arith.cmpi":
        return f"{operands[0]} {_COMPARED[op.attributes['predicate']]} {operands[1]}"
    if op.name in ("arith.andi", "arith.ori"):
        return f"{operands[0]} {'and' if op.name == 'arith.andi' else 'or'} {operands[1]}"
    return f"{op.name.rpartition('.')[2]}({', '.join(map(str, operands))})"


def _producer(listing: Listing, value: int) -> Operation | None:
    number = listing.producer.get(value)
    return None if number is None else listing.operations[number]


def _joined(sign: str, one: Expression, other: Expression) -> Expression:
    """Two expressions with a sign between them; what adds nothing is left out."""
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
