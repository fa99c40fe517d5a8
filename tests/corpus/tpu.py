"""TPU kernels whose copies, semaphores, cores or memory are used wrongly in one place: `broken` says whether.

All take `x` of 32 rows of 128 float32 numbers, in blocks of 8 rows, and return it doubled, unless they say otherwise.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.corpus.twin import Twin, paired

ROWS, COLUMNS, STEPS = 8, 128, 4
BLOCK = (ROWS, COLUMNS)
SHAPE = (STEPS * ROWS, COLUMNS)

Kernel = Callable[[jax.Array], jax.Array]


TPU: list[Twin] = []


def _doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


def blocks_summed(x: np.ndarray) -> np.ndarray:
    return x.reshape(STEPS, *BLOCK).sum(0)


def twin(
    verdict: str, words: str, *lines: str, oracle: Any = _doubled, dtype: str = "float32", rows: int = SHAPE[0]
) -> Callable[[Callable[[bool], Kernel]], Callable[[bool], Kernel]]:
    """Registers twins."""

    def register(make: Callable[[bool], Kernel]) -> Callable[[bool], Kernel]:
        name = f"a TPU kernel {make.__name__.replace('_', ' ')}"
        pairing = paired(make, (rows, COLUMNS), oracle, dtype)
        TPU.append(Twin(name=name, make=pairing, verdicts={"interpret-tpu": verdict}, words=words, lines=lines))
        return make

    return register


def in_whole(body: Any, scratch: list[Any], shape: tuple[int, ...] = SHAPE) -> Kernel:
    """A kernel of one program, which moves blocks itself."""
    main = pl.BlockSpec(memory_space=pl.ANY)
    return lambda x: pl.pallas_call(
        body,
        in_specs=[main],
        out_specs=main,
        out_shape=jax.ShapeDtypeStruct(shape, x.dtype),
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(),
    )(x)


def on_grid(
    body: Any,
    to: Callable[[Any], Any] = lambda i: i,
    scratch: list[Any] | None = None,
    shape: tuple[int, ...] | None = None,
    start: Callable[[Any], Any] = lambda i: i,
    parallel: bool = False,
) -> Kernel:
    """A kernel of one program for each block: it reads block `start(i)` and writes block `to(i)`."""
    return lambda x: pl.pallas_call(
        body,
        grid=(STEPS,),
        in_specs=[pl.BlockSpec(BLOCK, lambda i: (start(i), 0))],
        out_specs=pl.BlockSpec(BLOCK, lambda i: (to(i), 0)),
        out_shape=jax.ShapeDtypeStruct(shape or x.shape, x.dtype),
        scratch_shapes=scratch or [],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel" if parallel else "arbitrary",)),
    )(x)


def rows_of(step: Any) -> Any:
    return pl.ds(step * ROWS, ROWS)


BUFFER = pltpu.VMEM(BLOCK, jnp.float32)
COPY, COUNT = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR


def double(x: Any) -> None:
    x[...] = x[...] * 2


@twin("race", "is written by the copy that core 0 started at", "value = buffer[...] * 2", "copy.start()")
def reads_before_the_copy_landed(broken: bool) -> Kernel:
    """No wait for the block that is read; the wait comes after."""

    def body(x: Any, o: Any, buffer: Any, landed: Any) -> None:
        for step in range(STEPS):
            copy = pltpu.make_async_copy(x.at[rows_of(step)], buffer, landed)
            copy.start()
            if not broken:
                copy.wait()
            value = buffer[...] * 2
            if broken:
                copy.wait()
            buffer[...] = value
            pltpu.sync_copy(buffer, o.at[rows_of(step)])

    return in_whole(body, [BUFFER, COPY])


@twin("race", "nothing waits for that copy", "x[...] = x[...] * 2", "copy.start()")
def never_waits_for_the_block(broken: bool) -> Kernel:
    """No wait at all: the interpreter runs copies when they are waited for, so this one never."""

    def body(x: Any, o: Any, buffer: Any, landed: Any) -> None:
        for step in range(STEPS):
            copy = pltpu.make_async_copy(x.at[rows_of(step)], buffer, landed)
            copy.start()
            if not broken:
                copy.wait()
            double(buffer)
            pltpu.sync_copy(buffer, o.at[rows_of(step)])

    return in_whole(body, [BUFFER, COPY])


@twin("race", "is read by the copy that core 0 started at", "x[...] = x[...] * 2", "copy.start()")
def overwrites_what_is_being_stored(broken: bool) -> Kernel:
    """The next block is written into the buffer while the last one is stored from it."""

    def body(x: Any, o: Any, buffer: Any, stored: Any) -> None:
        for step in range(STEPS):
            pltpu.sync_copy(x.at[rows_of(step)], buffer)
            copy = pltpu.make_async_copy(buffer, o.at[rows_of(step)], stored)
            if not broken:
                double(buffer)
            copy.start()
            if broken:
                double(buffer)
            copy.wait()

    return in_whole(body, [BUFFER, COPY])


@twin("race", "still in flight when the kernel ends: nothing waits for that copy", "copy.start()")
def ends_while_it_stores(broken: bool) -> Kernel:
    """No wait for the last block's copy, which nothing comes in the way of."""

    def body(x: Any, o: Any, buffer: Any, stored: Any) -> None:
        for step in range(STEPS):
            pltpu.sync_copy(x.at[rows_of(step)], buffer)
            double(buffer)
            copy = pltpu.make_async_copy(buffer, o.at[rows_of(step)], stored)
            copy.start()
            if not broken or step + 1 < STEPS:
                copy.wait()

    return in_whole(body, [BUFFER, COPY])


@twin("race", "after its scope has ended", "copies[0].start()")
def copies_into_memory_given_up(broken: bool) -> Kernel:
    """The buffer of a copy goes out of scope before the copy is waited for."""

    def body(x: Any, o: Any, landed: Any, out: Any) -> None:
        for step in range(STEPS):
            copies: list[Any] = []

            def scope(buffer: Any, copies: list[Any] = copies, step: int = step) -> None:
                pltpu.sync_copy(x.at[rows_of(step)], buffer)
                double(buffer)
                pltpu.sync_copy(buffer, o.at[rows_of(step)])
                copies.append(pltpu.make_async_copy(x.at[rows_of(step)], buffer, landed))
                copies[0].start()
                if not broken:
                    copies[0].wait()

            pl.run_scoped(scope, BUFFER)
            if broken:
                pltpu.make_async_copy(x.at[rows_of(step)], out, landed).wait()

    return in_whole(body, [COPY, BUFFER])


@twin("race", "by core 1 as a block of the call at", "pl.pallas_call(", oracle=blocks_summed)
def accumulates_over_a_parallel_dimension(broken: bool) -> Kernel:
    """The sum of all blocks in one, over a dimension that is declared parallel."""

    def body(x: Any, o: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o[...] = jnp.zeros_like(o)

        o[...] += x[...]

    return on_grid(body, lambda i: 0, shape=BLOCK, parallel=broken)


@twin(
    "uninitialised",
    "before all of it was written",
    "carry[...] += x",
    oracle=lambda x: np.cumsum(x.reshape(STEPS, *BLOCK), 0).reshape(SHAPE),
)
def carries_over_a_parallel_dimension(broken: bool) -> Kernel:
    """Running sums of blocks, carried in VMEM from each program to the next: another core has none."""

    def body(x: Any, o: Any, carry: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            carry[...] = jnp.zeros_like(carry)

        carry[...] += x[...]
        o[...] = carry[...]

    return on_grid(body, scratch=[BUFFER], parallel=broken)


@twin("mismatch", "", oracle=lambda x: np.roll(x.reshape(STEPS, *BLOCK), 1, 0).reshape(SHAPE))
def relies_on_the_order_of_a_parallel_dimension(broken: bool) -> Kernel:
    """Each block goes where the one after it was, by a count of the programs before: they come in any order."""

    def body(x: Any, o: Any, turns: Any) -> None:
        step = pl.program_id(0)

        @pl.when(turns[0] != 7)
        def _() -> None:
            turns[0] = 7
            turns[1] = 0 if broken else step

        o[...] = x[rows_of(lax.rem(turns[1] + STEPS - 1, STEPS))]
        turns[1] += 1

    return lambda x: pl.pallas_call(
        body,
        grid=(STEPS,),
        in_specs=[pl.BlockSpec(SHAPE, lambda i: (0, 0))],
        out_specs=pl.BlockSpec(BLOCK, lambda i: (i, 0)),
        out_shape=x,
        scratch_shapes=[pltpu.SMEM((2,), jnp.int32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel" if broken else "arbitrary",)),
    )(x)


@twin("race", "have each core write its own part", "pltpu.sync_copy(buffer, o")
def cores_write_the_same_rows(broken: bool) -> Kernel:
    """Two cores, each of which is to double half of the rows; the broken ones both begin at the first."""

    def body(x: Any, o: Any) -> None:
        core, half = lax.axis_index("core"), SHAPE[0] // 2

        def scope(buffer: Any) -> None:
            rows = pl.ds(0 if broken else core * half, half)
            pltpu.sync_copy(x.at[rows], buffer)
            double(buffer)
            pltpu.sync_copy(buffer, o.at[rows])

        pl.run_scoped(scope, pltpu.VMEM((half, COLUMNS), jnp.float32))

    new = jax.__version_info__ >= (0, 11)
    mesh: Any = pltpu.TensorCoreMesh if new else pltpu.create_tensorcore_mesh
    mesh = mesh(axis_name="core", num_cores=2)
    return lambda x: pl.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), mesh=mesh)(x)


@twin("runtime_error", "ready[1] is at 3 when the kernel ends", "pl.semaphore_signal(")
def signals_and_nobody_waits(broken: bool) -> Kernel:
    """A semaphore that is counted up and never down."""

    def body(x: Any, o: Any, buffer: Any, ready: Any) -> None:
        pltpu.sync_copy(x, buffer)
        double(buffer)
        pl.semaphore_signal(ready.at[1], 3)
        if not broken:
            pl.semaphore_wait(ready.at[1], 3)
        pltpu.sync_copy(buffer, o)

    return in_whole(body, [pltpu.VMEM(SHAPE, jnp.float32), pltpu.SemaphoreType.REGULAR((2,))])


@twin("runtime_error", "landed is at 2048 when the kernel ends", ".start()", ".wait()", oracle=lambda x: 2 * x[:ROWS])
def waits_for_half_of_the_copy(broken: bool) -> Kernel:
    """The wait counts the bytes of half a block: what is left opens the next wait too early."""

    def body(x: Any, o: Any, buffer: Any, landed: Any) -> None:
        pltpu.make_async_copy(x.at[rows_of(0)], buffer, landed).start()
        half = pl.ds(0, ROWS // 2 if broken else ROWS)
        pltpu.make_async_copy(x.at[half], buffer.at[half], landed).wait()
        double(buffer)
        pltpu.sync_copy(buffer, o)

    return in_whole(body, [BUFFER, COPY], BLOCK)


@twin("hang", "for ready to reach 2, but it is at 1", "pl.semaphore_wait(")
def waits_for_more_than_is_signalled(broken: bool) -> Kernel:
    """A wait for two signals, of which one comes."""

    def body(x: Any, o: Any, buffer: Any, ready: Any) -> None:
        pltpu.sync_copy(x, buffer)
        double(buffer)
        pl.semaphore_signal(ready, 1)
        pl.semaphore_wait(ready, 2 if broken else 1)
        pltpu.sync_copy(buffer, o)

    return in_whole(body, [pltpu.VMEM(SHAPE, jnp.float32), COUNT])


def _blocks_least(x: np.ndarray) -> np.ndarray:
    return x.reshape(STEPS, *BLOCK).min(0)


@twin("uninitialised", "total is read at", "total[...] += x", oracle=blocks_summed)
def sums_into_what_nobody_wrote(broken: bool) -> Kernel:
    """The sum of all blocks, in VMEM that nobody set to 0."""

    def body(x: Any, o: Any, total: Any) -> None:
        if not broken:
            pl.when(pl.program_id(0) == 0)(lambda: total.__setitem__(..., jnp.zeros_like(total)))
        total[...] += x[...]
        o[...] = total[...]

    return on_grid(body, lambda i: 0, scratch=[BUFFER], shape=BLOCK)


@twin("uninitialised", "least is read at", "jnp.minimum(", oracle=_blocks_least, dtype="int32")
def takes_the_minimum_with_what_nobody_wrote(broken: bool) -> Kernel:
    """The interpreter's own fill of integers is the largest one, which no minimum shows."""

    def body(x: Any, o: Any, least: Any) -> None:
        if not broken:
            pl.when(pl.program_id(0) == 0)(lambda: least.__setitem__(..., jnp.full(BLOCK, 2**31 - 1, jnp.int32)))
        least[...] = jnp.minimum(least[...], x[...])
        o[...] = least[...]

    return on_grid(body, lambda i: 0, scratch=[pltpu.VMEM(BLOCK, jnp.int32)], shape=BLOCK)


@twin("uninitialised", "limit is read at", "jnp.minimum(", oracle=lambda x: np.minimum(x, 5), dtype="int32")
def compares_with_scalar_memory_that_nobody_wrote(broken: bool) -> Kernel:
    """A limit in SMEM, set where there is a second block and forgotten for the first."""

    def body(x: Any, o: Any, limit: Any) -> None:
        @pl.when(pl.program_id(0) == (1 if broken else 0))
        def _() -> None:
            limit[0] = 5

        o[...] = jnp.minimum(x[...], limit[0])

    return on_grid(body, scratch=[pltpu.SMEM((1,), jnp.int32)])


@twin(
    "uninitialised",
    "x is read past the end of its array at",
    "value = x[...]",
    oracle=lambda x: x.sum(0, keepdims=True).repeat(ROWS, 0),
    rows=30,
)
def sums_the_padding_of_the_last_block(broken: bool) -> Kernel:
    """The sum of 30 rows, in blocks of 8 of which the last has 6: the others' places must not count."""

    def body(x: Any, o: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o[...] = jnp.zeros_like(o)

        row = lax.broadcasted_iota(jnp.int32, BLOCK, 0) + pl.program_id(0) * ROWS
        value = x[...] if broken else jnp.where(row < 30, x[...], 0)
        o[...] += value.sum(0, keepdims=True)

    return on_grid(body, lambda i: 0, shape=BLOCK)


@twin("unwritten", "128 of 4096 elements of output 0 were never written, the first [7, 0]")
def leaves_a_row_unwritten(broken: bool) -> Kernel:
    """All rows are doubled, but for the first block's last one."""

    def body(x: Any, o: Any) -> None:
        if not broken:
            o[...] = x[...] * 2
            return
        o[pl.ds(0, 7)] = x[pl.ds(0, 7)] * 2

        @pl.when(pl.program_id(0) > 0)
        def _() -> None:
            o[7] = x[7] * 2

    return on_grid(body)


@twin("uninitialised", "jax.lax.empty at", "lax.empty(")
def fills_half_of_an_empty_array(broken: bool) -> Kernel:
    """The result is written over an array of `jax.lax.empty`, of which the kernel fills the even blocks."""

    def body(x: Any, _: Any, o: Any) -> None:
        o[...] = x[...] * 2

    stride = 2 if broken else 1
    block = pl.BlockSpec(BLOCK, lambda i: (i * stride, 0))
    return lambda x: pl.pallas_call(
        body,
        grid=(STEPS // stride,),
        in_specs=[block, pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=block,
        out_shape=x,
        input_output_aliases={1: 0},
        compiler_params=pltpu.CompilerParams(),
    )(x, lax.empty(x.shape, x.dtype))


@twin("out_of_bounds", "is written at", "slots[slot] = ")
def writes_past_its_buffer(broken: bool) -> Kernel:
    """Two slots, indexed by the step and not by its remainder."""

    def body(x: Any, o: Any, slots: Any) -> None:
        @pl.loop(0, STEPS)
        def _(step: Any) -> None:
            slot = step if broken else lax.rem(step, 2)
            slots[slot] = jnp.zeros(BLOCK, jnp.float32)
            pltpu.sync_copy(x.at[rows_of(step)], slots.at[lax.rem(step, 2)])
            double(slots.at[lax.rem(step, 2)])
            pltpu.sync_copy(slots.at[lax.rem(step, 2)], o.at[rows_of(step)])

    return in_whole(body, [pltpu.VMEM((2, *BLOCK), jnp.float32)])


@twin("out_of_bounds", "x[4:12, 0:128] is read at", "o[...] = x[")
def reads_past_its_block(broken: bool) -> Kernel:
    """A window that starts in the middle of the block."""

    def body(x: Any, o: Any) -> None:
        start = jnp.where(pl.program_id(0) == 2, 4, 0) if broken else 0
        o[...] = x[pl.ds(start, ROWS)] * 2

    return on_grid(body)


@twin("out_of_bounds", "x[32:40, 0:128] is read at", "pltpu.sync_copy(x.at")
def copies_from_past_the_end(broken: bool) -> Kernel:
    """The blocks are counted from one."""

    def body(x: Any, o: Any, buffer: Any) -> None:
        @pl.loop(0, STEPS)
        def _(step: Any) -> None:
            pltpu.sync_copy(x.at[rows_of(step + 1 if broken else step)], buffer)
            double(buffer)
            pltpu.sync_copy(buffer, o.at[rows_of(step)])

    return in_whole(body, [BUFFER])


@twin("out_of_bounds", "block (4, 0) of x, [32:40, 0:128], is outside its shape (32, 128)", "pl.pallas_call(")
def maps_to_a_block_past_the_end(broken: bool) -> Kernel:
    """An index map that is one block ahead."""

    def body(x: Any, o: Any) -> None:
        o[...] = x[...] * 2

    return on_grid(body, start=(lambda i: i + 1) if broken else (lambda i: i))


@twin("runtime_error", "comes back to block [0:8, 0:128] of o", "pl.pallas_call(")
def comes_back_to_a_block(broken: bool) -> Kernel:
    """Two output blocks by turns: a TPU keeps a block only while consecutive programs use it."""

    def body(x: Any, o: Any) -> None:
        o[...] = x[...] * 2

    return on_grid(body, (lambda i: lax.rem(i, 2)) if broken else (lambda i: i))
