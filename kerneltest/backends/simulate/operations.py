"""The operations of Triton IR: what each computes, and the table with one line for each."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kerneltest.backends.simulate.interpreter import (
    AccessRequest,
    Action,
    BufferPointer,
    IRInterpreter,
    TapeSlot,
    Value,
)
from kerneltest.backends.simulate.ir import (
    Compute,
    Mask,
    Operation,
    Rule,
    Semantics,
    any_operand,
    dense_masks,
    undefined_logical,
    unsupported_failure,
)
from kerneltest.backends.simulate.memory import MemoryAccess, program_coordinates, uninitialised_value
from kerneltest.core.details import Access
from kerneltest.core.dtypes import Array
from kerneltest.core.precision import FLOAT32, SIMULATED
from kerneltest.numerics import device_operations as device
from kerneltest.trace.primitives import PRIMITIVES

# Elementwise arithmetic, comparisons and casts, with the results that devices give.


def _undefined_select(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
    """Returns the undefined elements of a selection, in which the operand that is not chosen does not matter."""
    chosen = np.where(values[0], *(np.False_ if mask is None else mask for mask in masks[1:]))
    return chosen if masks[0] is None else chosen | masks[0]


_ORDERS = (np.less, np.less_equal, np.greater, np.greater_equal)
# By number: eq ne slt sle sgt sge ult ule ugt uge.
_INTEGER_COMPARISONS: tuple[Compute, ...] = (
    np.equal,
    np.not_equal,
    *_ORDERS,
    *(lambda a, b, holds=holds: holds(device.unsigned_view(a), device.unsigned_view(b)) for holds in _ORDERS),
)


_RELATIONS = (np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal)


def _with_nan(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _always(holds: bool) -> Compute:
    return lambda a, b: np.full(np.broadcast_shapes(a.shape, b.shape), holds)


# By number: false oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno true. All are ordered, or else hold for NaN.
_FLOAT_COMPARISONS: tuple[Compute, ...] = (
    _always(False),
    *(lambda a, b, holds=holds: holds(a, b) & ~_with_nan(a, b) for holds in _RELATIONS),
    lambda a, b: ~_with_nan(a, b),
    *(lambda a, b, holds=holds: holds(a, b) | _with_nan(a, b) for holds in _RELATIONS),
    _with_nan,
    _always(True),
)


def _extend(dtype: np.dtype, *, signed: bool) -> Compute:
    """Returns a conversion to a wider integer that extends the sign, so that true becomes -1; or with zeros."""
    if signed:
        return lambda x: (-x.astype(np.int8) if x.dtype == np.bool_ else x).astype(dtype)
    wide = device.unsigned_view(np.empty(0, dtype)).dtype
    return lambda x: x.astype(dtype) if x.dtype == np.bool_ else device.unsigned_view(x).astype(wide).view(dtype)


def _to_float(dtype: np.dtype, *, signed: bool) -> Compute:
    """Returns a conversion of integers to floats, rounding to nearest; true becomes -1 if it is signed."""
    by_float32 = dtype.kind != "f"  # the only way to the formats of ml_dtypes; a GPU converts to float16 directly

    def convert(x: Array) -> Array:
        numbers = _extend(np.dtype(np.int8), signed=True)(x) if x.dtype == np.bool_ and signed else x
        return device.integer_to_float(numbers if signed else device.unsigned_view(x), dtype, by_float32=by_float32)

    return convert


def _to_integer(dtype: np.dtype, *, signed: bool) -> Compute:
    """Returns a conversion of floats that rounds towards zero, saturates and maps NaN to 0."""
    wanted = dtype if signed else device.unsigned_view(np.empty(0, dtype)).dtype
    return lambda x: x != 0 if dtype == np.bool_ else device.float_to_integer(x, wanted).view(dtype)


def _bitcast(dtype: np.dtype) -> Compute:
    return lambda x: x if x.dtype == dtype else np.ascontiguousarray(x).view(dtype)


# Mathematical functions, by their names in MLIR and in the vendors' libraries.


# Functions of real numbers, computed in float64 and rounded once. A device's own error is not modelled.
_SAME = """abs ceil floor sqrt cbrt rsqrt exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh asinh
    acosh atanh erf atan2""".split()
_REAL: Mapping[str, Compute] = {
    **{name: function for name in _SAME if (function := PRIMITIVES[name].numpy) is not None},
    **dict.fromkeys(("fabs", "absf"), np.abs),
    **dict.fromkeys(("roundeven", "rint"), np.rint),
    **dict.fromkeys(("pow", "powf", "powi", "pown", "fpowi"), device.power),
    "round": device.round_away,
    "trunc": np.trunc,
    "log10": np.log10,
    "fast_tanhf": np.tanh,
    "fast_expf": np.exp,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "fma": lambda a, b, c: a * b + c,
}

# Functions of integers and of bit patterns, in the operands' dtype.
_INTEGER: Mapping[str, Compute] = {
    **dict.fromkeys(("absi", "llabs"), np.abs),
    "nextafter": np.nextafter,
    **dict.fromkeys(("ctlz", "clz", "clzll"), device.leading_zeros),
    **dict.fromkeys(("ctpop", "popc", "popcll"), device.count_ones),
}

# Each is NAME in `math.NAME`.
NAMES = (*_REAL, *_INTEGER)


def _external(op: Operation) -> Rule:
    """Returns the vendor's function that `symbol` names; a Failure, `unavailable`, if it is not supported."""
    name = plain_name(op.attributes["symbol"])
    if name not in NAMES:
        raise unsupported_failure(f"function {name}", op.place)
    return _function(name, op.types[0].dtype)


def _function(name: str, dtype: np.dtype) -> Rule:
    if name in _INTEGER or (name == "abs" and dtype.kind == "i"):
        integer = _INTEGER.get(name, np.abs)
        return Rule(lambda *operands: integer(*operands).astype(dtype), any_operand)
    real = _REAL[name]
    return Rule(lambda *operands: real(*(x.astype(np.float64) for x in operands)).astype(dtype), any_operand)


def plain_name(symbol: str) -> str:
    """Returns the name of a function without a vendor's affixes: `exp` for `__nv_expf` and for `__ocml_exp_f32`."""
    for prefix in ("__nv_", "__ocml_", "__ockl_", "__triton_hip_"):
        symbol = symbol.removeprefix(prefix)
    for suffix in ("_f64", "_f32", "_f16", "_u32", "_u64"):
        symbol = symbol.removesuffix(suffix)
    symbol = {"popcount": "popc", "powif": "powi"}.get(symbol, symbol)
    return symbol if symbol in NAMES else symbol.removesuffix("f")


# Operations that move the elements of a tensor, reductions, scans and matrix products.


def _reshape(op: Operation) -> Compute:
    before, after = op.operand_types[0].shape, op.types[0].shape
    return lambda x: _full(x, before).reshape(x.shape[0], *after)


def _split(op: Operation) -> Compute:
    shape = op.operand_types[0].shape

    def halves(x: Array) -> tuple[Array, Array]:
        whole = _full(x, shape)
        return whole[..., 0], whole[..., 1]

    return halves


def _concatenate(op: Operation) -> Compute:
    first, second = (operand.shape for operand in op.operand_types)

    def joined(a: Array, b: Array) -> Array:
        programs = max(len(a), len(b))
        return np.concatenate([_full(a, first, programs), _full(b, second, programs)], 1)

    return joined


def _full(x: Array, shape: tuple[int, ...], programs: int = 0) -> Array:
    return np.broadcast_to(x, (programs or x.shape[0], *shape))


def _constant(op: Operation) -> Compute:
    """Returns the attribute `value`: a number for all elements, or an array."""
    (result,), value = op.types, op.attributes["value"]
    if isinstance(value, np.ndarray):
        return lambda: value.astype(result.dtype)[None]
    number = np.asarray(value, np.int64 if result.dtype.kind == "i" else None).astype(result.dtype)
    return lambda: number.reshape((1,) * (len(result.shape) + 1))


_DOT_INPUT = SIMULATED.dot_input["float32"]


def tf32(x: Array) -> Array:
    """Rounds float32 to the inputs of a TF32 product, ties away from zero, as measured on an H200."""
    dropped = FLOAT32.precision - _DOT_INPUT.precision
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(1 << (dropped - 1))) & np.uint32(-(1 << dropped) % 2**32)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def _dot(op: Operation) -> Rule:
    """Multiplies two matrices and adds a third one; floats are computed in float32 or wider."""
    dtype = op.types[0].dtype
    left, right, _ = (operand.shape for operand in op.operand_types)
    reduced = op.attributes.get("inputPrecision", 2) == 0  # TF32, TF32x3, IEEE, ...

    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b = _full(a, left), _full(b, right)
        if a.dtype == np.float32 and reduced:
            a, b = tf32(a), tf32(b)
        product = device.multiply_matrices(a, b, dtype)
        return np.asarray((product + c.astype(product.dtype)).astype(dtype))

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        a, b, c = dense_masks(values, masks)
        return a.any(axis=-1, keepdims=True) | b.any(axis=-2, keepdims=True) | c

    return Rule(compute, undefined)


def _reduce(op: Operation) -> Rule:
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


def _scan(op: Operation) -> Rule:
    """Combines each element with all before it, by doubling distances."""
    axis = op.attributes["axis"] + 1
    is_reversed = bool(op.attributes.get("reverse", False))
    combine = op.regions[0].function()
    length = op.operand_types[0].shape[axis - 1]

    def ordered(x: Array) -> Array:
        return np.flip(x, axis) if is_reversed else x

    def compute(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(ordered(_along(x, axis, length)) for x in np.broadcast_arrays(*operands))
        distance = 1
        while distance < length:
            head = (slice(None),) * axis + (slice(0, distance),)
            early = (slice(None),) * axis + (slice(0, length - distance),)
            late = (slice(None),) * axis + (slice(distance, None),)
            joined = combine(*(x[early] for x in parts), *(x[late] for x in parts))
            heads = [np.broadcast_to(x[head], (len(y), *x[head].shape[1:])) for x, y in zip(parts, joined, strict=True)]
            parts = tuple(map(partial(np.concatenate, axis=axis), zip(heads, joined, strict=True)))
            distance *= 2
        return tuple(map(ordered, parts))

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        mask = ordered(_along(any_operand(values, masks), axis, length))
        return ordered(np.logical_or.accumulate(mask, axis))

    return Rule(compute, undefined)


def _gather(op: Operation) -> Rule:
    axis, shape, result = op.attributes["axis"] + 1, op.operand_types[0].shape, op.types[0].shape

    def gather(x: Array, index: Array) -> Array:
        programs = max(len(x), len(index))
        where = np.clip(_full(index, result, programs), 0, shape[axis - 1] - 1)
        return np.asarray(np.take_along_axis(_full(x, shape, programs), where, axis))

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        elements, indices = dense_masks(values, masks)
        outside = (values[1] < 0) | (values[1] >= shape[axis - 1])
        return np.asarray(gather(elements, values[1]) | indices | outside)

    return Rule(gather, undefined, partial=True)


def _histogram(op: Operation) -> Rule:
    """Counts how often each of the numbers from 0 occurs, where a mask holds if there is one."""
    (bins,), shape = op.types[0].shape, op.operand_types[0].shape

    def inside(x: Array) -> Array:
        return np.asarray((x >= 0) & (x < bins))

    def count(x: Array, mask: Array | None = None) -> Array:
        programs = len(x) if mask is None else max(len(x), len(mask))
        counted = inside(_full(x, shape, programs)) & (True if mask is None else _full(mask, shape, programs))
        rows = zip(_full(x, shape, programs), counted, strict=True)
        return np.stack([np.bincount(row[keep], minlength=bins) for row, keep in rows]).astype(op.types[0].dtype)

    def undefined(values: Sequence[Array], masks: Sequence[Mask]) -> Array:
        numbers, *unknown = dense_masks(values, masks)
        bad = numbers | ~inside(values[0])
        for mask, undefined_mask in zip(values[1:], unknown, strict=True):
            bad = (bad & mask) | undefined_mask
        return np.asarray(bad.any(axis=1, keepdims=True))

    return Rule(count, undefined, partial=True)


def _high_product(a: Array, b: Array) -> Array:
    """Returns the upper half of the product of two unsigned integers."""
    x, y = (device.unsigned_view(operand) for operand in (a, b))
    bits = 8 * x.dtype.itemsize
    wide = np.uint64 if bits == 32 else object
    product = x.astype(wide) * y.astype(wide)
    upper = product >> (np.uint64(bits) if bits == 32 else bits)
    return np.asarray(upper.astype(x.dtype).view(a.dtype))


def _clamp(op: Operation) -> Rule:
    """Returns the operand within two bounds; NaN becomes the lower bound unless it is propagated."""
    low, high = (np.maximum, np.minimum) if op.attributes.get("propagateNan") else (np.fmax, np.fmin)
    return Rule(lambda x, least, most: high(low(x, least), most), any_operand)


def _along(x: Array, axis: int, length: int) -> Array:
    return x if x.shape[axis] == length else np.repeat(x, length, axis)


# Loads, stores and atomic operations: the elements that they access, and their effects on the buffer.


def _run_load(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    pointer, *rest = operands
    has_mask, has_other = op.attributes.get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[1:]
    mask = rest[0] if has_mask else None
    request = AccessRequest(op, Access.LOAD, _load, pointer, mask, rest[-1:] if has_other else [])
    return [interpreter.access(request)]


def _writing(kind: Access, action_of: Callable[[Operation], Action], values: int = 1) -> Callable[..., Sequence[Value]]:
    # Runs an access that takes some values, and a mask if there is one.
    def run(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
        pointer, *rest = operands
        mask = rest[values] if len(rest) > values else None
        before = interpreter.access(AccessRequest(op, kind, action_of(op), pointer, mask, rest[:values]))
        return [before] if op.results else []

    return run


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
    if not inside.any():  # the memory may be that of an input
        return values, None
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
        undefined = np.zeros(inside.shape, bool) if unread is None else unread & inside
        rows = buffer.copies, -1
        spread = [np.broadcast_to(operand, inside.shape).reshape(rows) for operand in operands]
        data = buffer.data.view(spread[0].dtype)  # the pointer may have been cast: floats are compared by their bits
        before = np.zeros((buffer.copies, spread[0].shape[1]), data.dtype)
        positions, lanes, unsure = (x.reshape(rows) for x in (access.positions, inside, undefined))
        for lane in np.flatnonzero(lanes.any(0)):
            at, acts = positions[:, lane], lanes[:, lane]
            before[:, lane] = old = np.where(acts, data[at], 0)
            data[at[acts]] = update(old, *(operand[:, lane] for operand in spread))[acts]
            if buffer.undefined is not None:
                unsure[:, lane] |= buffer.undefined[at] & acts
        known = [mask for mask in masks if mask is not None]
        if known or undefined.any():
            if buffer.undefined is None:
                buffer.undefined = np.zeros(buffer.data.size, bool)
            bad = functools.reduce(np.logical_or, known, undefined)
            buffer.undefined[access.positions[inside & bad]] = True
        return before.reshape(inside.shape), undefined if undefined.any() else None

    return act


# Writes to elements that hold the expected value.
_EXCHANGE = _atomic(lambda old, expected, new: np.asarray(np.where(old == expected, new, old)))


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


FLOAT_ADD = 5
# By Triton's number of the operation.
_RMW: Mapping[int, Compute] = {
    **{
        number: device.UPDATES[name]
        for number, name in ((1, "and"), (2, "or"), (3, "xor"), (4, "add"), (6, "max"), (7, "min"))
    },
    **{number: device.as_unsigned(device.UPDATES[name]) for number, name in ((8, "max"), (9, "min"))},
    FLOAT_ADD: _add_floats,
    10: lambda old, new: new,
}


# Control flow: all programs run every branch and iteration that any of them takes, with those that do not disabled.

_NOT = Rule(np.logical_not, any_operand)


def _loop(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
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


def _branch(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
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


def _repeat(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
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


def _program_id(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    axis, launch = op.attributes["axis"], interpreter.launch
    ids = program_coordinates(launch.grid, launch.programs)[axis].astype(np.int32)
    return [ids[:1] if launch.grid[axis] == 1 else ids]


def _advance(interpreter: IRInterpreter, op: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    """Returns `tt.addptr`: a pointer moved by a number of elements."""
    pointer, delta = operands
    return [BufferPointer(pointer.buffer, interpreter.apply(_MOVE, [pointer.offset, delta])[0])]


# The table.


def _elementwise(
    compute: Compute, undefined: Callable[[Sequence[Array], Sequence[Mask]], Array] = any_operand
) -> Semantics:
    rule = Rule(compute, undefined)
    return Semantics(lambda op: rule, bare=True)


def _modulo_two(compute: Compute) -> Compute:
    # NumPy's sum of two booleans is "or", and they have no difference.
    return lambda x, y: np.bitwise_xor(x, y) if x.dtype == np.bool_ else compute(x, y)


def _cast(make: Callable[[np.dtype], Compute]) -> Semantics:
    return Semantics(lambda op: Rule(make(op.types[0].dtype), any_operand), bare=True)


def _movement(make: Callable[[Operation], Compute], *, bare: bool = False) -> Semantics:
    # Returns the semantics of an operation that moves masks of undefined elements as it moves the elements.

    def rule(op: Operation) -> Rule:
        compute = make(op)
        return Rule(compute, lambda values, masks: compute(*dense_masks(values, masks)))

    return Semantics(rule, bare=bare)


OPERATIONS: Mapping[str, Semantics] = {
    # Numbers. i1 is bool.
    "arith.addi": _elementwise(_modulo_two(np.add)),
    "arith.subi": _elementwise(_modulo_two(np.subtract)),
    "arith.muli": _elementwise(np.multiply),
    "arith.divsi": _elementwise(device.divide),
    "arith.divui": _elementwise(device.as_unsigned(device.divide)),
    "arith.remsi": _elementwise(device.remainder),
    "arith.remui": _elementwise(device.as_unsigned(device.remainder)),
    "arith.maxsi": _elementwise(np.maximum),
    "arith.minsi": _elementwise(np.minimum),
    "arith.maxui": _elementwise(device.as_unsigned(np.maximum)),
    "arith.minui": _elementwise(device.as_unsigned(np.minimum)),
    "arith.andi": _elementwise(np.bitwise_and, undefined_logical(determining=False)),
    "arith.ori": _elementwise(np.bitwise_or, undefined_logical(determining=True)),
    "arith.xori": _elementwise(np.bitwise_xor),
    "arith.shli": _elementwise(device.shift_left),
    "arith.shrsi": _elementwise(device.shift_right_arithmetic),
    "arith.shrui": _elementwise(device.shift_right_logical),
    "arith.addf": _elementwise(np.add),
    "arith.subf": _elementwise(np.subtract),
    "arith.mulf": _elementwise(np.multiply),
    "arith.divf": _elementwise(np.divide),
    "arith.remf": _elementwise(np.fmod),
    "arith.negf": _elementwise(np.negative),
    # IEEE 754's maximum keeps a NaN; its maxNum, which GPUs have, returns the other operand.
    "arith.maximumf": _elementwise(np.maximum),
    "arith.minimumf": _elementwise(np.minimum),
    "arith.maxnumf": _elementwise(np.fmax),
    "arith.minnumf": _elementwise(np.fmin),
    "arith.cmpi": Semantics(lambda op: Rule(_INTEGER_COMPARISONS[op.attributes["predicate"]], any_operand)),
    "arith.cmpf": Semantics(lambda op: Rule(_FLOAT_COMPARISONS[op.attributes["predicate"]], any_operand)),
    "arith.select": _elementwise(np.where, _undefined_select),
    **dict.fromkeys(
        (f"math.{name}" for name in NAMES),
        Semantics(lambda op: _function(op.name.removeprefix("math."), op.types[0].dtype), bare=True),
    ),
    "tt.extern_elementwise": Semantics(_external),
    "tt.precise_sqrt": _elementwise(np.sqrt),
    "tt.precise_divf": _elementwise(np.divide),
    "tt.mulhiui": _elementwise(_high_product),
    "tt.clampf": Semantics(_clamp),
    # Dtypes.
    **dict.fromkeys(("arith.extf", "arith.truncf", "tt.fp_to_fp"), _cast(lambda dtype: lambda x: x.astype(dtype))),
    "arith.extsi": _cast(partial(_extend, signed=True)),
    "arith.extui": _cast(partial(_extend, signed=False)),
    "arith.trunci": _cast(lambda to: lambda x: (x & 1).astype(np.bool_) if to == np.bool_ else x.astype(to)),
    "arith.index_cast": _cast(lambda dtype: lambda x: x.astype(dtype)),
    "arith.index_castui": _cast(partial(_extend, signed=False)),
    "arith.sitofp": _cast(partial(_to_float, signed=True)),
    "arith.uitofp": _cast(partial(_to_float, signed=False)),
    "arith.fptosi": _cast(partial(_to_integer, signed=True)),
    "arith.fptoui": _cast(partial(_to_integer, signed=False)),
    "arith.bitcast": _cast(_bitcast),
    "tt.bitcast": replace(
        _cast(_bitcast), execute=lambda it, op, xs: xs if isinstance(xs[0], BufferPointer) else it.compute(op, xs)
    ),
    # Shapes and constants. An axis along which values are the same may have length 1.
    "tt.splat": _movement(lambda op: lambda x: x.reshape(x.shape[0], *(1,) * len(op.types[0].shape)), bare=True),
    "tt.broadcast": _movement(lambda op: lambda x: x, bare=True),
    "tt.expand_dims": _movement(lambda op: lambda x: np.expand_dims(x, op.attributes["axis"] + 1)),
    "tt.reshape": _movement(_reshape, bare=True),
    "tt.trans": _movement(lambda op: lambda x: x.transpose(0, *(axis + 1 for axis in op.attributes["order"]))),
    "tt.join": _movement(lambda op: lambda a, b: np.stack(np.broadcast_arrays(a, b), axis=-1), bare=True),
    "tt.split": _movement(_split, bare=True),
    "tt.cat": _movement(_concatenate, bare=True),
    "arith.constant": _movement(_constant),
    "tt.make_range": _movement(
        lambda op: lambda: np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)[None]
    ),
    # Along an axis.
    "tt.dot": Semantics(_dot),
    "tt.reduce": Semantics(_reduce),
    "tt.scan": Semantics(_scan),
    "tt.gather": Semantics(_gather),
    "tt.histogram": Semantics(_histogram),
    # Programs and their memory. Programs run in lockstep, so that a barrier has nothing to do.
    "tt.get_program_id": Semantics(execute=_program_id),
    "tt.get_num_programs": Semantics(
        execute=lambda it, op, _: [np.full(1, it.launch.grid[op.attributes["axis"]], np.int32)]
    ),
    "tt.addptr": Semantics(execute=_advance, bare=True),
    "tt.load": Semantics(execute=_run_load),
    "tt.store": Semantics(execute=_writing(Access.STORE, lambda op: _store), has_effect=True),
    "tt.atomic_rmw": Semantics(
        lambda op: Rule(_RMW[op.attributes["atomic_rmw_op"]], any_operand),
        _writing(Access.ATOMIC, lambda op: _atomic(op.semantics.rule(op).compute)),
        has_effect=True,
    ),
    "tt.atomic_cas": Semantics(execute=_writing(Access.ATOMIC, lambda op: _EXCHANGE, values=2), has_effect=True),
    **dict.fromkeys(
        ("tt.print", "tt.assert", "gpu.barrier", "tt.debug_barrier"),
        Semantics(execute=lambda interpreter, op, operands: [], has_effect=True),
    ),
    # Control flow.
    "scf.for": Semantics(execute=_loop),
    "scf.if": Semantics(execute=_branch),
    "scf.while": Semantics(execute=_repeat),
}
