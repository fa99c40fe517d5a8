"""Loads, stores and atomic operations: which elements they touch, and what they do to their buffer."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.backends.simulate.interpreter import Action, Interpreter
from kerneltest.backends.simulate.ir import Compute, Operation
from kerneltest.backends.simulate.memory import Access, garbage
from kerneltest.backends.simulate.operations.arithmetic import as_unsigned
from kerneltest.backends.simulate.tape import Value
from kerneltest.core.dtypes import Array


def load(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`tt.load`, with or without a mask and a value for where it is false."""
    pointer, *rest = operands
    has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
    mask = rest[0] if has_mask else None
    return [interpreter.touch(op, "load", _load, pointer, mask, rest[-1:] if has_other else [])]


def store(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`tt.store`, with or without a mask."""
    pointer, value, *mask = operands
    interpreter.touch(op, "store", _store, pointer, mask[0] if mask else None, [value])
    return []


def atomic_rmw(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`tt.atomic_rmw`: a read, a modification and a write that nothing comes between."""
    pointer, value, *mask = operands
    combine = _RMW[op.attributes["atomic_rmw_op"]]
    action = _atomic(lambda old, new: combine(old, new[None])[0])
    return [interpreter.touch(op, "atomic", action, pointer, mask[0] if mask else None, [value])]


def atomic_cas(interpreter: Interpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """`tt.atomic_cas`: a write where what stands there is what is expected."""
    pointer, *rest = operands
    action = _atomic(lambda old, expected, new: new if old[0] == expected else old[0])
    return [interpreter.touch(op, "atomic", action, pointer, None, rest)]


def _load(
    access: Access, unread: Array | None, others: Sequence[Array], masks: Sequence[Array | None]
) -> tuple[Array, Array | None]:
    """The elements; `others[0]` where the mask is false. Without it, what stands there is undefined."""
    buffer, inside = access.buffer, access.inside
    nowhere = not buffer.size
    values = np.full(inside.shape, garbage(buffer.data.dtype)) if nowhere else buffer.take(access.at, access.clipped)
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


def _store(
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


def _atomic(update: Callable[..., Any]) -> Action:
    """An atomic operation, element by element in the programs' order; its value is what stood there before.

    Args:
      update: from what stands there (1,) and the operands' elements to what will.
    """

    def act(
        access: Access, unread: Array | None, operands: Sequence[Array], masks: Sequence[Array | None]
    ) -> tuple[Array, Array | None]:
        buffer, inside = access.buffer, access.inside
        spread = [np.broadcast_to(operand, inside.shape) for operand in operands]
        before = np.zeros(inside.shape, buffer.data.dtype)
        undefined = np.zeros(inside.shape, bool) if unread is None else unread & inside
        for lane in map(tuple, np.argwhere(inside)):
            at = access.at[lane]
            old = buffer.data[at : at + 1].copy()
            before[lane] = old[0]
            buffer.data[at] = update(old, *(operand[lane] for operand in spread))
            if buffer.undefined is not None:
                undefined[lane] |= buffer.undefined[at]
        known = [mask for mask in masks if mask is not None]
        if known or undefined.any():
            if buffer.undefined is None:
                buffer.undefined = np.zeros(buffer.data.size, bool)
            bad = functools.reduce(np.logical_or, known, undefined)
            buffer.undefined[access.at[inside & bad]] = True
        return before, undefined if undefined.any() else None

    return act


def _add_floats(old: Array, new: Array) -> Array:
    """Floats, or the bits of integers added as if they were: subnormal ones, as small integers are, count as zero.

    So an H200 adds 1 and 1 to 0 where the lowering mistakes a block of integers for floats.
    """
    if old.dtype.kind != "i":
        return np.asarray(old + new)
    dtype = np.dtype(f"f{old.dtype.itemsize}")
    tiny = np.finfo(dtype).tiny
    a, b = (np.where(np.abs(x.view(dtype)) < tiny, 0, x.view(dtype)).astype(dtype) for x in (old, new))
    total = a + b
    return np.where(np.abs(total) < tiny, 0, total).astype(dtype).view(old.dtype)


# By Triton's numbers: and or xor add fadd max min umax umin xchg.
_RMW: Mapping[int, Compute] = {
    1: np.bitwise_and,
    2: np.bitwise_or,
    3: np.bitwise_xor,
    4: np.add,
    5: _add_floats,
    6: np.maximum,
    7: np.minimum,
    8: as_unsigned(np.maximum),
    9: as_unsigned(np.minimum),
    10: lambda old, new: new,
}
