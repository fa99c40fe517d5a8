"""What an access does to its buffer, once its elements are known: loads, stores and atomic operations."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerneltest.backends.simulate.memory import Access, garbage
from kerneltest.backends.simulate.ops import unsigned
from kerneltest.core.dtypes import Array

# From an access, the mask of elements that nobody wrote, further operands and their masks, to a value and its mask.
Action = Callable[[Access, Array | None, Sequence[Array], Sequence[Array | None]], tuple[Array, Array | None]]

# Triton's numbers for atomic operations.
RMW = {1: "and", 2: "or", 3: "xor", 4: "add", 5: "fadd", 6: "max", 7: "min", 8: "umax", 9: "umin", 10: "xchg"}


def load(
    access: Access, unread: Array | None, others: Sequence[Array], masks: Sequence[Array | None]
) -> tuple[Array, Array | None]:
    """The elements; `others[0]` where the mask is false. Without it, what stands there is undefined."""
    buffer, inside = access.buffer, access.inside
    values = buffer.data[access.at] if buffer.data.size else np.full(inside.shape, garbage(buffer.data.dtype))
    undefined = unread
    if buffer.undefined is not None:
        undefined = _or(undefined, inside & buffer.undefined[access.at])
    if not access.whole:
        nothing = garbage(buffer.data.dtype)
        default = others[0] if others else nothing
        values = np.where(inside, values, np.where(access.enabled, nothing, default)).astype(buffer.data.dtype)
        if not others:
            undefined = _or(undefined, ~access.enabled)
        elif masks[0] is not None:
            undefined = _or(undefined, masks[0] & ~access.enabled)
    return values, undefined if undefined is not None and undefined.any() else None


def store(
    access: Access, unread: Array | None, operands: Sequence[Array], masks: Sequence[Array | None]
) -> tuple[Array, Array | None]:
    """Stores the elements that lie inside; where one is written twice, the last program's value stays."""
    buffer, inside, values = access.buffer, access.inside, operands[0]
    if values.dtype != buffer.data.dtype:
        values = np.ascontiguousarray(values).view(buffer.data.dtype)
    if access.whole:
        buffer.data[access.at] = values
    else:
        buffer.data[access.at[inside]] = np.broadcast_to(values, inside.shape)[inside]
    for offset, seen in buffer.raced.items():
        seen.extend(np.broadcast_to(values, inside.shape)[inside & (access.offset == offset)][:4].tolist())
    if masks[0] is not None or buffer.undefined is not None:
        if buffer.undefined is None:
            buffer.undefined = np.zeros(buffer.data.size, bool)
        mask = np.zeros((), bool) if masks[0] is None else masks[0]
        buffer.undefined[access.at[inside]] = np.broadcast_to(mask, inside.shape)[inside]
    return operands[0], None


def _or(a: Array | None, b: Array) -> Array:
    return b if a is None else np.asarray(a | b)


def _added_as_floats(old: Array, new: Array) -> Array:
    """The bits of integers, added as if they were floats: subnormal ones, as small integers are, count as zero.

    So an H200 adds 1 and 1 to 0 where the lowering mistakes a block of integers for floats.
    """
    kind = np.dtype(f"f{old.dtype.itemsize}")
    tiny = np.finfo(kind).tiny
    a, b = (np.where(np.abs(x.view(kind)) < tiny, 0, x.view(kind)).astype(kind) for x in (old, new))
    total = a + b
    return np.where(np.abs(total) < tiny, 0, total).astype(kind).view(old.dtype)


def _combine(kind: str, old: Any, new: Any) -> Any:
    match kind:
        case "fadd" if old.dtype.kind == "i":
            return _added_as_floats(old, new)
        case "add" | "fadd":
            return old + new
        case "max":
            return np.maximum(old, new)
        case "min":
            return np.minimum(old, new)
        case "umax":
            return np.maximum(unsigned(old), unsigned(new)).view(old.dtype)
        case "umin":
            return np.minimum(unsigned(old), unsigned(new)).view(old.dtype)
        case "and":
            return old & new
        case "or":
            return old | new
        case "xor":
            return old ^ new
    return new


def atomic(kind: str) -> Action:
    """An atomic operation, element by element in the programs' order; its value is what stood there before."""

    def act(
        access: Access, unread: Array | None, operands: Sequence[Array], masks: Sequence[Array | None]
    ) -> tuple[Array, Array | None]:
        buffer, inside = access.buffer, access.inside
        spread = [np.broadcast_to(operand, inside.shape) for operand in operands]
        before = np.zeros(inside.shape, buffer.data.dtype)
        undefined = np.zeros(inside.shape, bool) if unread is None else unread & inside
        for lane in map(tuple, np.argwhere(inside)):
            at = access.offset[lane]
            old = buffer.data[at : at + 1].copy()
            before[lane] = old[0]
            if kind == "cas":
                new = spread[1][lane] if old[0] == spread[0][lane] else old[0]
            else:
                new = _combine(kind, old, spread[0][lane][None])[0]
            buffer.data[at] = new
            if buffer.undefined is not None:
                undefined[lane] |= buffer.undefined[at]
        given = [mask for mask in masks if mask is not None]
        if given or undefined.any():
            if buffer.undefined is None:
                buffer.undefined = np.zeros(buffer.data.size, bool)
            bad = functools.reduce(np.logical_or, given, undefined)
            buffer.undefined[access.offset[inside & bad]] = True
        return before, undefined if undefined.any() else None

    return act
