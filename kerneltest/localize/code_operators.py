"""The operations of a lowered body with their source lines, and mutation operators on them.

These change comparisons, constants, masks, loops, products and operands.
"""

import linecache
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from kerneltest.backends.simulate.interpreter import BufferPointer, IRInterpreter, Value
from kerneltest.backends.simulate.ir import Compute, Operation, Region, Rule, Semantics, Type, any_operand
from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.core.source_location import is_internal, relative_path
from kerneltest.localize.insertions import along, conjunctions
from kerneltest.localize.operators import COMPARISONS, EDGES, TAKING_CONSTANTS, common_floats, format_constant
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
      outputs: the positions of the arguments that point to outputs only.
      lengths: the lengths of the dims for which it was lowered, by name.
      operations: its operations, without those that define how a reduction combines elements.
      scopes: for each operation, the numbers of the values that it could use.
      types: types of values, by number.
    """

    def __init__(
        self,
        body: Region,
        arguments: Sequence[Type],
        names: Sequence[str],
        outputs: Collection[int],
        lengths: Mapping[str, int],
    ) -> None:
        self.body, self.names, self.outputs, self.lengths = body, names, outputs, lengths
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

    def producing(self, value: int) -> Operation | None:
        """Returns the operation that computes a value; None for an argument and the index of a loop."""
        return self.operations[self.producer[value]] if value in self.producer else None

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
_ARITHMETIC = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*", "arith.divsi": "//", "arith.remsi": "%"}
_INTEGER_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
"""The predicates of `arith.cmpi`, by number; the last four are unsigned."""

Expression = int | str


def describe_offset(listing: Listing, place: str, name: str) -> str:
    """Returns the offset in elements and the mask of an access to an array at FILE:LINE; "" if there is no such one."""
    for op, source in zip(listing.operations, listing.sources, strict=True):
        if op.name in ("tt.load", "tt.store", "tt.atomic_rmw") and source.place == place:
            buffer, offset = _pointer(listing, op.operands[0])
            if buffer == name:
                _, mask, _ = _operands(op)
                return f"{offset}" if mask is None else f"{offset}, where {_expression(listing, mask)}"
    return ""


def _pointer(listing: Listing, value: int) -> tuple[str, Expression]:
    if value in listing.body.arguments:
        return listing.names[listing.body.arguments.index(value)], 0
    op = listing.producing(value)
    if op is None or not op.operands:
        return "", "?"
    buffer, offset = _pointer(listing, op.operands[0])
    if op.name == "tt.addptr":
        offset = _combine("+", offset, _expression(listing, op.operands[1]))
    return buffer, offset


def _expression(listing: Listing, value: int) -> Expression:
    # Its number if it is a constant.
    if value in listing.body.arguments:
        return listing.names[listing.body.arguments.index(value)]
    op = listing.producing(value)
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
    if op.name in _ARITHMETIC:
        return _combine(_ARITHMETIC[op.name], *operands)
    if op.name == "arith.cmpi":
        return f"{operands[0]} {_INTEGER_SIGNS[op.attributes['predicate']]} {operands[1]}"
    if op.name in ("arith.andi", "arith.ori"):
        return f"{operands[0]} {'and' if op.name == 'arith.andi' else 'or'} {operands[1]}"
    return f"{op.name.rpartition('.')[2]}({', '.join(map(str, operands))})"


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


# Mutation operators on the masks of loads and stores, and on the values that loads give for masked elements.

_BOOLEAN = np.dtype(np.bool_)
_MASK, _OTHER = new_value(0), new_value(1)

# The number of a boolean value, and the axis along which it lies; None if it has the shape of the access.
Condition = tuple[int, int | None]


def _masks(listing: Listing) -> Iterator[CodeChange]:
    # Accesses without their mask, with another one that is in scope, and with an additional condition.
    for i, op, shape in _accesses(listing):
        kind = op.name.removeprefix("tt.")
        _, mask, _ = _operands(op)
        if mask is not None:
            yield CodeChange(i, f"removing the mask of the {kind}", 0, partial(_with_mask, i=i, conditions=()))
        for conditions, words in _mask_conditions(listing, i, shape):
            if mask is None:
                for fill in (None,) if kind == "store" else (0.0, -np.inf):
                    other = "" if fill is None else f" with other={fill:g}"
                    edits = partial(_with_mask, i=i, conditions=conditions, fill=fill)
                    yield CodeChange(i, f"masking the {kind} by {words}{other}", 0, edits)
            elif conditions != [(mask, None)]:
                edits, more = (
                    partial(_with_mask, i=i, conditions=c) for c in (conditions, [(mask, None), *conditions])
                )
                yield CodeChange(i, f"masking the {kind} by {words} instead", 0, edits)
                yield CodeChange(i, f"also masking the {kind} by {words}", 0, more)
        if kind == "store" or mask is None:
            yield CodeChange(i, f"limiting the {kind} to the array", 2, partial(_within_array, i=i))


def _defaults(listing: Listing) -> Iterator[CodeChange]:
    # Masked loads with other values for masked elements.
    for i, op, _ in _accesses(listing):
        pointer, mask, _ = _operands(op)
        if op.name == "tt.load" and mask is not None:
            for fill in (0.0, 1.0, -np.inf, np.inf) if is_float(listing.types[pointer].dtype) else (0.0, 1.0):
                edits = partial(_with_mask, i=i, conditions=[(mask, None)], fill=fill)
                yield CodeChange(i, f"giving the masked load other={fill:g}", 0, edits)


def _accesses(listing: Listing) -> Iterator[tuple[int, Operation, tuple[int, ...]]]:
    for i, op in enumerate(listing.operations):
        if op.name in ("tt.load", "tt.store") and listing.sources[i].place:
            yield i, op, listing.types[op.operands[0]].shape


def _operands(op: Operation) -> tuple[int, int | None, tuple[int, ...]]:
    # The pointer, the mask if there is one, and a load's `other` or the value that is stored or added.
    pointer, *rest = op.operands
    if op.name != "tt.load":
        return pointer, rest[1] if len(rest) > 1 else None, tuple(rest[:1])
    has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
    return pointer, rest[0] if has_mask else None, tuple(rest[-1:]) if has_other else ()


def _mask_conditions(listing: Listing, i: int, shape: tuple[int, ...]) -> Iterator[tuple[list[Condition], str]]:
    texts = {
        number: f"`{listing.sources[listing.producer[number]].text}`"
        for number in listing.scopes[i]
        if listing.types[number].dtype == _BOOLEAN and not listing.types[number].pointer and number in listing.producer
    }
    shapes = {number: listing.types[number].shape for number in texts}
    for conditions in conjunctions(shapes, shape, scalars=False):
        yield conditions, " and ".join(texts[number] + along(axis) for number, axis in conditions)


def _with_mask(listing: Listing, i: int, conditions: Sequence[Condition], fill: float | None = None) -> Edits:
    op = listing.operations[i]
    pointer, _, rest = _operands(op)
    if not conditions:
        return {i: [_with_operands(op, pointer, None, rest)]}
    shape = listing.types[pointer].shape
    axes = [axis for _, axis in conditions]

    def all_hold(*values: Array) -> Array:
        result = np.ones((1,) * (len(shape) + 1), bool)
        for value, axis in zip(values, axes, strict=True):
            others = tuple(a + 1 for a in range(len(shape)) if a != axis)
            result = result & (value if axis is None else np.expand_dims(value, others))
        return result

    numbers = [number for number, _ in conditions]
    added = [numpy_operation(op, all_hold, numbers, [_MASK], [Type(shape, _BOOLEAN, False)])]
    if fill is not None:
        added.append(_constant(listing, op, fill))
        rest = (_OTHER,)
    return {i: [*added, _with_operands(op, pointer, _MASK, rest)]}


def _within_array(listing: Listing, i: int) -> Edits:
    op = listing.operations[i]
    pointer, mask, rest = _operands(op)

    def inside(interpreter: IRInterpreter, _: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        where: BufferPointer = operands[0]
        size = interpreter.launch.buffers[where.buffer].size
        rule = Rule(lambda offset, *more: (offset >= 0) & (offset < size) & (more[0] if more else True), any_operand)
        return [interpreter.apply(rule, [where.offset, *operands[1:]])[0]]

    operands = (pointer,) if mask is None else (pointer, mask)
    kind = Type(listing.types[pointer].shape, _BOOLEAN, False)
    added = [replace(numpy_operation(op, inside, operands, [_MASK], [kind]), semantics=Semantics(execute=inside))]
    if op.name == "tt.load" and not rest:
        added.append(_constant(listing, op, 0.0))
        rest = (_OTHER,)
    return {i: [*added, _with_operands(op, pointer, _MASK, rest)]}


def _constant(listing: Listing, op: Operation, fill: float) -> Operation:
    # 0 in place of an infinity that the dtype lacks.
    kind = replace(listing.types[op.operands[0]], pointer=False)
    number = fill if is_float(kind.dtype) or np.isfinite(fill) else 0.0
    value = np.full((1,) * (len(kind.shape) + 1), number).astype(kind.dtype)
    return numpy_operation(op, lambda: value, [], [_OTHER], [kind])


def _with_operands(op: Operation, pointer: int, mask: int | None, rest: Sequence[int]) -> Operation:
    masked = () if mask is None else (mask,)
    if op.name == "tt.store":
        return replace(op, operands=(pointer, *rest, *masked))
    others = tuple(rest) if masked else ()
    sizes = (1, len(masked), len(others))
    attributes = {**op.attributes, "operandSegmentSizes": sizes}
    return replace(op, operands=(pointer, *masked, *others), attributes=attributes)


# Mutation operators on precision: casts removed, and sums and loads in float32.

_NUMBERS = "extf truncf extsi extui trunci sitofp uitofp fptosi fptoui".split()
_CASTS = frozenset((*(f"arith.{name}" for name in _NUMBERS), "tt.fp_to_fp"))
_FLOAT32 = np.dtype(np.float32)


def _precisions(listing: Listing) -> Iterator[CodeChange]:
    # The casts of a line removed, products summed in float32, and loads converted to float32.
    lines: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for i, op in enumerate(listing.operations):
        source = listing.sources[i]
        if not source.place:
            continue
        if (
            op.name in _CASTS
            and listing.is_written_by_user(i)
            and np.bool_ not in (op.operand_types[0].dtype, op.types[0].dtype)
        ):
            lines.setdefault((source.place, source.callers), []).append(i)
        elif op.name == "tt.load" and _is_narrow(op.types[0]):
            yield CodeChange(i, "converting the loaded values to float32", 2, partial(_widen, sources=(i,)))
        elif op.name == "tt.dot" and _is_narrow(op.types[0]):
            yield CodeChange(i, "summing in float32", 1, partial(_widen, sources=(i,)))
    for casts in lines.values():
        names = dict.fromkeys(listing.operations[i].types[0].dtype.name for i in casts)
        phrase = f"removing the cast to {' and '.join(names)}"
        yield CodeChange(casts[0], phrase, 1, partial(_widen, casts=tuple(casts)))


def _is_narrow(kind: Type) -> bool:
    return not kind.pointer and is_float(kind.dtype) and kind.dtype.itemsize < 4


def _widen(listing: Listing, casts: Collection[int] = (), sources: Collection[int] = ()) -> Edits:
    # Removes casts, computes the results of `sources` in float32, and so all that depends on them up to the stores.
    edits: dict[int, Sequence[Operation]] = {}
    wide: set[int] = set()
    for _ in range(2):  # the end of a loop may widen the values that it carries
        for i, op in enumerate(listing.operations):
            if i in casts:
                edits[i] = [numpy_operation(op, lambda x: x, op.operands, op.results, op.types)]
            elif i in sources and op.name == "tt.load":
                raw = new_value(i)
                wider = numpy_operation(op, lambda x: x.astype(_FLOAT32), [raw], op.results, [_wider(op.types[0])])
                edits[i] = [replace(op, results=(raw,)), wider]
            elif op.name == "scf.for":
                region = op.regions[0]
                for k, (start, end) in enumerate(zip(op.operands[3:], region.yields, strict=True)):
                    if start in wide or end in wide:
                        wide |= {region.arguments[k + 1], op.results[k]}
                continue
            elif i not in sources and (wide.isdisjoint(op.operands) or op.name in _CASTS):
                continue
            elif op.name == "tt.store":
                edits[i] = _narrow_store(listing, i)
            elif any(is_float(kind.dtype) for kind in op.types):
                exact = {"inputPrecision": 2} if op.name == "tt.dot" else {}
                edits[i] = [replace(op, types=tuple(map(_wider, op.types)), attributes={**op.attributes, **exact})]
            wide.update(number for number, kind in zip(op.results, op.types, strict=True) if kind.dtype != np.bool_)
    return edits


def _narrow_store(listing: Listing, i: int) -> Sequence[Operation]:
    op = listing.operations[i]
    pointer, value, *mask = op.operands
    kind = listing.types[value]
    narrow = new_value(i)
    cast = numpy_operation(op, lambda x: x.astype(kind.dtype), [value], [narrow], [kind])
    return [cast, replace(op, operands=(pointer, narrow, *mask))]


def _wider(kind: Type) -> Type:
    return replace(kind, dtype=_FLOAT32) if _is_narrow(kind) else kind


def _with(listing: Listing, i: int, **fields: Any) -> Edits:
    return {i: [replace(listing.operations[i], **fields)]}


# Comparisons

# By the number of the predicate.
_SIGNS = ("==", ">", ">=", "<", "<=", "!=")
_FLOAT_SIGNS = ("", *_SIGNS, "", *_SIGNS, "", "")  # those from 8 on are true for NaN
_OTHER_END = {PRIMITIVES[name].sign: PRIMITIVES[other].sign for name, (other,) in EDGES.items()}


def _comparisons(listing: Listing) -> Iterator[CodeChange]:
    for i, op in enumerate(listing.operations):
        if op.name not in ("arith.cmpi", "arith.cmpf") or not listing.is_written_by_user(i):
            continue
        signs, half = (_INTEGER_SIGNS, 6) if op.name == "arith.cmpi" else (_FLOAT_SIGNS, 8)
        number = op.attributes["predicate"]
        if other := _OTHER_END.get(signs[number]):
            predicate = signs.index(other, half if number >= half else 0)
            edits = partial(_with, i=i, attributes={"predicate": predicate})
            yield CodeChange(i, f"changing {signs[number]} to {other}", 0, edits)


# Constants

Scalar = int | float


def _constants(listing: Listing) -> Iterator[CodeChange]:
    for i in _scalars(listing):
        value, text = listing.operations[i].attributes["value"], listing.sources[i].text
        if listing.sources[i].primitive in COMPARISONS and not np.isfinite(value):
            continue  # a test for infinities, which JAX writes, too
        literal = bool(re.search(rf"(?<![\w.]){re.escape(format_constant(value))}(?!\w)", text))
        is_fill = isinstance(value, float) and (value == 0 or not np.isfinite(value))  # and no other number is meant
        seen = {value}
        for key, (meaning, new) in _replacements(listing, i).items():
            if new not in seen and (key == f"{new}" or not is_fill):
                seen |= {new} if isinstance(key, int) else set()
                phrase = f"changing {format_constant(value)} to {meaning}{format_constant(new)}"
                # A length may equal the right number by coincidence.
                yield CodeChange(i, phrase, 0, partial(_with_constant, i=i, key=key), literal and not meaning)


def _scalars(listing: Listing) -> list[int]:
    # Scalar constants of the author's, and not of a lowering rule.
    return [
        i
        for i, op in enumerate(listing.operations)
        if op.name == "arith.constant"
        and listing.is_written_by_user(i)
        and listing.sources[i].primitive in TAKING_CONSTANTS
        and not isinstance(op.attributes["value"], np.ndarray)
        and (is_float(op.types[0].dtype) or is_integer(op.types[0].dtype))
    ]


def _replacements(listing: Listing, i: int) -> dict[str | int, tuple[str, Scalar]]:
    # Other values for a constant, each after a prefix that tells its meaning. A key is the same in all listings of one
    # structure: the number of an operation with the value, a word, or the value itself, as text.
    operations = listing.operations
    own, floating = operations[i].attributes["value"], is_float(operations[i].types[0].dtype)
    kind = float if floating else int
    found: dict[str | int, tuple[str, Scalar]] = {f"{value}": ("", value) for value in common_floats(own)}
    if not floating:
        found = {f"{by:+}": ("", own + by) for by in (1, -1)}
    found |= {name: (f"the length {name}=", kind(length)) for name, length in listing.lengths.items()}
    alike = [j for j in _scalars(listing) if is_float(operations[j].types[0].dtype) == floating]
    found |= {j: ("", kind(operations[j].attributes["value"])) for j in alike}
    ranges = [j for j, op in enumerate(operations) if op.name == "tt.make_range" and listing.is_written_by_user(j)]
    return found | {j: ("the block ", kind(operations[j].attributes["end"])) for j in ranges}


def _with_constant(listing: Listing, i: int, key: str | int) -> Edits:
    _, value = _replacements(listing, i).get(key) or ("", float(key))  # of a constant that is a fill in the first one
    return _with(listing, i, attributes={"value": value})


# Loops and precision


def _loops(listing: Listing) -> Iterator[CodeChange]:
    for i, op in enumerate(listing.operations):
        if op.name == "scf.for" and listing.sources[i].place:
            for operand, end in enumerate(("start", "end")):
                for by in (-1, 1):
                    change = "adding" if (by > 0) == (end == "end") else "removing"
                    phrase = f"{change} an iteration at the {end} of the loop"
                    yield CodeChange(i, phrase, 0, partial(_with_bound, i=i, operand=operand, by=by))


def _with_bound(listing: Listing, i: int, operand: int, by: int) -> Edits:
    op, moved = listing.operations[i], new_value(0)
    bound = op.operands[operand]
    addition = numpy_operation(op, lambda x: (x + by).astype(x.dtype), [bound], [moved], [listing.types[bound]])
    return {i: [addition, replace(op, operands=(*op.operands[:operand], moved, *op.operands[operand + 1 :]))]}


def _dot_precisions(listing: Listing) -> Iterator[CodeChange]:
    for i, op in enumerate(listing.operations):
        if op.name == "tt.dot" and op.attributes.get("inputPrecision", 2) == 0 and listing.sources[i].place:
            edits = partial(_with, i=i, attributes={**op.attributes, "inputPrecision": 2})
            # A function with the product may get the precision from its caller.
            literal = not listing.sources[i].callers
            yield CodeChange(i, "computing the product in float32 instead of TF32", 1, edits, literal)


# Values


def _removals(listing: Listing) -> Iterator[CodeChange]:
    for i, op in enumerate(listing.operations):
        if not listing.is_written_by_user(i) or len(op.results) != 1 or op.name.startswith(("scf.", "tt.")):
            continue
        for number, kind in dict(zip(op.operands, op.operand_types, strict=True)).items():
            if kind == op.types[0]:
                phrase = f"replacing this operation by {_describe_value(listing, number)}"
                yield CodeChange(i, phrase, 2, partial(_identity, i=i, number=number))


def _identity(listing: Listing, i: int, number: int) -> Edits:
    op = listing.operations[i]
    return {i: [numpy_operation(op, lambda x: x, [number], op.results, op.types)]}


def _exchanges(listing: Listing) -> Iterator[CodeChange]:
    for i, op in enumerate(listing.operations):
        if not listing.sources[i].place or op.name.startswith("scf."):
            continue
        for k, number in enumerate(op.operands):
            for other in _exchangeable(listing, i, number):
                operands = (*op.operands[:k], other, *op.operands[k + 1 :])
                old, new = (_describe_value(listing, each) for each in (number, other))
                phrase = f"replacing {old} by {'another value of that line' if new == old else new}"
                is_argument = number in listing.body.arguments  # by chance, another value often fits
                yield CodeChange(i, phrase, 3, partial(_with, i=i, operands=operands), is_argument)


def _exchangeable(listing: Listing, i: int, number: int) -> list[int]:
    # Values of the same type in scope.
    kind, arguments = listing.types.get(number), listing.body.arguments
    if kind is None or (number not in arguments and (kind.pointer or listing.is_address_arithmetic(i))):
        return []
    if number in arguments:
        writes = arguments.index(number) in listing.outputs
        candidates = tuple(n for i, n in enumerate(arguments) if (i in listing.outputs) == writes)
    else:
        computed = ((n, listing.producer[n]) for n in listing.scopes[i] if n in listing.producer)
        plain = ("arith.constant", "tt.splat")
        candidates = tuple(
            n for n, j in computed if listing.is_written_by_user(j) and listing.operations[j].name not in plain
        )
    return [n for n in candidates if n != number and listing.types.get(n) == kind]


def _describe_value(listing: Listing, number: int) -> str:
    if number in listing.producer:
        source = listing.sources[listing.producer[number]]
        return f"`{source.text}`" if source.text else f"the result of {source.primitive}"
    if number in listing.body.arguments:
        return f"`{listing.names[listing.body.arguments.index(number)]}`"
    return "the value that the loop carries"


_OPERATORS = (
    _comparisons, _constants, _masks, _defaults, _loops, _dot_precisions, _precisions, _removals, _exchanges,
)  # fmt: skip


def code_changes(listing: Listing) -> Iterator[CodeChange]:
    """Yields all changes of a body."""
    for operator in _OPERATORS:
        yield from operator(listing)
