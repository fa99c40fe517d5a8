"""The operations of the Mosaic GPU dialect that the simulator supports, compiled to steps by one table.

A step executes an operation for one thread. Most are a function of the thread, the operation and the values of its
operands; an iterator that it returns yields what the thread waits for.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Region, unsupported_failure
from kerneltest.backends.simulate.memory import program_coordinates
from kerneltest.backends.simulate.mosaic_gpu.machine import Barrier, Block, Flight, Thread, Wait, run_together
from kerneltest.backends.simulate.mosaic_gpu.memory import Layout, Ref, tiled_layout
from kerneltest.backends.simulate.mosaic_gpu.products import (
    VECTORS,
    commit_products,
    commit_tensor,
    constant,
    elementwise_function,
    finish,
    integer_function,
    integers_by_lane,
    is_integer_operation,
    load,
    load_tensor,
    segments,
    store_scales,
    store_tensor,
    tensor_memory,
    tensor_product,
    use,
    wait_moves,
    wait_products,
    wgmma,
    write,
)
from kerneltest.core.details import Access
from kerneltest.core.dtypes import Array

Waits = Iterator[Wait] | None
Step = Callable[[Thread], Waits]


def run(thread: Thread, steps: Sequence[Step]) -> Iterator[Wait]:
    """Runs the steps of a region, and yields whenever the thread has to wait."""
    for step in steps:
        waiting = step(thread)
        if waiting is not None:
            yield from waiting


class Compiler:
    """Compiles regions to steps."""

    def __init__(self, values: int) -> None:
        self.constants: list[Any] = [None] * values  # those that need no step, by number
        self.definitions: dict[int, Operation] = {}  # of values, by number

    def region(self, region: Region) -> list[Step]:
        return [step for op in region.operations if (step := self._step(op)) is not None]

    def _step(self, op: Operation) -> Step | None:
        self.definitions.update(dict.fromkeys(op.results, op))
        if op.name == "arith.constant":
            self.constants[op.results[0]] = constant(op)
            return None
        if op.name in VECTORS:
            return _on_vectors(op, VECTORS[op.name](op))
        if is_integer_operation(op):
            return _pure(op, integer_function(op))
        if op.name.startswith(("arith.", "math.")):
            return _on_vectors(op, elementwise_function(op))
        if op.name in CODE:
            return CODE[op.name](self, op)
        if op.name not in TABLE:
            raise unsupported_failure(f"operation {op.name}", op.place)
        return _step_of(op, TABLE[op.name])

    def lanes(self, thread: Thread, number: int) -> Any:
        """Returns an integer that may depend on the hardware thread, as an array over a warpgroup's if it does."""
        op, own = self.definitions.get(number), thread.values[number]
        if op is not None and op.name == "gpu.thread_id":
            return own + np.arange(128) if op.attributes["dimension"].endswith("x>") else own
        if op is None or not is_integer_operation(op):
            return own
        parts = [self.lanes(thread, operand) for operand in op.operands]
        return integers_by_lane(op, parts) if any(isinstance(part, np.ndarray) for part in parts) else own


def _pure(op: Operation, function: Callable[..., Any]) -> Step:
    (out,), ins = op.results, op.operands

    def step(thread: Thread) -> None:
        values = thread.values
        values[out] = function(*[values[i] for i in ins])

    return step


def _on_vectors(op: Operation, function: Callable[..., Any]) -> Step:
    compute = _pure(op, function)

    def step(thread: Thread) -> None:
        if thread.pending:
            for number in op.operands:
                use(thread, thread.values[number], op.place)
        compute(thread)

    return step


def _step_of(op: Operation, execute: Callable[..., Any]) -> Step:
    ins, outs = op.operands, op.results

    def step(thread: Thread) -> Waits:
        values = thread.values
        result = execute(thread, op, *[values[i] for i in ins])
        if not outs:
            waits: Waits = result
            return waits
        _set(thread, outs, result if len(outs) > 1 else (result,))
        return None

    return step


def _set(thread: Thread, numbers: Sequence[int], values: Sequence[Any]) -> None:
    for number, value in zip(numbers, values, strict=True):
        thread.values[number] = value


# References.


def _slice_shared(thread: Thread, op: Operation) -> Any:
    kind, offset = op.types[0], op.attributes["offset"]
    if kind.dtype == object:  # barriers: their address
        return offset
    layouts = thread.block.cluster.shape.layouts
    if op.results not in layouts:
        tile, swizzle = _transforms_of(op.attributes.get("out_transforms", ""), op.place)
        layouts[op.results] = tiled_layout(kind.shape, kind.dtype, offset, tile, swizzle)
    return Ref(thread.block.shared, layouts[op.results])


_TRANSFORM = re.compile(r"tile<\[([^\]]*)\]>|swizzle<(\d+)")


def _transforms_of(attribute: str, place: str) -> tuple[tuple[int, ...], int]:
    # The tile, () for none, and the swizzle in bytes of a reference to shared memory.
    tile: tuple[int, ...] = ()
    swizzle = 16
    for lengths, width in _TRANSFORM.findall(attribute):
        if lengths and tile:
            raise unsupported_failure("memory that is tiled twice", place)
        tile, swizzle = (tuple(map(int, lengths.split(","))), swizzle) if lengths else (tile, int(width))
    return tile, swizzle


_DYNAMIC = -(2**63)


def _subview(thread: Thread, op: Operation, ref: Ref, *dynamic: int) -> Ref:
    sizes, shape, whole = op.attributes["static_sizes"], list(op.types[0].shape), ref.layout.shape
    if set(op.attributes["static_strides"]) - {1} or min(sizes, default=0) < 0:
        raise unsupported_failure("a reference with strides or of unknown size", op.place)
    rest = iter(dynamic)
    starts = [next(rest) if start == _DYNAMIC else start for start in op.attributes["static_offsets"]]
    outside = ""
    if any(not 0 <= start <= n - size for start, size, n in zip(starts, sizes, whole, strict=True)):
        element = ", ".join(f"{start}:{start + size}" for start, size in zip(starts, sizes, strict=True))
        outside = f"[{element}] of {list(whole)}"
        starts = [max(0, min(start, n - size)) for start, size, n in zip(starts, sizes, whole, strict=True)]
    key: list[int | slice] = []
    surplus = len(sizes) - len(shape)
    for start, size in zip(starts, sizes, strict=True):
        dropped = surplus and size == 1
        surplus -= bool(dropped)
        key.append(start if dropped else slice(start, start + size))
    return ref.at(ref.layout.view(tuple(key)), outside)


def _reshape(thread: Thread, op: Operation, ref: Ref, *_: Any) -> Ref:
    return ref.at(ref.layout.moved(ref.layout.addresses.reshape(op.types[0].shape)))


def _transpose(thread: Thread, op: Operation, ref: Ref) -> Ref:
    order = [int(axis) for axis in re.findall(r"d(\d+)", op.attributes["permutation"].partition("->")[2])]
    return ref.at(ref.layout.moved(ref.layout.addresses.transpose(order)))


def _element(ref: Ref, indices: Sequence[int]) -> Ref:
    outside = ""
    if any(not 0 <= i < n for i, n in zip(indices, ref.layout.shape, strict=True)):
        outside = f"{list(indices)} of {list(ref.layout.shape)}"
        indices = [0] * len(indices)
    return ref.at(ref.layout.view(tuple(slice(i, i + 1) for i in indices)), outside)


def _load_scalar(thread: Thread, op: Operation, memory: Any, *indices: int) -> Any:
    if isinstance(memory, np.ndarray):  # in registers
        return memory[indices]
    value = load(thread, op, _element(memory, indices)).reshape(())
    return value.item() if op.types[0].dtype.kind in "ib" else value


def _store_scalar(thread: Thread, op: Operation, value: Any, memory: Any, *indices: int) -> None:
    if isinstance(memory, np.ndarray):
        memory[indices] = value
    else:
        _store(thread, op, np.asarray(value), _element(memory, indices))


def _store(thread: Thread, op: Operation, values: Array, ref: Ref, *more: Any) -> None:
    if more or op.attributes.get("reduction_op") is not None or op.attributes.get("multimem"):
        raise unsupported_failure("a store that combines values", op.place)
    write(thread, thread, op, values, ref)


# Barriers, by their address in shared memory.


def _initialise(thread: Thread, op: Operation, address: int) -> None:
    for i in range(op.attributes["num_barriers"]):
        _initialise_one(thread, op, address + 8 * i, op.attributes["arrival_count"])


def _initialise_one(thread: Thread, op: Operation, address: int, count: int, *_: Any) -> None:
    barriers = thread.block.barriers
    barriers.setdefault(address, Barrier(f"barrier {len(barriers)}", count))


# Copies by TMA.


Windows = list[tuple[int, int]]  # along each axis, the start and the length, -1 for an index


def _inside(ref: Ref, windows: Windows) -> tuple[Layout, tuple[slice, ...]] | None:
    # The part of windows that lies inside an array, and where it lies in them; None if there is none.
    source: list[slice | int] = []
    target: list[slice] = []
    for (start, length), size in zip(windows, ref.layout.shape, strict=True):
        low, high = max(start, 0), min(start + max(length, 1), size)
        if low >= high:
            return None
        source.append(start if length < 0 else slice(low, high))
        target += [slice(low - start, high - start)] if length >= 0 else []
    return ref.layout.view(tuple(source)), tuple(target)


_IN_BOUNDS = 1  # JAX's number for a copy that promises to be


def _load_tile(thread: Thread, op: Operation, *operands: Any) -> None:
    (ref,), (target,), barrier, indices, predicate, peer, *_ = [*segments(op, operands), (), ()]
    if peer or not barrier:
        raise unsupported_failure("a copy without a barrier, or from another device", op.place)
    if predicate and not predicate[0]:
        return
    windows = list(zip(indices, op.attributes["slice_lengths"], strict=True))
    axes = op.attributes.get("collective") or ()
    own = thread.block
    blocks = [
        block
        for rank, block in sorted(own.cluster.blocks.items())
        if all(rank[i] == own.rank[i] for i in range(3) if i not in axes)
    ]
    tracked = op.attributes.get("leader_tracked", "") if len(blocks) > 1 else ""
    leader = blocks[0] if tracked else None  # whose barrier counts the bytes of all
    if partitioned := _PARTITIONED.search(tracked):
        windows = _own_part(windows, int(partitioned[1]), blocks.index(own), len(blocks))
        blocks = [own]
    elif len(blocks) > 1:
        windows, target = _part(op, windows, target, blocks.index(own), len(blocks))
    layout, inside = target.layout, _inside(ref, windows)
    full = inside is not None and inside[0].shape == layout.shape
    if op.attributes.get("oob_fill_mode") == _IN_BOUNDS and not full:
        ref = ref.at(ref.layout, f"{windows} of {list(ref.layout.shape)}")
        ref.check(thread, Access.LOAD, op.place)
    for block in blocks:
        agent = own.cluster.operation(thread, "a copy", op.place)
        if inside is not None:
            ref.at(inside[0]).check(agent, Access.LOAD, op.place)
        Ref(block.shared, layout, target.outside).check(agent, Access.COPY, op.place)

        def apply(block: Block = block) -> None:
            values = np.zeros([n for _, n in windows if n >= 0], layout.dtype)
            if inside is not None:
                values[inside[1]] = inside[0].load(ref.memory.data)
            layout.store(block.shared.data, values.reshape(layout.shape))

        thread.start(Flight(agent, apply, op.place, (leader or block).barriers[barrier[0]], layout.size))


_PARTITIONED = re.compile(r"copy_partitioned<axis = (\d+)>")


def _own_part(windows: Windows, axis: int, part: int, parts: int) -> Windows:
    # Each block copies a part of the tile along an axis of it, and gets no more.
    at = [i for i, (_, length) in enumerate(windows) if length >= 0][axis]
    start, length = windows[at]
    size = length // parts
    return [*windows[:at], (start + part * size, size), *windows[at + 1 :]]


def _part(op: Operation, windows: Windows, ref: Ref, part: int, parts: int) -> tuple[Windows, Ref]:
    # Each block copies a part of the tile, and all get all of it.
    axes = [i for i, (_, length) in enumerate(windows) if length >= 0]
    for place, axis in enumerate(axes):
        start, length = windows[axis]
        size, odd = divmod(length, parts)
        if not odd:
            key = [slice(0, n) for n in ref.layout.shape]
            key[place] = slice(part * size, (part + 1) * size)
            windows = [*windows[:axis], (start + part * size, size), *windows[axis + 1 :]]
            return windows, ref.at(ref.layout.view(tuple(key)))
    raise unsupported_failure("a collective copy of a tile that does not divide", op.place)


def _store_tile(thread: Thread, op: Operation, *operands: Any) -> None:
    (ref,), (target,), indices, predicate, peer, *_ = [*segments(op, operands), ()]
    if peer or op.attributes.get("reduction_op") is not None or op.attributes.get("is_global_broadcast"):
        raise unsupported_failure("a copy that adds, or goes to another device", op.place)
    if not predicate or predicate[0]:
        _start_store(thread, op, ref, target, indices)
    if op.attributes.get("commit_group", True):
        _commit_stores(thread)


def _commit_stores(thread: Thread) -> None:
    for issued in thread.issued:
        issued.stores.append([])


def _start_store(thread: Thread, op: Operation, ref: Ref, target: Ref, indices: Sequence[int]) -> None:
    windows = list(zip(indices, op.attributes["slice_lengths"], strict=True))
    inside = _inside(target, windows)
    agent = thread.block.cluster.operation(thread, "a copy", op.place)
    ref.check(agent, Access.LOAD, op.place)
    writer = thread.block.cluster.operation(thread, "a copy", op.place)
    if inside is not None:
        target.at(inside[0]).check(writer, Access.COPY, op.place)

    def apply() -> None:
        if inside is not None:
            values = ref.layout.load(ref.memory.data).reshape([n for _, n in windows if n >= 0])
            inside[0].store(target.memory.data, values[inside[1]])

    flight = Flight(agent, apply, op.place, writes=writer.event)
    thread.issued[0].stores[-1].append(flight)
    thread.start(flight)


def _wait_stores(thread: Thread, op: Operation) -> None:
    for issued in thread.issued:
        issued.writes |= finish(thread, issued.stores, op.attributes["group"])
        if "read" not in op.attributes:
            thread.known |= issued.writes


_RESPONSE = 16  # bytes: the place of the cancelled cluster's first block along x, y and z, and whether there is one


def _cancel(thread: Thread, op: Operation, ref: Ref, address: int, predicate: bool = True) -> None:
    if not predicate:
        return
    cluster = thread.block.cluster
    taken = cluster.take_waiting()
    response = np.array([*(taken or (0, 0, 0)), taken is not None], np.int32).view(np.int8).reshape(ref.layout.shape)
    for block in cluster.blocks.values():
        agent = cluster.operation(thread, "a request to cancel", op.place)
        Ref(block.shared, ref.layout, ref.outside).check(agent, Access.COPY, op.place)
        apply = partial(ref.layout.store, block.shared.data, response.astype(ref.layout.dtype))
        thread.start(Flight(agent, apply, op.place, block.barriers[address], _RESPONSE))


def _query(thread: Thread, op: Operation, ref: Ref) -> tuple[int, int, int, bool]:
    x, y, z, found = load(thread, op, ref).astype(np.int8).reshape(-1).view(np.int32).tolist()
    return x, y, z, bool(found)


# Instructions in PTX.


def _named_barrier(compiler: Compiler, op: Operation, threads: str) -> Step | None:
    count = int(threads) // 128
    if count == 1:
        return None  # within a warpgroup
    return _step_of(op, lambda thread, op, number: thread.meet(thread.block.meetings, number, count, op.place))


def _remote_arrival(compiler: Compiler, op: Operation, match: str) -> Step:
    # Some hardware threads of a warpgroup arrive at a barrier of another block each.
    enabled, _pointer, rank = op.operands

    def execute(thread: Thread, op: Operation, *operands: Any) -> None:
        ranks = np.broadcast_to(compiler.lanes(thread, rank), 128)
        known, cluster = thread.release(), thread.block.cluster
        for lane in np.flatnonzero(np.broadcast_to(compiler.lanes(thread, enabled), 128)).tolist():
            block = cluster.blocks[program_coordinates(cluster.shape.cluster, int(ranks[lane]))]
            block.barriers[operands[1]].arrive(known, op.place)

    return _step_of(op, execute)


def _meet_cluster(thread: Thread, op: Operation) -> Iterator[Wait]:
    cluster = thread.block.cluster
    return thread.meet(cluster.meetings, "cluster", cluster.shape.threads * len(cluster.blocks), op.place)


# From the pattern of an instruction to a function of the compiler, the operation and what the group matched.
_PTX: Sequence[tuple[re.Pattern[str], Callable[[Compiler, Operation, str], Step | None]]] = tuple(
    (re.compile(pattern), make)
    for pattern, make in {
        r"^bar\.sync \$0, (\d+);$": _named_barrier,
        r"^wgmma\.commit_group()": lambda compiler, op, _: commit_products,
        r"^wgmma\.wait_group\.sync\.aligned (\d+);": lambda compiler, op, keep: partial(wait_products, keep=int(keep)),
        r"^cp\.async\.bulk\.commit_group()": lambda compiler, op, _: _commit_stores,
        r"^barrier\.cluster\.wait()": lambda compiler, op, _: lambda thread: _meet_cluster(thread, op),
        r"^tcgen05\.wait::(ld|st)": lambda compiler, op, kind: partial(wait_moves, kind=kind),
        r"mapa\.shared::cluster\.u32 .*mbarrier\.arrive\.shared::cluster()": _remote_arrival,
        r"^(barrier\.cluster\.arrive|fence\.|wgmma\.fence|setmaxnreg|griddepcontrol)": (lambda compiler, op, _: None),
    }.items()
)


def _ptx(compiler: Compiler, op: Operation) -> Step | None:
    text = " ".join(op.attributes["asm_string"].split())
    for pattern, make in _PTX:
        if match := pattern.search(text):
            return make(compiler, op, match[1])
    raise unsupported_failure(f"PTX code {text}", op.place)


# Control flow.


def _loop(compiler: Compiler, op: Operation) -> Step:
    low, high, by, *carried = op.operands
    (body,) = op.regions
    steps = compiler.region(body)
    index, *arguments = body.arguments

    def step(thread: Thread) -> Iterator[Wait]:
        values = thread.values
        state = [values[i] for i in carried]
        for i in range(values[low], values[high], values[by]):
            values[index] = i
            _set(thread, arguments, state)
            yield from run(thread, steps)
            state = [values[number] for number in body.yields]
        _set(thread, op.results, state)

    return step


def _choice(compiler: Compiler, op: Operation) -> Step:
    (condition,) = op.operands
    regions = [(compiler.region(region), region.yields) for region in op.regions]
    cases = {True: 0} if op.name == "scf.if" else {case: i for i, case in enumerate(op.attributes["cases"], 1)}
    other = 1 if op.name == "scf.if" else 0

    def step(thread: Thread) -> Iterator[Wait]:
        steps, yields = regions[cases.get(thread.values[condition], other)]
        yield from run(thread, steps)
        _set(thread, op.results, [thread.values[i] for i in yields])

    return step


def _while(compiler: Compiler, op: Operation) -> Step:
    before, after = op.regions
    first, second = compiler.region(before), compiler.region(after)

    def step(thread: Thread) -> Iterator[Wait]:
        state = [thread.values[i] for i in op.operands]
        while True:
            _set(thread, before.arguments, state)
            yield from run(thread, first)
            goes_on, *state = [thread.values[i] for i in before.yields]
            if not goes_on:
                break
            _set(thread, after.arguments, state)
            yield from run(thread, second)
            state = [thread.values[i] for i in after.yields]
        _set(thread, op.results, state)

    return step


def _warps(compiler: Compiler, op: Operation) -> Step:
    (body,) = op.regions
    steps = compiler.region(body)

    def step(thread: Thread) -> Iterator[Wait]:
        warps = thread.split()
        for warp in warps:
            _set(warp, body.arguments, [thread.values[i] for i in op.operands])
        yield from run_together([(warp, run(warp, steps)) for warp in warps])
        thread.join(warps)

    return step


def _custom(compiler: Compiler, op: Operation) -> Step:
    if op.operands or op.results:
        raise unsupported_failure("inline_mgpu with arguments or results", op.place)
    steps = compiler.region(op.regions[0])
    return lambda thread: run(thread, steps)


def _along(read: Callable[[Thread], Sequence[int]]) -> Callable[..., int]:
    return lambda thread, op: read(thread)["xyz".index(op.attributes["dimension"][-2])]


def _nothing(thread: Thread, op: Operation, *_: Any) -> None:
    return None


CODE: Mapping[str, Callable[[Compiler, Operation], Step | None]] = {
    "llvm.inline_asm": _ptx,
    "mosaic_gpu.custom_primitive": _custom,
    "mosaic_gpu.warp_map": _warps,
    "scf.for": _loop,
    "scf.if": _choice,
    "scf.index_switch": _choice,
    "scf.while": _while,
}
TABLE: Mapping[str, Callable[..., Any]] = {
    # Values that pass through, accumulators under way included.
    **dict.fromkeys(
        "builtin.unrealized_conversion_cast memref.cast mosaic_gpu.with_transforms mosaic_gpu.tmem_layout_cast "
        "mosaic_gpu.assume_multiple llvm.ptrtoint llvm.inttoptr".split(),
        lambda thread, op, value, *_: value,
    ),
    "mosaic_gpu.optimization_barrier": lambda thread, op, *values: values if len(values) > 1 else values[0],
    "nvvm.shfl.sync": lambda thread, op, mask, value, *_: value,
    # Addresses of barriers: their offsets in shared memory.
    "llvm.extractvalue": lambda thread, op, address: address if op.attributes["position"][0] == 1 else 0,
    "llvm.mul": lambda thread, op, a, b: a * b,
    "llvm.add": lambda thread, op, a, b: a + b,
    "llvm.getelementptr": lambda thread, op, a, *index: a + 8 * (index or op.attributes["rawConstantIndices"])[0],
    # Threads and blocks.
    "gpu.thread_id": _along(lambda thread: (thread.number, 0, 0)),
    "gpu.block_dim": _along(lambda thread: (128 * thread.block.cluster.shape.threads, 1, 1)),
    "gpu.block_id": _along(lambda thread: thread.block.index),
    "gpu.grid_dim": _along(lambda thread: thread.block.cluster.shape.grid),
    "gpu.cluster_block_id": _along(lambda thread: thread.block.rank),
    "nvvm.elect.sync": lambda thread, op: True,
    # Memory.
    "mosaic_gpu.slice_smem": _slice_shared,
    "memref.subview": _subview,
    "memref.transpose": _transpose,
    "memref.expand_shape": _reshape,
    "memref.collapse_shape": _reshape,
    "memref.alloca": lambda thread, op: np.zeros(op.types[0].shape, object),
    "memref.load": _load_scalar,
    "memref.store": _store_scalar,
    "mosaic_gpu.vector_load": load,
    "mosaic_gpu.vector_store": _store,
    "nvvm.fence.proxy": lambda thread, op: thread.block.shared.fence(thread),
    # Barriers and copies.
    "mosaic_gpu.initialize_barrier": _initialise,
    "nvvm.mbarrier.init": _initialise_one,
    "mosaic_gpu.arrive": lambda t, op, a, on=True: t.block.barriers[a].arrive(t.release(), op.place) if on else None,
    "mosaic_gpu.arrive_expect_tx": lambda t, op, a, count: t.block.barriers[a].arrive(t.release(), op.place, count),
    "nvvm.mbarrier.try_wait.parity": lambda t, op, a, parity, *_: t.wait(t.block.barriers[a], parity, op.place),
    "gpu.barrier": lambda t, op: t.meet(t.block.meetings, "block", t.block.cluster.shape.threads, op.place),
    "nvvm.bar.warp.sync": _nothing,
    "mosaic_gpu.async_load": _load_tile,
    "mosaic_gpu.async_store": _store_tile,
    "mosaic_gpu.async_prefetch": _nothing,
    "nvvm.cp.async.bulk.wait_group": _wait_stores,
    "mosaic_gpu.try_cluster_cancel": _cancel,
    "mosaic_gpu.query_cluster_cancel": _query,
    # Matrix products and tensor memory.
    "mosaic_gpu.wgmma": wgmma,
    "mosaic_gpu.tmem_alloc": tensor_memory,
    "mosaic_gpu.slice_tmem": tensor_memory,
    "mosaic_gpu.tcgen05_mma": tensor_product,
    "mosaic_gpu.tcgen05_commit_arrive": commit_tensor,
    "mosaic_gpu.async_store_scales_smem_to_tmem": store_scales,
    "mosaic_gpu.async_load_tmem": load_tensor,
    "mosaic_gpu.async_store_tmem": store_tensor,
    **dict.fromkeys(
        "mosaic_gpu.tmem_relinquish_alloc_permit mosaic_gpu.tmem_dealloc nvvm.tcgen05.fence".split(), _nothing
    ),
}
