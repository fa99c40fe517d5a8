"""The offset and the mask of an access as expressions, as the lowered code computes them."""

from kerneltest.backends.simulate.ir import Operation
from kerneltest.localize.listing import Listing

_ACCESSES = frozenset({"tt.load", "tt.store", "tt.atomic_rmw"})
# Operations that change only shapes and widths.
_CONVERSIONS = frozenset(
    "tt.splat tt.broadcast tt.expand_dims tt.reshape arith.extsi arith.extui arith.trunci arith.index_cast".split()
)
_SIGNS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.divsi": "//", "arith.remsi": "%"}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")  # arith.cmpi's predicates, by number

Expression = int | str


def describe_offset(listing: Listing, place: str, name: str) -> str:
    """Returns the offset of an access in elements and its mask, as a kernel would spell them; "" for no such access.

    Args:
      listing: the operations of the kernel.
      place: FILE:LINE of the access.
      name: the name of the accessed array.
    """
    for op, source in zip(listing.operations, listing.sources, strict=True):
        if op.name in _ACCESSES and source.place == place:
            buffer, offset = _pointer(listing, op.operands[0])
            if buffer == name:
                mask = _mask(listing, op)
                return f"{offset}, where {mask}" if mask else f"{offset}"
    return ""


def _pointer(listing: Listing, value: int) -> tuple[str, Expression]:
    """Returns the name of the array that pointers point into, and their offset."""
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
    """Returns the mask of an access, or "" if it has none."""
    at = 2 if op.name == "tt.store" else 1
    sizes = op.attributes.get("operandSegmentSizes", ())
    masked = len(op.operands) > at and (len(sizes) < 2 or bool(sizes[1]))
    return str(_expression(listing, op.operands[at])) if masked else ""


def _expression(listing: Listing, value: int) -> Expression:
    """Returns the expression of a value: its number if it is a constant."""
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
        return f"{operands[0]} {_COMPARISONS[op.attributes['predicate']]} {operands[1]}"
    if op.name in ("arith.andi", "arith.ori"):
        return f"{operands[0]} {'and' if op.name == 'arith.andi' else 'or'} {operands[1]}"
    return f"{op.name.rpartition('.')[2]}({', '.join(map(str, operands))})"


def _producer(listing: Listing, value: int) -> Operation | None:
    number = listing.producer.get(value)
    return None if number is None else listing.operations[number]


def _combine(sign: str, one: Expression, other: Expression) -> Expression:
    """Returns two expressions joined by an operator, simplified."""
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
