"""Mutation operators on the masks of loads and stores, and on the values that loads give for masked elements."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Rule, Semantics, Type, any_operand
from kerneltest.backends.simulate.ir_interpreter import IRInterpreter
from kerneltest.backends.simulate.tape import BufferPointer, Value
from kerneltest.core.dtypes import Array, is_float
from kerneltest.localize.listing import Edits, Listing, Mutation, new_value, numpy_operation

_BOOLEAN = np.dtype(np.bool_)
_MASK, _OTHER = new_value(0), new_value(1)

# The number of a boolean value, and the axis along which it lies; None if it has the shape of the access.
Condition = tuple[int, int | None]


def mask_mutations(listing: Listing) -> Iterator[Mutation]:
    """Yields accesses without their mask, with another one that is in scope, and with an additional condition."""
    for i, op, shape in _accesses(listing):
        kind = op.name.removeprefix("tt.")
        _, mask, _ = _operands(op)
        if mask is not None:
            yield Mutation(i, f"removing the mask of the {kind}", 0, partial(_with_mask, i=i, conditions=()))
        for conditions, words in _conditions(listing, i, shape):
            if mask is None:
                for fill in (None,) if kind == "store" else (0.0, -np.inf):
                    other = "" if fill is None else f" with other={fill:g}"
                    edits = partial(_with_mask, i=i, conditions=conditions, fill=fill)
                    yield Mutation(i, f"masking the {kind} by {words}{other}", 0, edits)
            elif conditions != [(mask, None)]:
                edits = partial(_with_mask, i=i, conditions=conditions)
                yield Mutation(i, f"masking the {kind} by {words} instead", 0, edits)
                edits = partial(_with_mask, i=i, conditions=[(mask, None), *conditions])
                yield Mutation(i, f"also masking the {kind} by {words}", 0, edits)
        if kind == "store" or mask is None:
            yield Mutation(i, f"limiting the {kind} to the array", 2, partial(_within_array, i=i))


def default_mutations(listing: Listing) -> Iterator[Mutation]:
    """Yields masked loads with other values for masked elements."""
    for i, op, _ in _accesses(listing):
        pointer, mask, _ = _operands(op)
        if op.name == "tt.load" and mask is not None:
            for fill in (0.0, 1.0, -np.inf, np.inf) if is_float(listing.types[pointer].dtype) else (0.0, 1.0):
                edits = partial(_with_mask, i=i, conditions=[(mask, None)], fill=fill)
                yield Mutation(i, f"giving the masked load other={fill:g}", 0, edits)


def _accesses(listing: Listing) -> Iterator[tuple[int, Operation, tuple[int, ...]]]:
    for i, op in enumerate(listing.operations):
        if op.name in ("tt.load", "tt.store") and listing.sources[i].place:
            yield i, op, listing.types[op.operands[0]].shape


def _operands(op: Operation) -> tuple[int, int | None, tuple[int, ...]]:
    """Returns the pointer, the mask if there is one, and a load's `other` or the stored value."""
    pointer, *rest = op.operands
    if op.name == "tt.store":
        return pointer, rest[1] if len(rest) > 1 else None, tuple(rest[:1])
    has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
    return pointer, rest[0] if has_mask else None, tuple(rest[-1:]) if has_other else ()


def _conditions(listing: Listing, i: int, shape: tuple[int, ...]) -> Iterator[tuple[list[Condition], str]]:
    """Yields conditions in scope that could mask an access: one of its shape, or vectors along some of its axes."""
    texts = {
        number: f"`{listing.sources[listing.producer[number]].text}`"
        for number in listing.scopes[i]
        if listing.types[number].dtype == _BOOLEAN and not listing.types[number].pointer and number in listing.producer
    }
    for number, text in texts.items():
        if listing.types[number].shape == shape:
            yield [(number, None)], text
    if len(shape) < 2:
        return
    along: list[list[Condition | None]] = [
        [None, *((number, axis) for number in texts if listing.types[number].shape == (length,))]
        for axis, length in enumerate(shape)
    ]
    for chosen in product(*along):
        conditions = [condition for condition in chosen if condition is not None]
        if conditions:
            yield conditions, " and ".join(f"{texts[number]} along axis {axis}" for number, axis in conditions)


def _with_mask(listing: Listing, i: int, conditions: Sequence[Condition], fill: float | None = None) -> Edits:
    """Masks an access by the conjunction of conditions, or not at all; a load gives `fill` for masked elements."""
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
    """Limits an access to the elements of its array."""
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
    """Returns the value of a load for masked elements; 0 in place of an infinity that its dtype lacks."""
    kind = replace(listing.types[op.operands[0]], pointer=False)
    number = fill if is_float(kind.dtype) or np.isfinite(fill) else 0.0
    value = np.full((1,) * (len(kind.shape) + 1), number).astype(kind.dtype)
    return numpy_operation(op, lambda: value, [], [_OTHER], [kind])


def _with_operands(op: Operation, pointer: int, mask: int | None, rest: Sequence[int]) -> Operation:
    """Returns an access with another mask and another `other` or stored value."""
    masked = () if mask is None else (mask,)
    if op.name == "tt.store":
        return replace(op, operands=(pointer, *rest, *masked))
    others = tuple(rest) if masked else ()
    sizes = (1, len(masked), len(others))
    attributes = {**op.attributes, "operandSegmentSizes": sizes}
    return replace(op, operands=(pointer, *masked, *others), attributes=attributes)
