"""What could be wrong in a lowered body, one thing at a time: small changes, each told in a user's words."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Rule, Semantics, Type, any_operand
from kerneltest.backends.simulate.listing import Edits, Listing, computed, fresh
from kerneltest.backends.simulate.memory import element  # noqa: F401
from kerneltest.backends.simulate.operations.table import OPERATIONS
from kerneltest.backends.simulate.tape import Pointer
from kerneltest.backends.simulate.widening import widenings
from kerneltest.core.dtypes import is_float, is_integer


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


def changes(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    """All changes to try, those that take least first.

    Args:
      listing: what is changed.
      lengths: of the case's dims, by name.
    """
    found = [
        change
        for make in (_comparisons, _constants, _masks, _others, _loops, _precisions, _unmade, _replaced)
        for change in make(listing, lengths)
    ]
    found += [Change(first, words, reach, edits) for first, words, reach, edits in widenings(listing)]
    yield from sorted(found, key=lambda change: (change.reach, change.operation))


def _is_users(listing: Listing, i: int) -> bool:
    return bool(listing.sources[i].place) and not listing.is_address(i)


def _with(i: int, **fields: Any) -> Callable[[Listing], Edits]:
    return lambda listing: {i: [replace(listing.operations[i], **fields)]}


# Comparisons

_INTEGER_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")
_FLOAT_SIGNS = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 6: "!=", 8: "==", 9: ">", 10: ">=", 11: "<", 12: "<=", 13: "!="}
_OTHER_END = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def comparison_of(op: Operation) -> str:
    """The sign of a comparison, or ""."""
    if op.name == "arith.cmpi":
        return _INTEGER_SIGNS[op.attributes["predicate"]]
    return _FLOAT_SIGNS.get(op.attributes["predicate"], "") if op.name == "arith.cmpf" else ""


def _comparisons(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    for i, op in enumerate(listing.operations):
        sign = comparison_of(op)
        if sign not in _OTHER_END or not _is_users(listing, i):
            continue
        predicate, other = op.attributes["predicate"], _OTHER_END[sign]
        if op.name == "arith.cmpi":
            number = _INTEGER_SIGNS.index(other, 2 if predicate < 6 else 6)
        else:
            number = next(n for n, s in _FLOAT_SIGNS.items() if s == other and (n >= 8) == (predicate >= 8))
        yield Change(i, f"with {other} in place of {sign}", 0, _with(i, attributes={"predicate": number}))


# Constants


def _constants(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    mine = [i for i, op in enumerate(listing.operations) if op.name == "arith.constant" and _is_users(listing, i)]
    kinds: dict[int, str] = {}
    for i in mine:
        dtype = listing.operations[i].types[0].dtype
        kinds[i] = "float" if is_float(dtype) else "integer" if is_integer(dtype) and dtype != np.bool_ else ""
    for i in mine:
        op, value = listing.operations[i], listing.operations[i].attributes["value"]
        if not kinds[i] or isinstance(value, np.ndarray):
            continue
        for words, number in _other_numbers(listing, lengths, kinds, i):
            if (got := number(listing, lengths)) is not None and got != value:
                said = bool(re.search(rf"(?<![\w.]){re.escape(_shown(value))}(?![\w])", listing.sources[i].text))
                words = f"with {words}{_shown(got)} in place of {_shown(value)}"
                yield Change(i, words, 0, _constant(i, number), said)


Number = Callable[[Listing, Mapping[str, int]], Any]


def _other_numbers(
    listing: Listing, lengths: Mapping[str, int], kinds: Mapping[int, str], i: int
) -> Iterator[tuple[str, Number]]:
    """What could stand in place of a constant, in words and as what it is in any listing of the structure."""

    def own(listing: Listing) -> Any:
        return listing.operations[i].attributes["value"]

    if kinds[i] == "integer":
        yield "", lambda listing, _: own(listing) + 1
        yield "", lambda listing, _: own(listing) - 1
    else:
        for value in (0.0, 1.0, np.inf, -np.inf):
            yield "", lambda *_, value=value: value
    cast = float if kinds[i] == "float" else int
    for name in lengths:
        yield f"the length {name}=", lambda _, lengths, name=name: cast(lengths[name])
    seen = {own(listing)}
    for j, kind in kinds.items():
        value = listing.operations[j].attributes["value"]
        if kind == kinds[i] and not isinstance(value, np.ndarray) and value not in seen:
            seen.add(value)
            yield "", lambda listing, _, j=j: listing.operations[j].attributes["value"]
    for j, op in enumerate(listing.operations):
        if op.name == "tt.make_range" and _is_users(listing, j) and op.attributes["end"] not in seen:
            seen.add(op.attributes["end"])
            yield "the block ", lambda listing, _, j=j: cast(listing.operations[j].attributes["end"])


def _constant(i: int, number: Number) -> Callable[[Listing], Edits]:
    def edits(listing: Listing) -> Edits:
        op = listing.operations[i]
        return {i: [replace(op, attributes={**op.attributes, "value": number(listing, listing.lengths)})]}

    return edits


def _shown(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


# Masks and what stands where they are false


def _access(op: Operation) -> tuple[int, int | None, list[int]]:
    """The pointer, the mask if there is one, and the rest of the operands of a load (`other`) or a store (the value)."""
    pointer, *rest = op.operands
    if op.name == "tt.store":
        return pointer, rest[1] if len(rest) > 1 else None, rest[:1]
    has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
    return pointer, rest[0] if has_mask else None, rest[-1:] if has_other else []


def _remade(op: Operation, pointer: int, mask: int | None, rest: Sequence[int]) -> Operation:
    masked = [] if mask is None else [mask]
    if op.name == "tt.store":
        return replace(op, operands=(pointer, *rest, *masked))
    sizes = (1, len(masked), len(rest) if masked else 0)
    operands = (pointer, *masked, *(rest if masked else []))
    return replace(op, operands=operands, attributes={**op.attributes, "operandSegmentSizes": sizes})


def _accesses(listing: Listing) -> Iterator[tuple[int, Operation, tuple[int, ...]]]:
    for i, op in enumerate(listing.operations):
        if op.name in ("tt.load", "tt.store") and listing.sources[i].place:
            yield i, op, listing.types[op.operands[0]].shape


def _masks(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    for i, op, shape in _accesses(listing):
        kind = op.name.removeprefix("tt.")
        pointer, mask, rest = _access(op)
        if mask is not None:
            yield Change(i, f"with no mask of the {kind}", 0, lambda l, i=i: _masked(l, i, [], None))
        for numbers, words in _conditions(listing, i, shape):
            if mask is None:
                for fill in (None,) if kind == "store" else (0.0, -np.inf):
                    says = f" and other={fill:g}" if fill is not None else ""
                    yield Change(
                        i, f"with the {kind} masked by {words}{says}", 0,
                        lambda l, i=i, n=numbers, fill=fill: _masked(l, i, n, fill),
                    )  # fmt: skip
            elif numbers != [mask]:
                yield Change(
                    i, f"with {words} as the mask of the {kind}", 0, lambda l, i=i, n=numbers: _masked(l, i, n, None)
                )
                yield Change(
                    i, f"with the mask of the {kind} also by {words}", 0,
                    lambda l, i=i, n=[mask, *numbers]: _masked(l, i, n, None),
                )  # fmt: skip
        if kind == "store" or mask is None:
            yield Change(i, f"with the {kind} masked by what lies in the array", 2, lambda l, i=i: _fenced(l, i))


def _conditions(listing: Listing, i: int, shape: tuple[int, ...]) -> Iterator[tuple[list[int], str]]:
    """The conditions in scope that could mask an access: one of its shape, or one along each of some axes."""
    booleans = [n for n in listing.scopes[i] if listing.types[n].dtype == np.bool_ and not listing.types[n].pointer]
    named = {n: f"`{listing.sources[listing.producer[n]].text}`" for n in booleans if n in listing.producer}
    whole = [n for n in named if listing.types[n].shape == shape]
    yield from (([n], named[n]) for n in whole)
    if len(shape) == 2:
        lines: dict[int, list[int]] = {axis: [] for axis in (0, 1)}
        for n in named:
            for axis, length in enumerate(shape):
                if listing.types[n].shape == (length,):
                    lines[axis].append(n)
        for a, b in product([None, *lines[0]], [None, *lines[1]]):
            parts = [n for n in (a, b) if n is not None]
            if parts:
                # The sign says along which axis a vector lies.
                numbers = [*([a] if a is not None else []), *([-1 - b] if b is not None else [])]
                yield numbers, " and ".join(
                    f"{named[n]} along axis {axis}" for n, axis in ((a, 0), (b, 1)) if n is not None
                )


def _masked(listing: Listing, i: int, numbers: Sequence[int], fill: float | None) -> Edits:
    """A load or store whose mask is the conjunction of some conditions (see `_conditions`), or none."""
    op = listing.operations[i]
    pointer, _, rest = _access(op)
    if not numbers:
        return {i: [_remade(op, pointer, None, rest)]}
    shape = listing.types[pointer].shape
    sides = [n < 0 for n in numbers]
    operands = [-1 - n if n < 0 else n for n in numbers]
    vectors = [len(listing.types[n].shape) < len(shape) for n in operands]

    def both(*conditions: Any) -> Any:
        result = np.ones((1,) * (len(shape) + 1), bool)
        for condition, last, vector in zip(conditions, sides, vectors, strict=True):
            spread = np.expand_dims(condition, 1 if last else 2) if vector and len(shape) == 2 else condition
            result = result & spread
        return result

    made = [computed(op, both, operands, [fresh(0)], [Type(shape, np.dtype(np.bool_), False)])]
    if fill is not None:
        dtype = listing.types[pointer].dtype
        if not is_float(dtype) and not np.isfinite(fill):
            fill = 0.0
        value = np.asarray(fill).astype(dtype).reshape((1,) * (len(shape) + 1))
        made.append(computed(op, lambda: value, [], [fresh(1)], [Type(shape, dtype, False)]))
        rest = [fresh(1)]
    return {i: [*made, _remade(op, pointer, fresh(0), rest)]}


def _fenced(listing: Listing, i: int) -> Edits:
    """An access that is also masked by whether it lies in the array."""
    op = listing.operations[i]
    pointer, mask, rest = _access(op)
    shape = listing.types[pointer].shape

    def inside(interpreter: Any, _: Operation, operands: Sequence[Any]) -> Sequence[Any]:
        where: Pointer = operands[0]
        size = interpreter.launch.buffers[where.buffer].data.size
        rule = Rule(lambda offset, *more: (offset >= 0) & (offset < size) & (more[0] if more else True), any_operand)
        return [interpreter.apply(rule, [where.offset, *operands[1:]])[0]]

    operands = (pointer,) if mask is None else (pointer, mask)
    condition = replace(
        computed(op, lambda: None, operands, [fresh(0)], [Type(shape, np.dtype(np.bool_), False)]),
        semantics=Semantics(execute=inside),
    )
    made = [condition]
    if op.name == "tt.load" and not rest:
        dtype = listing.types[pointer].dtype
        value = np.zeros((1,) * (len(shape) + 1), dtype)
        made.append(computed(op, lambda: value, [], [fresh(1)], [Type(shape, dtype, False)]))
        rest = [fresh(1)]
    return {i: [*made, _remade(op, pointer, fresh(0), rest)]}


def _others(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    for i, op, shape in _accesses(listing):
        pointer, mask, rest = _access(op)
        if op.name == "tt.store" or mask is None:
            continue
        dtype = listing.types[pointer].dtype
        for fill in (0.0, 1.0, -np.inf, np.inf) if is_float(dtype) else (0.0, 1.0):
            yield Change(
                i, f"with other={fill:g} where the mask of the load is false", 0,
                lambda l, i=i, mask=mask, fill=fill: _masked(l, i, [mask], fill),
            )  # fmt: skip


# Precision, programs


def _precisions(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    for i, op in enumerate(listing.operations):
        if op.name == "tt.dot" and op.attributes.get("inputPrecision", 2) == 0:
            attributes = {**op.attributes, "inputPrecision": 2}
            words = "with a product of float32 in place of TF32"
            yield Change(i, words, 1, _with(i, attributes=attributes), said=not listing.sources[i].callers)


def _loops(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    for i, op in enumerate(listing.operations):
        if op.name == "scf.for" and listing.sources[i].place:
            for operand, by, words in (
                (0, -1, "with one turn more at the start of the loop"),
                (0, 1, "with one turn less at the start of the loop"),
                (1, 1, "with one turn more at the end of the loop"),
                (1, -1, "with one turn less at the end of the loop"),
            ):
                yield Change(i, words, 0, lambda l, i=i, operand=operand, by=by: _moved(l, i, operand, by))


def _moved(listing: Listing, i: int, operand: int, by: int) -> Edits:
    op = listing.operations[i]
    bound = op.operands[operand]
    made = computed(op, lambda x: (x + by).astype(x.dtype), [bound], [fresh(0)], [listing.types[bound]])
    return {i: [made, replace(op, operands=(*op.operands[:operand], fresh(0), *op.operands[operand + 1 :]))]}


# Values


def _unmade(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    for i, op in enumerate(listing.operations):
        if not _is_users(listing, i) or len(op.results) != 1 or op.name.startswith(("scf.", "tt.")):
            continue
        for k, number in enumerate(op.operands):
            if op.operand_types[k] == op.types[0] and number not in op.operands[:k]:
                if op.name == "arith.select" and k == 0:
                    continue
                which = f" (with {_value(listing, number)} as it is)"
                yield Change(i, f"without this operation{which}", 2, _identity(i, number))


def _identity(i: int, number: int) -> Callable[[Listing], Edits]:
    def edits(listing: Listing) -> Edits:
        op = listing.operations[i]
        return {i: [computed(op, lambda x: x, [number], op.results, op.types)]}

    return edits


def _replaced(listing: Listing, lengths: Mapping[str, int]) -> Iterator[Change]:
    inputs, outputs = listing.body.arguments[: listing.inputs], listing.body.arguments[listing.inputs :]
    for i, op in enumerate(listing.operations):
        if not listing.sources[i].place or op.name.startswith("scf."):
            continue
        for k, number in enumerate(op.operands):
            kind = listing.types.get(number)
            if kind is None:
                continue
            if kind.pointer and number in listing.body.arguments:
                others = [n for n in (inputs if number in inputs else outputs) if n != number and listing.types[n] == kind]
            elif listing.is_address(i) or kind.pointer:
                continue
            else:
                others = [
                    n
                    for n in listing.scopes[i]
                    if n != number
                    and listing.types.get(n) == kind
                    and n in listing.producer
                    and _is_users(listing, listing.producer[n])
                    and listing.operations[listing.producer[n]].name not in ("arith.constant", "tt.splat")
                ]
            for other in others:
                operands = tuple(other if j == k else n for j, n in enumerate(op.operands))
                yield Change(
                    i, f"with {_value(listing, other)} in place of {_value(listing, number)}", 3,
                    lambda l, i=i, operands=operands: {i: [replace(l.operations[i], operands=operands)]},
                )  # fmt: skip


def _value(listing: Listing, number: int) -> str:
    """A value in words: the expression that it is, or the argument."""
    if number in listing.producer:
        source = listing.sources[listing.producer[number]]
        return f"`{source.text}`" if source.text else "another value"
    if number in listing.body.arguments:
        return f"argument {listing.body.arguments.index(number)}"
    return "the value carried by the loop"


_ = OPERATIONS
