"""Mutation operators on a lowered body: comparisons, constants, loops, products, operands."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kerneltest.core.dtypes import is_float, is_integer
from kerneltest.localize.equation_edits import common_floats
from kerneltest.localize.equation_mutations import COMPARISONS, TAKING_CONSTANTS
from kerneltest.localize.listing import Edits, Listing, Mutation, new_value, numpy_operation
from kerneltest.localize.mask_mutations import default_mutations, mask_mutations
from kerneltest.localize.precision_mutations import precision_mutations


def code_mutations(listing: Listing) -> Iterator[Mutation]:
    """Yields all mutations of a body."""
    for operator in (
        _comparisons,
        _constants,
        mask_mutations,
        default_mutations,
        _loops,
        _dot_precisions,
        precision_mutations,
        _removals,
        _exchanges,
    ):
        yield from operator(listing)


def _with(listing: Listing, i: int, **fields: Any) -> Edits:
    return {i: [replace(listing.operations[i], **fields)]}


# Comparisons

# By the number of the predicate.
_INTEGER_SIGNS = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")  # the last four are unsigned
_SIGNS = ("==", ">", ">=", "<", "<=", "!=")
_FLOAT_SIGNS = ("", *_SIGNS, "", *_SIGNS, "", "")  # those from 8 on are true for NaN
_OTHER_END = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def _comparisons(listing: Listing) -> Iterator[Mutation]:
    """Yields comparisons with or without equality."""
    for i, op in enumerate(listing.operations):
        if op.name not in ("arith.cmpi", "arith.cmpf") or not listing.is_written_by_user(i):
            continue
        signs, half = (_INTEGER_SIGNS, 6) if op.name == "arith.cmpi" else (_FLOAT_SIGNS, 8)
        number = op.attributes["predicate"]
        if other := _OTHER_END.get(signs[number]):
            predicate = signs.index(other, half if number >= half else 0)
            edits = partial(_with, i=i, attributes={"predicate": predicate})
            yield Mutation(i, f"changing {signs[number]} to {other}", 0, edits)


# Constants

Scalar = int | float
Constant = Callable[[Listing], Scalar]  # the value of a constant in any listing of one structure


def _constants(listing: Listing) -> Iterator[Mutation]:
    """Yields constants changed by one, or to another number of the kernel."""
    for i in _scalars(listing):
        value, text = listing.operations[i].attributes["value"], listing.sources[i].text
        if listing.sources[i].primitive in COMPARISONS and not np.isfinite(value):
            continue  # a test for infinities, which JAX writes, too
        literal = bool(re.search(rf"(?<![\w.]){re.escape(_format(value))}(?!\w)", text))
        for meaning, constant in _replacements(listing, i):
            if (new := constant(listing)) != value:
                phrase = f"changing {_format(value)} to {meaning}{_format(new)}"
                # A length may equal the right number by coincidence.
                edits = partial(_with_value, i=i, constant=constant)
                yield Mutation(i, phrase, 0, edits, literal and not meaning)


def _scalars(listing: Listing) -> list[int]:
    """Returns the numbers of the operations that are scalar constants of the author's, and not of a lowering rule."""
    return [
        i
        for i, op in enumerate(listing.operations)
        if op.name == "arith.constant"
        and listing.is_written_by_user(i)
        and listing.sources[i].primitive in TAKING_CONSTANTS
        and not isinstance(op.attributes["value"], np.ndarray)
        and (is_float(op.types[0].dtype) or (is_integer(op.types[0].dtype) and op.types[0].dtype != np.bool_))
    ]


def _replacements(listing: Listing, i: int) -> Iterator[tuple[str, Constant]]:
    """Yields other values for a constant, each after a prefix that tells its meaning."""
    floating = is_float(listing.operations[i].types[0].dtype)
    kind = float if floating else int
    if floating:
        own = listing.operations[i].attributes["value"]
        yield from (("", partial(_same_everywhere, value=value)) for value in common_floats(own))
        if own == 0 or not np.isfinite(own):
            return  # no other number is meant in place of a fill
    else:
        yield from (("", partial(_near, i=i, by=by)) for by in (1, -1))
    for name in listing.lengths:
        yield f"the length {name}=", partial(_length, name=name, kind=kind)
    seen = {listing.operations[i].attributes["value"]}
    for j in _scalars(listing):
        value = listing.operations[j].attributes["value"]
        if value not in seen and is_float(listing.operations[j].types[0].dtype) == floating:
            seen.add(value)
            yield "", partial(_attribute, i=j, name="value", kind=kind)
    for j, op in enumerate(listing.operations):
        if op.name == "tt.make_range" and listing.is_written_by_user(j) and op.attributes["end"] not in seen:
            seen.add(op.attributes["end"])
            yield "the block ", partial(_attribute, i=j, name="end", kind=kind)


def _same_everywhere(listing: Listing, value: float) -> Scalar:
    return value


def _near(listing: Listing, i: int, by: int) -> Scalar:
    value: int = listing.operations[i].attributes["value"]
    return value + by


def _length(listing: Listing, name: str, kind: type[Scalar]) -> Scalar:
    return kind(listing.lengths[name])


def _attribute(listing: Listing, i: int, name: str, kind: type[Scalar]) -> Scalar:
    return kind(listing.operations[i].attributes[name])


def _with_value(listing: Listing, i: int, constant: Constant) -> Edits:
    return _with(listing, i, attributes={"value": constant(listing)})


def _format(value: Scalar) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


# Loops and precision


def _loops(listing: Listing) -> Iterator[Mutation]:
    """Yields loops with one iteration more or less at either end."""
    for i, op in enumerate(listing.operations):
        if op.name == "scf.for" and listing.sources[i].place:
            for operand, end in enumerate(("start", "end")):
                for by in (-1, 1):
                    change = "adding" if (by > 0) == (end == "end") else "removing"
                    phrase = f"{change} an iteration at the {end} of the loop"
                    yield Mutation(i, phrase, 0, partial(_with_bound, i=i, operand=operand, by=by))


def _with_bound(listing: Listing, i: int, operand: int, by: int) -> Edits:
    """Moves a bound of a loop by a number."""
    op, moved = listing.operations[i], new_value(0)
    bound = op.operands[operand]
    addition = numpy_operation(op, lambda x: (x + by).astype(x.dtype), [bound], [moved], [listing.types[bound]])
    return {i: [addition, replace(op, operands=(*op.operands[:operand], moved, *op.operands[operand + 1 :]))]}


def _dot_precisions(listing: Listing) -> Iterator[Mutation]:
    """Yields TF32 products computed in float32."""
    for i, op in enumerate(listing.operations):
        if op.name == "tt.dot" and op.attributes.get("inputPrecision", 2) == 0 and listing.sources[i].place:
            edits = partial(_with, i=i, attributes={**op.attributes, "inputPrecision": 2})
            # A function with the product may get the precision from its caller.
            literal = not listing.sources[i].callers
            yield Mutation(i, "computing the product in float32 instead of TF32", 1, edits, literal)


# Values


def _removals(listing: Listing) -> Iterator[Mutation]:
    """Yields operations replaced by one of their operands."""
    for i, op in enumerate(listing.operations):
        if not listing.is_written_by_user(i) or len(op.results) != 1 or op.name.startswith(("scf.", "tt.")):
            continue
        for number, kind in dict(zip(op.operands, op.operand_types, strict=True)).items():
            if kind == op.types[0]:
                phrase = f"replacing this operation by {_describe_value(listing, number)}"
                yield Mutation(i, phrase, 2, partial(_identity, i=i, number=number))


def _identity(listing: Listing, i: int, number: int) -> Edits:
    op = listing.operations[i]
    return {i: [numpy_operation(op, lambda x: x, [number], op.results, op.types)]}


def _exchanges(listing: Listing) -> Iterator[Mutation]:
    """Yields operations with another operand of the same type, and accesses of another array."""
    for i, op in enumerate(listing.operations):
        if not listing.sources[i].place or op.name.startswith("scf."):
            continue
        for k, number in enumerate(op.operands):
            for other in _exchangeable(listing, i, number):
                operands = (*op.operands[:k], other, *op.operands[k + 1 :])
                phrase = f"replacing {_describe_value(listing, number)} by {_describe_value(listing, other)}"
                is_argument = number in listing.body.arguments  # by chance, another value often fits
                yield Mutation(i, phrase, 3, partial(_with, i=i, operands=operands), is_argument)


def _exchangeable(listing: Listing, i: int, number: int) -> list[int]:
    """Returns the values of the same type in scope that could be meant instead of an operand."""
    kind, arguments = listing.types.get(number), listing.body.arguments
    if kind is None or (number not in arguments and (kind.pointer or listing.is_address_arithmetic(i))):
        return []
    if number in arguments:
        inputs, outputs = arguments[: listing.inputs], arguments[listing.inputs :]
        candidates = inputs if number in inputs else outputs
    else:
        computed = ((n, listing.producer[n]) for n in listing.scopes[i] if n in listing.producer)
        plain = ("arith.constant", "tt.splat")
        candidates = tuple(
            n for n, j in computed if listing.is_written_by_user(j) and listing.operations[j].name not in plain
        )
    return [n for n in candidates if n != number and listing.types.get(n) == kind]


def _describe_value(listing: Listing, number: int) -> str:
    """Returns the source expression of a value, or the name of an argument."""
    if number in listing.producer:
        return f"`{listing.sources[listing.producer[number]].text}`"
    if number in listing.body.arguments:
        return f"`{listing.names[listing.body.arguments.index(number)]}`"
    return "the value that the loop carries"
