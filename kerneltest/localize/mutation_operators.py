"""What could be wrong in a lowered body, one thing at a time: small changes, each told in a user's words."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kerneltest.backends.simulate.listing import Change, Edits, Listing, computed, fresh
from kerneltest.core.dtypes import is_float, is_integer
from kerneltest.localize.masking import defaults, masks
from kerneltest.localize.widening import widenings


def changes(listing: Listing) -> Iterator[Change]:
    """All changes to try."""
    for make in (_comparisons, _constants, masks, defaults, _loops, _precisions, widenings, _left_out, _exchanged):
        yield from make(listing)


def _with(listing: Listing, i: int, **fields: Any) -> Edits:
    return {i: [replace(listing.operations[i], **fields)]}


# Comparisons

_INTEGER_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")  # the last four of numbers without a sign
_FLOAT_SIGNS = ("", "==", ">", ">=", "<", "<=", "!=", "", "==", ">", ">=", "<", "<=", "!=", "", "")  # from 8 on, or NaN
_OTHER_END = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def _comparisons(listing: Listing) -> Iterator[Change]:
    for i, op in enumerate(listing.operations):
        if op.name not in ("arith.cmpi", "arith.cmpf") or not listing.is_users(i):
            continue
        signs, half = (_INTEGER_SIGNS, 6) if op.name == "arith.cmpi" else (_FLOAT_SIGNS, 8)
        number = op.attributes["predicate"]
        if other := _OTHER_END.get(signs[number]):
            predicate = signs.index(other, half if number >= half else 0)
            edits = partial(_with, i=i, attributes={"predicate": predicate})
            yield Change(i, f"with {other} in place of {signs[number]}", 0, edits)


# Constants

Number = Callable[[Listing], Any]  # what a constant is in any listing of one structure


def _constants(listing: Listing) -> Iterator[Change]:
    for i in _numbers(listing):
        value, text = listing.operations[i].attributes["value"], listing.sources[i].text
        said = bool(re.search(rf"(?<![\w.]){re.escape(_shown(value))}(?!\w)", text))
        for words, number in _others(listing, i):
            if (got := number(listing)) != value:
                # A length fits many a wrong number by chance.
                told = f"with {words}{_shown(got)} in place of {_shown(value)}"
                yield Change(i, told, 0, partial(_valued, i=i, number=number), said and not words)


def _numbers(listing: Listing) -> list[int]:
    """The constants that are one number, those of addresses left out."""
    return [
        i
        for i, op in enumerate(listing.operations)
        if op.name == "arith.constant"
        and listing.is_users(i)
        and not isinstance(op.attributes["value"], np.ndarray)
        and (is_float(op.types[0].dtype) or (is_integer(op.types[0].dtype) and op.types[0].dtype != np.bool_))
    ]


def _others(listing: Listing, i: int) -> Iterator[tuple[str, Number]]:
    """What could stand in place of a constant, with words to go before it."""
    floating = is_float(listing.operations[i].types[0].dtype)
    kind = float if floating else int
    if floating:
        yield from (("", partial(_fixed, value=value)) for value in (0.0, 1.0, np.inf, -np.inf))
    else:
        yield from (("", partial(_near, i=i, by=by)) for by in (1, -1))
    for name in listing.lengths:
        yield f"the length {name}=", partial(_length, name=name, kind=kind)
    seen = {listing.operations[i].attributes["value"]}
    for j in _numbers(listing):
        value = listing.operations[j].attributes["value"]
        if value not in seen and is_float(listing.operations[j].types[0].dtype) == floating:
            seen.add(value)
            yield "", partial(_attribute, i=j, name="value", kind=kind)
    for j, op in enumerate(listing.operations):
        if op.name == "tt.make_range" and listing.is_users(j) and op.attributes["end"] not in seen:
            seen.add(op.attributes["end"])
            yield "the block ", partial(_attribute, i=j, name="end", kind=kind)


def _fixed(listing: Listing, value: float) -> Any:
    return value


def _near(listing: Listing, i: int, by: int) -> Any:
    return listing.operations[i].attributes["value"] + by


def _length(listing: Listing, name: str, kind: type[Any]) -> Any:
    return kind(listing.lengths[name])


def _attribute(listing: Listing, i: int, name: str, kind: type[Any]) -> Any:
    return kind(listing.operations[i].attributes[name])


def _valued(listing: Listing, i: int, number: Number) -> Edits:
    return _with(listing, i, attributes={"value": number(listing)})


def _shown(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


# Loops and precision


def _loops(listing: Listing) -> Iterator[Change]:
    for i, op in enumerate(listing.operations):
        if op.name == "scf.for" and listing.sources[i].place:
            for operand, end in enumerate(("start", "end")):
                for by in (-1, 1):
                    amount = "more" if (by > 0) == (end == "end") else "less"
                    words = f"with one turn {amount} at the {end} of the loop"
                    yield Change(i, words, 0, partial(_moved, i=i, operand=operand, by=by))


def _moved(listing: Listing, i: int, operand: int, by: int) -> Edits:
    """A loop one of whose bounds is another."""
    op = listing.operations[i]
    bound = op.operands[operand]
    made = computed(op, lambda x: (x + by).astype(x.dtype), [bound], [fresh(0)], [listing.types[bound]])
    return {i: [made, replace(op, operands=(*op.operands[:operand], fresh(0), *op.operands[operand + 1 :]))]}


def _precisions(listing: Listing) -> Iterator[Change]:
    for i, op in enumerate(listing.operations):
        if op.name == "tt.dot" and op.attributes.get("inputPrecision", 2) == 0 and listing.sources[i].place:
            edits = partial(_with, i=i, attributes={**op.attributes, "inputPrecision": 2})
            # A helper that multiplies may have been told the precision.
            said = not listing.sources[i].callers
            yield Change(i, "with a product of float32 in place of TF32", 1, edits, said)


# Values


def _left_out(listing: Listing) -> Iterator[Change]:
    """Operations whose result is one of their operands."""
    for i, op in enumerate(listing.operations):
        if not listing.is_users(i) or len(op.results) != 1 or op.name.startswith(("scf.", "tt.")):
            continue
        for number, kind in dict(zip(op.operands, op.operand_types, strict=True)).items():
            if kind == op.types[0]:
                words = f"with {_value(listing, number)} in place of this operation"
                yield Change(i, words, 2, partial(_identity, i=i, number=number))


def _identity(listing: Listing, i: int, number: int) -> Edits:
    op = listing.operations[i]
    return {i: [computed(op, lambda x: x, [number], op.results, op.types)]}


def _exchanged(listing: Listing) -> Iterator[Change]:
    """Operations with another value of the same shape and dtype as an operand; accesses of another array."""
    for i, op in enumerate(listing.operations):
        if not listing.sources[i].place or op.name.startswith("scf."):
            continue
        for k, number in enumerate(op.operands):
            for other in _exchangeable(listing, i, number):
                operands = (*op.operands[:k], other, *op.operands[k + 1 :])
                words = f"with {_value(listing, other)} in place of {_value(listing, number)}"
                yield Change(i, words, 3, partial(_with, i=i, operands=operands))


def _exchangeable(listing: Listing, i: int, number: int) -> list[int]:
    kind, arguments = listing.types.get(number), listing.body.arguments
    if kind is None or (number not in arguments and (kind.pointer or listing.is_address(i))):
        return []
    if number in arguments:
        inputs, outputs = arguments[: listing.inputs], arguments[listing.inputs :]
        candidates = inputs if number in inputs else outputs
    else:
        made = ((n, listing.producer[n]) for n in listing.scopes[i] if n in listing.producer)
        plain = ("arith.constant", "tt.splat")
        candidates = tuple(n for n, j in made if listing.is_users(j) and listing.operations[j].name not in plain)
    return [n for n in candidates if n != number and listing.types.get(n) == kind]


def _value(listing: Listing, number: int) -> str:
    """A value in words: the expression that it is, or the argument."""
    if number in listing.producer:
        return f"`{listing.sources[listing.producer[number]].text}`"
    if number in listing.body.arguments:
        return f"`{listing.names[listing.body.arguments.index(number)]}`"
    return "what the loop carries"
