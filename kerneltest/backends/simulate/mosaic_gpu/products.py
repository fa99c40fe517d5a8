"""Integers, vectors, matrix products and tensor memory of the Mosaic GPU dialect.

Integers are Python's, and vectors are arrays, which nothing writes to. Arithmetic is that of the Triton simulator's
table.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.simulate.ir import Operation, unsupported_failure
from kerneltest.backends.simulate.mosaic_gpu.machine import TMEM_ROW_BYTES, TMEM_ROWS, Block, Flight, Thread
from kerneltest.backends.simulate.mosaic_gpu.memory import Agent, Layout, Ref
from kerneltest.backends.simulate.operations import tf32
from kerneltest.core.details import Access, Race, Visit
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict
from kerneltest.numerics.device_operations import multiply_matrices

Function = Callable[..., Any]
Make = Callable[[Operation], Function]


def is_integer_operation(op: Operation) -> bool:
    """Returns whether an operation is arithmetic that has no vectors and no floats."""
    kinds = [*op.operand_types, *op.types]
    return (
        op.name.startswith("arith.") and bool(op.operands) and not any(k.shape or k.dtype.kind in "fV" for k in kinds)
    )


def integer_function(op: Operation) -> Function:
    """Returns the function of integers. Programs and loops call it with few different ones."""
    compute, kinds = op.semantics.rule(op).compute, [kind.dtype.type for kind in op.operand_types]

    @lru_cache(2**12)
    def function(*operands: int) -> Any:
        return compute(*[kind(x) for kind, x in zip(kinds, operands, strict=True)]).item()

    return function


def integers_by_lane(op: Operation, operands: Sequence[Any]) -> Array:
    """Returns the results of an integer operation for arrays of operands."""
    pairs = zip(operands, op.operand_types, strict=True)
    return np.asarray(op.semantics.rule(op).compute(*(np.asarray(x, kind.dtype) for x, kind in pairs)))


def elementwise_function(op: Operation) -> Function:
    """Returns the function of vectors or floats, by the rule of the Triton simulator's table."""
    kinds, kind = op.operand_types, op.types[0]
    to_float8 = op.name == "arith.truncf" and kind.dtype.itemsize == 1
    compute = partial(_to_float8, dtype=kind.dtype) if to_float8 else op.semantics.rule(op).compute

    def function(*operands: Any) -> Any:
        arrays = [np.asarray(x, kind.dtype) for x, kind in zip(operands, kinds, strict=True)]
        return _plain(np.asarray(compute(*arrays), kind.dtype), op)

    return function


def _to_float8(x: Array, dtype: np.dtype) -> Array:
    # PTX cvt.satfinite: what is too large becomes the largest finite number. Scales are rounded up, without a sign.
    wide = x.astype(np.float64)
    if dtype == ml_dtypes.float8_e8m0fnu:
        fraction, exponent = np.frexp(np.abs(wide))
        power = np.where(wide == 0, -127, exponent - (fraction == 0.5))
        wide = np.where(np.isfinite(wide), np.ldexp(1.0, np.clip(power, -127, 127)), np.abs(wide))
    largest = float(ml_dtypes.finfo(dtype).max)
    return np.asarray(np.clip(wide, -largest, largest).astype(dtype))


def _plain(result: Array, op: Operation) -> Any:
    return result.item() if not op.types[0].shape and op.types[0].dtype.kind in "ib" else result


def constant(op: Operation) -> Any:
    """Returns the value of a constant."""
    kind, value = op.types[0], op.attributes["value"]
    if isinstance(value, str):
        raise unsupported_failure(f"the constant {value}", op.place)
    return _plain(np.broadcast_to(np.asarray(value).astype(kind.dtype), kind.shape), op)


def _broadcast_in_dim(op: Operation) -> Function:
    axes, shape = op.attributes["broadcast_dimensions"], op.types[0].shape
    own = dict(zip(axes, op.operand_types[0].shape, strict=True))
    return lambda x: np.broadcast_to(x.reshape([own.get(axis, 1) for axis in range(len(shape))]), shape)


def _strided(op: Operation) -> Function:
    key = tuple(slice(o, o + n) for o, n in zip(op.attributes["offsets"], op.attributes["sizes"], strict=True))
    return lambda x: x[key]


def _insert(op: Operation) -> Function:
    def compute(part: Array, whole: Array) -> Array:
        result = whole.copy()
        result[tuple(slice(o, o + n) for o, n in zip(op.attributes["offsets"], part.shape, strict=True))] = part
        return result

    return compute


_REDUCTIONS: Mapping[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "minui": np.minimum, "minsi": np.minimum, "maxui": np.maximum,
    "maxsi": np.maximum, "maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin,
}  # fmt: skip


def _reduction(op: Operation) -> Function:
    found = re.search(r"kind<(\w+)>", op.attributes["kind"])
    if found is None or found[1] not in _REDUCTIONS:
        raise unsupported_failure(f"a reduction by {op.attributes['kind']}", op.place)
    ufunc, dtype = _REDUCTIONS[found[1]], op.types[0].dtype
    wide = dtype if dtype.kind in "ib" else np.result_type(dtype, np.float32)
    if found[1].endswith("ui") and dtype.kind == "i":
        wide = np.dtype(f"u{dtype}")

    def compute(x: Array, start: Any = None) -> Any:
        result = ufunc.reduce(x.astype(wide), axis=op.attributes.get("reduction_dims"))
        if start is not None:
            result = ufunc(result, np.asarray(start, dtype).astype(wide))
        return _plain(np.asarray(result).astype(dtype), op)

    return compute


def _iota(op: Operation) -> Function:
    kind, axis = op.types[0], op.attributes["dimension"]
    line = np.arange(kind.shape[axis]).astype(kind.dtype)
    array = np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(kind.shape))]), kind.shape)
    return lambda: array


_ALONE = 2**18  # multiplications that OpenBLAS does in one thread; waking others takes longer than the product


def product(a: Array, b: Array, dtype: np.dtype) -> Array:
    """Returns a product of matrices for a sum in a dtype: floats in float32 or wider, unrounded."""
    if a.dtype == np.float32:
        a, b = tf32(a), tf32(b)
    rows = max(1, _ALONE // b.size)
    return np.concatenate([multiply_matrices(a[i : i + rows], b, dtype) for i in range(0, len(a), rows)])


def _multiply_add(op: Operation) -> Function:
    def compute(accumulator: Array, a: Array, b: Array) -> Array:
        added = product(a, b, op.types[0].dtype)
        return np.asarray((added + accumulator.astype(added.dtype)).astype(op.types[0].dtype))

    return compute


VECTORS: Mapping[str, Make] = {
    "vector.broadcast": lambda op: (
        lambda x: np.broadcast_to(np.asarray(x).astype(op.types[0].dtype), op.types[0].shape)
    ),
    "vector.shape_cast": lambda op: lambda x: x.reshape(op.types[0].shape),
    "vector.extract_strided_slice": _strided,
    "vector.insert_strided_slice": _insert,
    "vector.extract": lambda op: lambda x: _plain(x[op.attributes["static_position"]], op),
    "vector.reduction": _reduction,
    "vector.multi_reduction": _reduction,
    "mosaic_gpu.broadcast_in_dim": _broadcast_in_dim,
    "mosaic_gpu.broadcasted_iota": _iota,
    "mosaic_gpu.vector_concat": lambda op: lambda *parts: np.concatenate(parts, axis=op.attributes["dimension"]),
    "mosaic_gpu.layout_cast": lambda op: lambda x: x,
    "mosaic_gpu.mma": _multiply_add,
}


# Accesses, and groups of asynchronous work.


def use(thread: Thread, value: Any, place: str) -> None:
    """Checks that a vector is not the accumulator of a product under way."""
    flight = thread.pending.get(id(value))
    if flight is None:
        return
    visits = (
        Visit(Access.LOAD, thread.program, place, thread.who),
        Visit(Access.STORE, thread.program, flight.place, flight.agent.who),
    )
    words = f"an accumulator is {visits[0].text()} before plgpu.wgmma_wait, while it is {visits[1].text()}"
    thread.block.cluster.faults.add(Verdict.RACE, Race("", "an accumulator", "", visits, words))
    flight.complete()


def load(thread: Thread, op: Operation, ref: Ref) -> Array:
    """Returns the elements of a reference that a thread reads."""
    ref.check(thread, Access.LOAD, op.place)
    return ref.layout.load(ref.memory.data)


def write(thread: Thread, agent: Agent, op: Operation, values: Array, ref: Ref) -> None:
    """Sets the elements of a reference, for a thread or what it has started."""
    use(thread, values, op.place)
    ref.check(agent, Access.STORE, op.place)
    ref.layout.store(ref.memory.data, values.astype(ref.layout.dtype))


def segments(op: Operation, operands: Sequence[Any]) -> list[Sequence[Any]]:
    """Returns an operation's operands in its segments."""
    ends = np.cumsum(op.attributes["operandSegmentSizes"]).tolist()
    return [operands[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def finish(thread: Thread, groups: list[list[Flight]], keep: int) -> int:
    """Returns the events of the writes of all committed groups but the last `keep`, for which it waits."""
    writes = 0
    while len(groups) - 1 > keep:
        for flight in groups.pop(0):
            flight.complete()
            thread.known |= flight.agent.event
            writes |= flight.writes
    return writes


# By wgmma, then by tcgen05.


def wgmma(thread: Thread, op: Operation, before: Array, a: Any, b: Ref, *_: Any) -> Array:
    """Starts a product by wgmma, and returns its accumulator, which is complete after a wait."""
    agent = thread.block.cluster.operation(thread, "wgmma", op.place)
    for flight in chain.from_iterable(thread.products):  # the products of a thread follow each other
        agent.known |= flight.agent.event
    _check_reads(agent, op, a, b)
    result = np.empty(before.shape, op.types[0].dtype)
    earlier = thread.pending.get(id(before))

    def apply() -> None:
        left, right = (x.layout.load(x.memory.data) if isinstance(x, Ref) else x for x in (a, b))
        added = product(left, right, result.dtype)
        result[...] = added + before.astype(added.dtype)

    flight = Flight(agent, apply, op.place, before=(earlier,) if earlier else ())
    thread.pending[id(result)] = flight
    thread.products[-1].append(flight)
    thread.start(flight)
    return result


def _check_reads(agent: Agent, op: Operation, *references: Any) -> None:
    for ref in references:
        if isinstance(ref, Ref):
            ref.check(agent, Access.LOAD, op.place)


def commit_products(thread: Thread) -> None:
    """Commits the products of a thread."""
    # JAX documents that plgpu.wgmma waits for the products before it (Pallas:Mosaic GPU reference, "Waiting for the
    # operation to complete"), and its own kernels rely on that.
    thread.products.append([])
    wait_products(thread, keep=1)


def wait_products(thread: Thread, keep: int) -> None:
    """Waits for all but the last `keep` groups of products."""
    finish(thread, thread.products, keep)
    under_way = {id(flight) for group in thread.products for flight in group}
    thread.pending = {key: flight for key, flight in thread.pending.items() if id(flight) in under_way}


def tensor_memory(thread: Thread, op: Operation, *_: Any) -> Ref:
    """Returns a part of tensor memory."""
    kind, layouts = op.types[0], thread.block.cluster.shape.layouts
    scales = kind.dtype.itemsize == 1
    if len(kind.shape) != 2 or (kind.shape[0] > TMEM_ROWS and not scales):
        raise unsupported_failure(f"tensor memory of shape {kind.shape}", op.place)
    if op.results not in layouts:
        start = 4 * op.attributes.get("offset", 0)  # in columns of 32 bits
        rows, columns = np.arange(kind.shape[0])[:, None], np.arange(kind.shape[1])
        if scales:  # each column has those of 32 rows, and 4 along the contracted axis
            words = (rows // 128 * (kind.shape[1] // 4) + columns // 4) * 4 + rows % 128 // 32
            at = rows % 32 * TMEM_ROW_BYTES + start + words * 4 + columns % 4
        else:
            at = (rows * TMEM_ROW_BYTES + start) // kind.dtype.itemsize + columns
        layouts[op.results] = Layout(at, kind.dtype)
    return Ref(thread.block.tensor, layouts[op.results])


def tensor_product(thread: Thread, op: Operation, *operands: Any) -> None:
    """Starts a product by tcgen05."""
    (out,), (a,), (b,), (accumulates,), a_scale, b_scale, *others = [*segments(op, operands), (), ()]
    blocks = _blocks_of_product(thread, op)
    if any(map(len, others)):
        raise unsupported_failure("a product with sparse operands", op.place)
    if len(blocks) > 1 and out.layout.shape[0] != TMEM_ROWS:
        raise unsupported_failure("a product of two blocks with fewer than 256 rows", op.place)
    # Each block has its rows of `out` and `a`, its columns of `b`, and the scales of its rows and of all columns.
    outs, lefts, rights = ([_in_block(thread, block, ref) for block in blocks] for ref in (out, a, b))
    scales = [[_in_block(thread, block, ref) for ref in (*a_scale, *b_scale)] for block in blocks]
    agent = thread.block.cluster.operation(thread, "tcgen05_mma", op.place)
    issued = thread.issued[0]
    agent.known |= issued.tensor_events  # what a thread starts on the tensor core follows what it started before
    for left, right, scale, result in zip(lefts, rights, scales, outs, strict=True):
        _check_reads(agent, op, left, right, *scale, result if accumulates else None)
        result.check(agent, Access.STORE, op.place)

    def apply() -> None:
        all_columns = np.concatenate([right.layout.load(right.memory.data) for right in rights], axis=1)
        for left, scale, ref in zip(lefts, scales, outs, strict=True):
            rows, columns = left.layout.load(left.memory.data), all_columns
            if scale:
                rows, columns = _scaled(rows, scale[0]), _scaled(columns.T, scale[1]).T
            result = product(rows, columns, ref.layout.dtype)
            if accumulates:
                result = result + ref.layout.load(ref.memory.data).astype(result.dtype)
            ref.layout.store(ref.memory.data, result.astype(ref.layout.dtype))

    _start_on_tensor_core(thread, Flight(agent, apply, op.place, before=issued.tensor))


def _start_on_tensor_core(thread: Thread, flight: Flight) -> None:
    issued = thread.issued[0]
    issued.tensor = (flight,)
    issued.tensor_events |= flight.agent.event
    thread.start(flight)


def _scaled(values: Array, scales: Ref) -> Array:
    # Rows with a scale for each block of elements; the products are exact.
    factors = scales.layout.load(scales.memory.data)[: len(values)].astype(np.float64)
    return np.asarray(values.astype(np.float64) * np.repeat(factors, values.shape[1] // factors.shape[1], axis=1))


def store_scales(thread: Thread, op: Operation, ref: Ref, target: Ref) -> None:
    """Starts a copy of scales to tensor memory."""
    agent, issued = thread.block.cluster.operation(thread, "a copy of scales", op.place), thread.issued[0]
    agent.known |= issued.tensor_events
    pairs = [[_in_block(thread, block, each) for each in (ref, target)] for block in _blocks_of_product(thread, op)]
    for source, scales in pairs:
        _check_reads(agent, op, source)
        scales.check(agent, Access.COPY, op.place)

    def apply() -> None:
        # From tiles of 32 x 16: the rows that are a multiple of 32 apart, and 4 along the contracted axis, in a row.
        for source, scales in pairs:
            tiles = source.layout.load(source.memory.data)
            tiles = tiles.reshape(*tiles.shape[:3], 4, 4).transpose(0, 3, 2, 1, 4)
            scales.layout.store(scales.memory.data, tiles.reshape(scales.layout.shape))

    _start_on_tensor_core(thread, Flight(agent, apply, op.place, before=issued.tensor))


def _blocks_of_product(thread: Thread, op: Operation) -> list[Block]:
    # The blocks whose tensor cores work together: one, or two whose places along x differ in the last bit.
    if not op.attributes.get("collective"):
        return [thread.block]
    x, y, z = thread.block.rank
    return [thread.block.cluster.blocks[x - x % 2 + i, y, z] for i in range(2)]


def _in_block(thread: Thread, block: Block, ref: Ref) -> Ref:
    # The same part of the same memory in a block of the thread's cluster.
    memory = block.tensor if ref.memory is thread.block.tensor else block.shared
    return Ref(memory, ref.layout, ref.outside)


def commit_tensor(thread: Thread, op: Operation, address: int, predicate: bool = True) -> None:
    """Has a barrier signalled when what a thread has started on the tensor core is complete."""
    if predicate:
        issued, known = thread.issued[0], thread.release()
        for block in _blocks_of_product(thread, op):
            agent = thread.block.cluster.operation(thread, "tcgen05_commit_arrive", op.place)
            agent.event |= known | issued.tensor_events
            thread.start(Flight(agent, lambda: None, op.place, block.barriers[address], before=issued.tensor))


def load_tensor(thread: Thread, op: Operation, ref: Ref) -> Array:
    """Starts a load of tensor memory, and returns its elements."""
    agent = thread.block.cluster.operation(thread, "async_load_tmem", op.place)
    _check_reads(agent, op, ref)
    thread.moves["ld"] |= agent.event
    return ref.layout.load(ref.memory.data)


def store_tensor(thread: Thread, op: Operation, values: Array, ref: Ref) -> None:
    """Starts a store to tensor memory."""
    agent = thread.block.cluster.operation(thread, "async_store_tmem", op.place)
    agent.known |= thread.moves["st"]  # the stores of a thread follow each other
    thread.moves["st"] |= agent.event
    write(thread, agent, op, values, ref)


def wait_moves(thread: Thread, kind: str) -> None:
    """Waits for the loads or stores of tensor memory, `ld` or `st`."""
    thread.known |= thread.moves[kind]
    thread.moves[kind] = 0
