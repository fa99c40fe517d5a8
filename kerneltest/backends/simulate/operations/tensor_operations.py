"""Operations that move the elements of a tensor, reductions, scans and matrix products."""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerneltest.backends.simulate.interpreter import (
    AccessRequest,
    Action,
    BufferPointer,
    IRInterpreter,
    TapeSlot,
    Value,
)
from kerneltest.backends.simulate.ir import Compute, Mask, Operation, Rule, any_operand, dense_masks
from kerneltest.backends.simulate.memory import MemoryAccess, uninitialised_value
from kerneltest.core.details import Access
from kerneltest.core.dtypes import Array
from kerneltest.core.precision import FLOAT32, SIMULATED
from kerneltest.numerics.device_operations import UPDATES, as_unsigned, multiply_matrices


def reshape(op: Operation) -> Compute:
    """Returns the elements in row-major order in another shape."""
    before, after = op.operand_types[0].shape, op.types[0].shape
    return lambda x: _full(x, before).reshape(x.shape[0], *after)


def split(op: Operation) -> Compute:
    """Splits a tensor into the two halves along its last axis."""
    shape = op.operand_types[0].shape

    def halves(x: Array) -> tuple[Array, Array]:
        whole = _full(x, shape)
        return whole[..., 0], whole[..., 1]

    return halves


def concatenate(op: Operation) -> Compute:
    """Concatenates two tensors along their first axis."""
    first, second = (operand.shape for operand in op.operand_types)

    def joined(a: Array, b: Array) -> Array:
        programs = max(len(a), len(b))
        return np.concatenate([_full(a, first, programs), _full(b, second, programs)], 1)

    return joined


def _full(x: Array, shape: tuple[int, ...], programs: int = 0) -> Array:
    return np.broadcast_to(x, (programs or x.shape[0], *shape))


def constantly(value: Array) -> Compute:
    """Returns a computation without operands."""
    return lambda: value


def constant(op: Operation) -> Compute:
    """Returns the attribute `value`: a number for all elements, or an array."""
    (result,), value = op.types, op.attributes["value"]
    if isinstance(value, np.ndarray):
        return constantly(value.astype(result.dtype)[None])
    if result.dtype.kind == "i":
        value = np.asarray(value, np.int64)
    return constantly(np.asarray(value).astype(result.dtype).reshape((1,) * (len(result.shape) + 1)))


_DOT_INPUT = SIMULATED.dot_input["float32"]


def tf32(x: Array) -> Array:
    """Rounds float32 to the inputs of a TF32 product, ties away from zero, as measured on an H200."""
    dropped = FLOAT32.precision - _DOT_INPUT.precision
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(1 << (dropped - 1))) & np.uint32(-(1 << dropped) % 2**32)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def dot(op: Operation) -> Rule:
    """Multiplies two matrices and adds a third one; floats are computed in float32 or wider."""
    dtype = op.types[0].dtype
    left, right, _ = (operand.shape for operand in op.operand_types)
    reduced = op.attributes.get("inputPrecision", 2) == 0  # TF32, TF32x3, IEEE, ...

    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b = _full(a, left), _full(b, right)
        if a.dtype == np.float32 and reduced:
            a, b = tf32(a), tf32(b)
        product = multiply_matrices(a, b, dtype)
        return np.asarray((product + c.astype(product.dtype)).astype(dtype))

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        a, b, c = dense_masks(values, masks)
        return a.any(axis=-1, keepdims=True) | b.any(axis=-2, keepdims=True) | c

    return Rule(compute, undefined)


def reduce(op: Operation) -> Rule:
    """Combines halves with halves, as a tree; the IR leaves the order open."""
    axis = op.attributes["axis"] + 1
    combine = op.regions[0].function()
    length = op.operand_types[0].shape[axis - 1]

    def compute(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(_along(x, axis, length) for x in operands)
        for _ in range(length.bit_length() - 1):
            low, high = zip(*(np.split(x, 2, axis) for x in parts), strict=True)
            parts = combine(*low, *high)
        return tuple(x.squeeze(axis) for x in parts)

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        mask = any_operand(values, masks)
        return mask.any(axis=axis) if mask.ndim > axis else mask

    return Rule(compute, undefined)


def scan(op: Operation) -> Rule:
    """Combines each element with all before it, by doubling distances."""
    axis = op.attributes["axis"] + 1
    is_reversed = bool(op.attributes.get("reverse", False))
    combine = op.regions[0].function()
    length = op.operand_types[0].shape[axis - 1]

    def compute(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(_along(x, axis, length) for x in np.broadcast_arrays(*operands))
        if is_reversed:
            parts = tuple(np.flip(x, axis) for x in parts)
        distance = 1
        while distance < length:
            head = (slice(None),) * axis + (slice(0, distance),)
            early = (slice(None),) * axis + (slice(0, length - distance),)
            late = (slice(None),) * axis + (slice(distance, None),)
            joined = combine(*(x[early] for x in parts), *(x[late] for x in parts))
            parts = tuple(np.concatenate((x[head], y), axis) for x, y in zip(parts, joined, strict=True))
            distance *= 2
        return tuple(np.flip(x, axis) for x in parts) if is_reversed else parts

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        mask = _along(any_operand(values, masks), axis, length)
        if is_reversed:
            return np.flip(np.logical_or.accumulate(np.flip(mask, axis), axis), axis)
        return np.logical_or.accumulate(mask, axis)

    return Rule(compute, undefined)


def _along(x: Array, axis: int, length: int) -> Array:
    return x if x.shape[axis] == length else np.repeat(x, length, axis)


# Loads, stores and atomic operations: the elements that they access, and their effects on the buffer.


def load(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `tt.load`, with or without a mask and a value for masked elements."""
    pointer, *rest = operands
    has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
    mask = rest[0] if has_mask else None
    request = AccessRequest(op, Access.LOAD, _load, pointer, mask, rest[-1:] if has_other else [])
    return [interpreter.access(request)]


def store(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `tt.store`, with or without a mask."""
    pointer, value, *mask = operands
    interpreter.access(AccessRequest(op, Access.STORE, _store, pointer, mask[0] if mask else None, [value]))
    return []


def atomic_rmw(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `tt.atomic_rmw`: an atomic read, modification and write."""
    pointer, value, *mask = operands
    combine = _RMW[op.attributes["atomic_rmw_op"]]
    action = _atomic(lambda old, new: combine(old, new[None])[0])
    request = AccessRequest(op, Access.ATOMIC, action, pointer, mask[0] if mask else None, [value])
    return [interpreter.access(request)]


def atomic_cas(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `tt.atomic_cas`: a write to elements that hold the expected value."""
    pointer, *rest = operands
    action = _atomic(lambda old, expected, new: new if old[0] == expected else old[0])
    return [interpreter.access(AccessRequest(op, Access.ATOMIC, action, pointer, None, rest))]


def _load(
    access: MemoryAccess, unread: Array | None, others: Sequence[Array], masks: Sequence[Mask]
) -> tuple[Array, Array | None]:
    # Returns the elements, and `others[0]` for masked ones, which are undefined without it.
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
    # Stores the elements inside. Of several values for one element, that of the last program is kept.
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
    # Returns an atomic operation, element by element in the programs' order, whose value is the previous content.

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
    # Adds floats, or the bits of integers as floats, with subnormal ones, as small integers are, taken to be zero. So
    # an H200 adds 1 and 1 to 0 if the lowering mistakes a block of integers for floats.
    if old.dtype.kind != "i":
        return np.asarray(old + new)
    dtype = np.dtype(f"f{old.dtype.itemsize}")
    tiny = np.finfo(dtype).tiny
    a, b = (np.where(np.abs(x.view(dtype)) < tiny, 0, x.view(dtype)).astype(dtype) for x in (old, new))
    total = a + b
    return np.where(np.abs(total) < tiny, 0, total).astype(dtype).view(old.dtype)


# By Triton's number of the operation.
_RMW: Mapping[int, Compute] = {
    **{
        number: UPDATES[name]
        for number, name in ((1, "and"), (2, "or"), (3, "xor"), (4, "add"), (6, "max"), (7, "min"))
    },
    **{number: as_unsigned(UPDATES[name]) for number, name in ((8, "max"), (9, "min"))},
    5: _add_floats,
    10: lambda old, new: new,
}


# Control flow: all programs run every branch and iteration that any of them takes, with those that do not disabled.

_NOT = Rule(np.logical_not, any_operand)


def loop(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `scf.for`, with as many iterations as the program that has most of them."""
    lower, upper, step, *carried = operands
    (region,) = op.regions
    known = not any(isinstance(bound, TapeSlot) for bound in (lower, upper, step))
    trips = np.maximum(-(-(upper.astype(np.int64) - lower) // step), 0) if known else None
    most = None if trips is None else int(trips.max(initial=0))
    if (postponed := interpreter.postpone_loop(op, carried, most)) is not None:
        return postponed
    assert trips is not None
    assert most is not None
    outer = interpreter.enabled
    for iteration in range(most):
        active = trips > iteration
        all_active = bool(active.all())
        interpreter.enabled = outer if all_active else interpreter.both(outer, active)
        after = interpreter.enter(region, [(lower + iteration * step).astype(lower.dtype), *carried])
        carried = after if all_active else _select(interpreter, active, after, carried)
    interpreter.enabled = outer
    return carried


def branch(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `scf.if`: one region if all programs agree, both if they do not or the condition is not known yet."""
    (condition,) = operands
    then, otherwise = op.regions
    if not isinstance(condition, TapeSlot) and (condition.all() or not condition.any()):
        return interpreter.enter(then if condition.all() else otherwise, [])
    outer = interpreter.enabled
    interpreter.enabled = interpreter.both(outer, condition)
    yes = interpreter.enter(then, [])
    interpreter.enabled = interpreter.both(outer, interpreter.apply(_NOT, [condition])[0])
    no = interpreter.enter(otherwise, [])
    interpreter.enabled = outer
    return _select(interpreter, condition, yes, no)


def repeat(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Runs `scf.while` until no program continues."""
    if (postponed := interpreter.postpone_loop(op, operands, None)) is not None:
        return postponed
    before, after = op.regions
    outer, carried = interpreter.enabled, list(operands)
    running: Array | None = None
    results: Sequence[Value] = []
    while True:
        interpreter.enabled = interpreter.both(outer, running)
        condition, *passed = interpreter.enter(before, carried)
        results = passed if running is None else _select(interpreter, running, passed, results)
        running = condition if running is None else running & condition
        acting = running if interpreter.enabled is None else running & interpreter.enabled
        if not acting.any():
            interpreter.enabled = outer
            return results
        interpreter.enabled = interpreter.both(outer, running)
        carried = _select(interpreter, running, interpreter.enter(after, passed), carried)


def _select(interpreter: IRInterpreter, condition: Value, yes: Sequence[Value], no: Sequence[Value]) -> list[Value]:
    return [interpreter.select(condition, a, b) for a, b in zip(yes, no, strict=True)]


_MOVE = Rule(lambda offset, delta: offset + delta.astype(np.int64), any_operand)


def program_id(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Returns `tt.get_program_id` along the attribute `axis`."""
    axis, launch = op.attributes["axis"], interpreter.launch
    (x, y, _), programs = launch.grid, launch.programs
    ids = (programs % x, programs // x % y, programs // (x * y))[axis].astype(np.int32)
    return [ids[:1] if launch.grid[axis] == 1 else ids]


def advance(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Returns `tt.addptr`: a pointer moved by a number of elements."""
    pointer, delta = operands
    return [BufferPointer(pointer.buffer, interpreter.apply(_MOVE, [pointer.offset, delta])[0])]
