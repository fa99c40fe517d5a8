"""Loads, stores and atomic operations: the elements that they access, and their effects on the buffer."""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerneltest.backends.simulate.access_checker import MemoryAccess
from kerneltest.backends.simulate.buffers import uninitialised_value
from kerneltest.backends.simulate.ir import Compute, Mask, Operation
from kerneltest.backends.simulate.ir_interpreter import Action, IRInterpreter
from kerneltest.backends.simulate.operations.elementwise import as_unsigned
from kerneltest.backends.simulate.tape import Value
from kerneltest.core.details import Access
from kerneltest.core.dtypes import Array


def load(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `tt.load`, with or without a mask and a value for masked elements."""
    pointer, *rest = operands
    has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
    mask = rest[0] if has_mask else None
    return [interpreter.access(op, Access.LOAD, _load, pointer, mask, rest[-1:] if has_other else [])]


def store(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `tt.store`, with or without a mask."""
    pointer, value, *mask = operands
    interpreter.access(op, Access.STORE, _store, pointer, mask[0] if mask else None, [value])
    return []


def atomic_rmw(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `tt.atomic_rmw`: an atomic read, modification and write."""
    pointer, value, *mask = operands
    combine = _RMW[op.attributes["atomic_rmw_op"]]
    action = _atomic(lambda old, new: combine(old, new[None])[0])
    return [interpreter.access(op, Access.ATOMIC, action, pointer, mask[0] if mask else None, [value])]


def atomic_cas(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `tt.atomic_cas`: a write to elements that hold the expected value."""
    pointer, *rest = operands
    action = _atomic(lambda old, expected, new: new if old[0] == expected else old[0])
    return [interpreter.access(op, Access.ATOMIC, action, pointer, None, rest)]


def _load(
    access: MemoryAccess, unread: Array | None, others: Sequence[Array], masks: Sequence[Mask]
) -> tuple[Array, Array | None]:
    """Returns the elements, and `others[0]` for masked ones, which are undefined without it."""
    buffer, inside = access.buffer, access.inside
    nothing = uninitialised_value(buffer.data.dtype)
    values = np.full(inside.shape, nothing)
    if buffer.size:
        values = buffer.gather(access.positions, access.clipped_offset)
    undefined = unread
    if buffer.undefined is not None:
        undefined = _or(undefined, inside & buffer.undefined[access.positions])
    if not access.all_inside:
        default = others[0] if others else nothing
        values = np.where(inside, values, np.where(access.enabled, nothing, default)).astype(buffer.data.dtype)
        if not others:
            undefined = _or(undefined, ~access.enabled)
        elif masks[0] is not None:
            undefined = _or(undefined, masks[0] & ~access.enabled)
    return values, undefined if undefined is not None and undefined.any() else None


def _store(
    access: MemoryAccess, unread: Array | None, operands: Sequence[Array], masks: Sequence[Mask]
) -> tuple[Array, Array | None]:
    """Stores the elements inside. Of several values for one element, that of the last program is kept."""
    buffer, inside, values = access.buffer, access.inside, operands[0]
    if values.dtype != buffer.data.dtype:
        values = np.ascontiguousarray(values).view(buffer.data.dtype)
    if access.all_inside:
        buffer.data[access.positions] = values
    else:
        buffer.data[access.positions[inside]] = np.broadcast_to(values, inside.shape)[inside]
    for offset, stored in buffer.race_values.items():
        stored.extend(np.broadcast_to(values, inside.shape)[inside & (access.offset == offset)][:4].tolist())
    if masks[0] is not None or buffer.undefined is not None:
        if buffer.undefined is None:
            buffer.undefined = np.zeros(buffer.data.size, bool)
        mask = np.zeros((), bool) if masks[0] is None else masks[0]
        buffer.undefined[access.positions[inside]] = np.broadcast_to(mask, inside.shape)[inside]
    return operands[0], None


def _or(a: Array | None, b: Array) -> Array:
    return b if a is None else np.asarray(a | b)


def _atomic(update: Callable[..., Array]) -> Action:
    """Returns an atomic operation, element by element in the programs' order, whose value is the previous content.

    Args:
      update: from the previous content (1,) and the operands' elements to the new content.
    """

    def act(
        access: MemoryAccess, unread: Array | None, operands: Sequence[Array], masks: Sequence[Mask]
    ) -> tuple[Array, Array | None]:
        buffer, inside = access.buffer, access.inside
        spread = [np.broadcast_to(operand, inside.shape) for operand in operands]
        data = buffer.data.view(spread[0].dtype)  # the pointer may have been cast: floats are compared by their bits
        before = np.zeros(inside.shape, data.dtype)
        undefined = np.zeros(inside.shape, bool) if unread is None else unread & inside
        for lane in map(tuple, np.argwhere(inside)):
            at = access.positions[lane]
            old = data[at : at + 1].copy()
            before[lane] = old[0]
            data[at] = update(old, *(operand[lane] for operand in spread))
            if buffer.undefined is not None:
                undefined[lane] |= buffer.undefined[at]
        known = [mask for mask in masks if mask is not None]
        if known or undefined.any():
            if buffer.undefined is None:
                buffer.undefined = np.zeros(buffer.data.size, bool)
            bad = functools.reduce(np.logical_or, known, undefined)
            buffer.undefined[access.positions[inside & bad]] = True
        return before, undefined if undefined.any() else None

    return act


def _add_floats(old: Array, new: Array) -> Array:
    """Adds floats, or the bits of integers as floats, with subnormal ones, as small integers are, taken to be zero.

    So an H200 adds 1 and 1 to 0 if the lowering mistakes a block of integers for floats.
    """
    if old.dtype.kind != "i":
        return np.asarray(old + new)
    dtype = np.dtype(f"f{old.dtype.itemsize}")
    tiny = np.finfo(dtype).tiny
    a, b = (np.where(np.abs(x.view(dtype)) < tiny, 0, x.view(dtype)).astype(dtype) for x in (old, new))
    total = a + b
    return np.where(np.abs(total) < tiny, 0, total).astype(dtype).view(old.dtype)


# By Triton's number of the operation: and or xor add fadd max min umax umin xchg.
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
