"""Changes of the masks of loads and stores, and of what a load gives where its mask is false."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Rule, Semantics, Type, any_operand
from kerneltest.backends.simulate.listing import Change, Edits, Listing, computed, fresh
from kerneltest.backends.simulate.tape import Pointer
from kerneltest.core.dtypes import is_float

_BOOLEAN = np.dtype(np.bool_)

# The number of a boolean value, and the axis along which it lies; None if it has the access's own shape.
Condition = tuple[int, int | None]


def masks(listing: Listing) -> Iterator[Change]:
    """Accesses without their mask, with another one that is in scope, or with one more condition."""
    for i, op, shape in _accesses(listing):
        kind = op.name.removeprefix("tt.")
        _, mask, _ = _parts(op)
        if mask is not None:
            yield Change(i, f"with no mask of the {kind}", 0, partial(_masked, i=i, conditions=()))
        for conditions, words in _conditions(listing, i, shape):
            if mask is None:
                for fill in (None,) if kind == "store" else (0.0, -np.inf):
                    says = "" if fill is None else f" and other={fill:g}"
                    edits = partial(_masked, i=i, conditions=conditions, fill=fill)
                    yield Change(i, f"with the {kind} masked by {words}{says}", 0, edits)
            elif conditions != [(mask, None)]:
                yield Change(
                    i, f"with {words} as the mask of the {kind}", 0, partial(_masked, i=i, conditions=conditions)
                )
                both = [(mask, None), *conditions]
                yield Change(i, f"with the {kind} also masked by {words}", 0, partial(_masked, i=i, conditions=both))
        if kind == "store" or mask is None:
            yield Change(i, f"with the {kind} masked by what lies in the array", 2, partial(_fenced, i=i))


def defaults(listing: Listing) -> Iterator[Change]:
    """Masked loads with another number where the mask is false."""
    for i, op, _ in _accesses(listing):
        pointer, mask, _ = _parts(op)
        if op.name == "tt.load" and mask is not None:
            for fill in (0.0, 1.0, -np.inf, np.inf) if is_float(listing.types[pointer].dtype) else (0.0, 1.0):
                edits = partial(_masked, i=i, conditions=[(mask, None)], fill=fill)
                yield Change(i, f"with other={fill:g} where the mask of the load is false", 0, edits)


def _accesses(listing: Listing) -> Iterator[tuple[int, Operation, tuple[int, ...]]]:
    for i, op in enumerate(listing.operations):
        if op.name in ("tt.load", "tt.store") and listing.sources[i].place:
            yield i, op, listing.types[op.operands[0]].shape


def _parts(op: Operation) -> tuple[int, int | None, tuple[int, ...]]:
    """The pointer, the mask if there is one, and a load's `other` or the value that is stored."""
    pointer, *rest = op.operands
    if op.name == "tt.store":
        return pointer, rest[1] if len(rest) > 1 else None, tuple(rest[:1])
    has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
    return pointer, rest[0] if has_mask else None, tuple(rest[-1:]) if has_other else ()


def _conditions(listing: Listing, i: int, shape: tuple[int, ...]) -> Iterator[tuple[list[Condition], str]]:
    """What in scope could mask an access: a condition of its shape, or a vector along each of some axes."""
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


def _masked(listing: Listing, i: int, conditions: Sequence[Condition], fill: float | None = None) -> Edits:
    """An access where all of some conditions hold, or everywhere; a load gives `fill` elsewhere."""
    op = listing.operations[i]
    pointer, _, rest = _parts(op)
    if not conditions:
        return {i: [_remade(op, pointer, None, rest)]}
    shape = listing.types[pointer].shape
    axes = [axis for _, axis in conditions]

    def all_hold(*values: Any) -> Any:
        result = np.ones((1,) * (len(shape) + 1), bool)
        for value, axis in zip(values, axes, strict=True):
            others = tuple(a + 1 for a in range(len(shape)) if a != axis)
            result = result & (value if axis is None else np.expand_dims(value, others))
        return result

    numbers = [number for number, _ in conditions]
    made = [computed(op, all_hold, numbers, [fresh(0)], [Type(shape, _BOOLEAN, False)])]
    if fill is not None:
        made.append(_filling(listing, op, fill))
        rest = (fresh(1),)
    return {i: [*made, _remade(op, pointer, fresh(0), rest)]}


def _fenced(listing: Listing, i: int) -> Edits:
    """An access of what lies in the array alone."""
    op = listing.operations[i]
    pointer, mask, rest = _parts(op)

    def inside(interpreter: Any, _: Operation, operands: Sequence[Any]) -> Sequence[Any]:
        where: Pointer = operands[0]
        size = interpreter.launch.buffers[where.buffer].size
        rule = Rule(lambda offset, *more: (offset >= 0) & (offset < size) & (more[0] if more else True), any_operand)
        return [interpreter.apply(rule, [where.offset, *operands[1:]])[0]]

    given = (pointer,) if mask is None else (pointer, mask)
    kind = Type(listing.types[pointer].shape, _BOOLEAN, False)
    made = [replace(computed(op, inside, given, [fresh(0)], [kind]), semantics=Semantics(execute=inside))]
    if op.name == "tt.load" and not rest:
        made.append(_filling(listing, op, 0.0))
        rest = (fresh(1),)
    return {i: [*made, _remade(op, pointer, fresh(0), rest)]}


def _filling(listing: Listing, op: Operation, fill: float) -> Operation:
    kind = replace(listing.types[op.operands[0]], pointer=False)
    number = fill if is_float(kind.dtype) or np.isfinite(fill) else 0.0
    value = np.full((1,) * (len(kind.shape) + 1), number).astype(kind.dtype)
    return computed(op, lambda: value, [], [fresh(1)], [kind])


def _remade(op: Operation, pointer: int, mask: int | None, rest: Sequence[int]) -> Operation:
    masked = () if mask is None else (mask,)
    if op.name == "tt.store":
        return replace(op, operands=(pointer, *rest, *masked))
    others = tuple(rest) if masked else ()
    sizes = (1, len(masked), len(others))
    attributes = {**op.attributes, "operandSegmentSizes": sizes}
    return replace(op, operands=(pointer, *masked, *others), attributes=attributes)
