"""TPU kernels that use memory which nobody wrote, or which is not there: more twins, like those of `tests.tpu_bugs`."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.tpu_bugs import BLOCK, BUFFER, ROWS, STEPS, Kernel, blocks_summed, double, in_whole, on_grid, rows_of, twin


def _blocks_least(x: np.ndarray) -> np.ndarray:
    return x.reshape(STEPS, *BLOCK).min(0)


@twin("uninitialised", "total is read at", blocks_summed)
def sums_into_what_nobody_wrote(broken: bool) -> Kernel:
    """The sum of all blocks, in VMEM that nobody set to 0."""

    def body(x: Any, o: Any, total: Any) -> None:
        if not broken:
            pl.when(pl.program_id(0) == 0)(lambda: total.__setitem__(..., jnp.zeros_like(total)))
        total[...] += x[...]
        o[...] = total[...]

    return on_grid(body, lambda i: 0, scratch=[BUFFER], shape=BLOCK)


@twin("uninitialised", "least is read at", _blocks_least, "int32")
def takes_the_minimum_with_what_nobody_wrote(broken: bool) -> Kernel:
    """The interpreter's own fill of integers is the largest one, which no minimum shows."""

    def body(x: Any, o: Any, least: Any) -> None:
        if not broken:
            pl.when(pl.program_id(0) == 0)(lambda: least.__setitem__(..., jnp.full(BLOCK, 2**31 - 1, jnp.int32)))
        least[...] = jnp.minimum(least[...], x[...])
        o[...] = least[...]

    return on_grid(body, lambda i: 0, scratch=[pltpu.VMEM(BLOCK, jnp.int32)], shape=BLOCK)


@twin("uninitialised", "limit is read at", lambda x: np.minimum(x, 5), "int32")
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
    lambda x: x.sum(0, keepdims=True).repeat(ROWS, 0),
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


@twin("uninitialised", "jax.lax.empty at")
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


@twin("out_of_bounds", "is written at")
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


@twin("out_of_bounds", "x[4:12, 0:128] is read at")
def reads_past_its_block(broken: bool) -> Kernel:
    """A window that starts in the middle of the block."""

    def body(x: Any, o: Any) -> None:
        start = jnp.where(pl.program_id(0) == 2, 4, 0) if broken else 0
        o[...] = x[pl.ds(start, ROWS)] * 2

    return on_grid(body)


@twin("out_of_bounds", "x[32:40, 0:128] is read at")
def copies_from_past_the_end(broken: bool) -> Kernel:
    """The blocks are counted from one."""

    def body(x: Any, o: Any, buffer: Any) -> None:
        @pl.loop(0, STEPS)
        def _(step: Any) -> None:
            pltpu.sync_copy(x.at[rows_of(step + 1 if broken else step)], buffer)
            double(buffer)
            pltpu.sync_copy(buffer, o.at[rows_of(step)])

    return in_whole(body, [BUFFER])


@twin("out_of_bounds", "block (4, 0) of x, [32:40, 0:128], is outside its shape (32, 128)")
def maps_to_a_block_past_the_end(broken: bool) -> Kernel:
    """An index map that is one block ahead."""

    def body(x: Any, o: Any) -> None:
        o[...] = x[...] * 2

    return on_grid(body, start=(lambda i: i + 1) if broken else (lambda i: i))


@twin("runtime_error", "comes back to block [0:8, 0:128] of o")
def comes_back_to_a_block(broken: bool) -> Kernel:
    """Two output blocks by turns: a TPU keeps a block only while consecutive programs use it."""

    def body(x: Any, o: Any) -> None:
        o[...] = x[...] * 2

    return on_grid(body, (lambda i: lax.rem(i, 2)) if broken else (lambda i: i))
