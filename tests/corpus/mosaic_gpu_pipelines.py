"""Pipelines of Mosaic GPU, broken in one place each, and the same pipelines right: each twin is made from `broken`.

All take `x` of 256 rows of 64 float32 numbers in four blocks and return it doubled, unless they say otherwise.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kerneltest.trace.jax_compat.mosaic_gpu_interpreter import DETECTS_ALL_RACES
from tests.corpus.mosaic_gpu import HAS_DIALECT
from tests.corpus.twin import Twin, paired

STEPS, ROWS, COLUMNS = 4, 64, 64
BLOCK = (ROWS, COLUMNS)
SHAPE = (STEPS * ROWS, COLUMNS)

Kernel = Callable[[jax.Array], jax.Array]
PIPELINES: list[Twin] = []


def _doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


def _first_doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x[:ROWS]


def _blocks_summed(x: np.ndarray) -> np.ndarray:
    return x.reshape(STEPS, *BLOCK).sum(0)


def _twin(
    verdict: str,
    *lines: str,
    words: str = "",
    oracle: Callable[[np.ndarray], np.ndarray] = _doubled,
    simulated: str = "",
    before_0_11: str = "",
) -> Callable[[Callable[[bool], Kernel]], Callable[[bool], Kernel]]:
    """Registers twins; the simulator and JAX's interpreter before 0.11 may find something else."""

    def register(make: Callable[[bool], Kernel]) -> Callable[[bool], Kernel]:
        verdicts = {"interpret-mosaic-gpu": verdict if DETECTS_ALL_RACES else before_0_11 or verdict}
        if HAS_DIALECT:
            verdicts["simulate:sm_90"] = simulated or verdict
        pairing = paired(make, SHAPE, oracle)
        name = f"a pipeline {make.__name__.replace('_', ' ')}"
        said = dict(words=words, lines=lines) if DETECTS_ALL_RACES else {}
        PIPELINES.append(Twin(name=name, make=pairing, verdicts=verdicts, **said))
        return make

    return register


def _kernel(body: Callable[..., None], shape: tuple[int, ...] = SHAPE, threads: int = 0) -> Kernel:
    mesh: dict[str, Any] = {"num_threads": threads, "thread_name": "wg"} if threads else {}
    return lambda x: plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(shape, x.dtype), **mesh)(x)


def _rows(step: Any) -> Any:
    return pl.ds(step * ROWS, ROWS)


def _scoped(**scratch: Any) -> Callable[[Callable[..., Any]], Any]:
    return lambda body: pl.run_scoped(body, **scratch)


def _slots(count: int) -> Any:
    return plgpu.SMEM((count, *BLOCK), jnp.float32)


def _fetch(x: Any, smem: Any, barrier: Any, step: Any, slot: Any) -> None:
    plgpu.copy_gmem_to_smem(x.at[_rows(step)], smem.at[slot], barrier.at[slot])


def _double(smem: Any, slot: Any, out: Any, to: int, o: Any) -> None:
    """Stores twice the block in one slot through another."""
    out[to] = smem[slot] * 2
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(out.at[to], o)
    plgpu.wait_smem_to_gmem(0)


@_twin("race", "out[to] = smem[slot] * 2", "plgpu.copy_gmem_to_smem(")
def reads_before_the_copy_landed(broken: bool) -> Kernel:
    """No wait for the barrier of the block that is read."""

    def body(x: Any, o: Any) -> None:
        @_scoped(x_smem=_slots(1), o_smem=_slots(1), loaded=plgpu.Barrier(num_barriers=1))
        def _(x_smem: Any, o_smem: Any, loaded: Any) -> None:
            @pl.loop(0, STEPS)
            def _(step: Any) -> None:
                _fetch(x, x_smem, loaded, step, 0)
                if not broken:
                    plgpu.barrier_wait(loaded.at[0])
                _double(x_smem, 0, o_smem, 0, o.at[_rows(step)])
                if broken:
                    plgpu.barrier_wait(loaded.at[0])

    return _kernel(body)


@_twin("race", "out[to] = smem[slot] * 2", "plgpu.copy_gmem_to_smem(")
def fetches_into_the_block_in_use(broken: bool) -> Kernel:
    """The next block is fetched into a buffer that is still to be read: released too early."""

    def body(x: Any, o: Any) -> None:
        @_scoped(x_smem=_slots(2), o_smem=_slots(1), loaded=plgpu.Barrier(num_barriers=2))
        def _(x_smem: Any, o_smem: Any, loaded: Any) -> None:
            for slot in range(2):
                _fetch(x, x_smem, loaded, slot, slot)

            @pl.loop(0, STEPS)
            def _(step: Any) -> None:
                slot = lax.rem(step, 2)

                def fetch() -> None:
                    @pl.when(step + 2 < STEPS)
                    def _() -> None:
                        _fetch(x, x_smem, loaded, step + 2, slot)

                plgpu.barrier_wait(loaded.at[slot])
                if broken:
                    fetch()
                _double(x_smem, slot, o_smem, 0, o.at[_rows(step)])
                if not broken:
                    fetch()

    return _kernel(body)


def _store_loop(write: Callable[[Any, Any, Any, Any], None], slots: int, finish: bool = True) -> Kernel:
    """Blocks fetched one at a time, and stored by `write(step, value, o_smem, o)`."""

    def body(x: Any, o: Any) -> None:
        @_scoped(x_smem=_slots(1), o_smem=_slots(slots), loaded=plgpu.Barrier(num_barriers=1))
        def _(x_smem: Any, o_smem: Any, loaded: Any) -> None:
            @pl.loop(0, STEPS)
            def _(step: Any) -> None:
                _fetch(x, x_smem, loaded, step, 0)
                plgpu.barrier_wait(loaded.at[0])
                write(step, x_smem[0] * 2, o_smem, o)

            if finish:
                plgpu.wait_smem_to_gmem(0)

    return _kernel(body)


@_twin("race", "o_smem[0] = value", "plgpu.copy_smem_to_gmem(", before_0_11="pass")
def writes_into_a_block_being_stored(broken: bool) -> Kernel:
    """The one output buffer is written again while its copy is under way."""

    def write(step: Any, value: Any, o_smem: Any, o: Any) -> None:
        if not broken:
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        o_smem[0] = value
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem.at[0], o.at[_rows(step)])

    return _store_loop(write, 1)


@_twin("race", "o_smem[slot] = value", "plgpu.copy_smem_to_gmem(", before_0_11="pass")
def waits_one_group_too_late(broken: bool) -> Kernel:
    """Two output buffers, and a wait that leaves two copies under way in place of one."""

    def write(step: Any, value: Any, o_smem: Any, o: Any) -> None:
        slot = lax.rem(step, 2)
        plgpu.wait_smem_to_gmem(2 if broken else 1, wait_read_only=True)
        o_smem[slot] = value
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem.at[slot], o.at[_rows(step)])

    return _store_loop(write, 2)


@_twin("race", "o_smem[slot] = value", "plgpu.copy_smem_to_gmem(", before_0_11="pass")
def waits_one_group_of_two_copies_too_late(broken: bool) -> Kernel:
    """The same with groups of two copies, each of half a block."""

    def write(step: Any, value: Any, o_smem: Any, o: Any) -> None:
        slot, half = lax.rem(step, 2), ROWS // 2
        plgpu.wait_smem_to_gmem(2 if broken else 1, wait_read_only=True)
        o_smem[slot] = value
        plgpu.commit_smem()
        for part in range(2):
            target = o.at[pl.ds(step * ROWS + part * half, half)]
            plgpu.copy_smem_to_gmem(o_smem.at[slot, pl.ds(part * half, half)], target, commit_group=False)
        plgpu.commit_smem_to_gmem_group()

    return _store_loop(write, 2)


@_twin("race", "o_smem[0] = value", "plgpu.copy_smem_to_gmem(", before_0_11="pass")
def stores_without_commit_smem(broken: bool) -> Kernel:
    """The copy engine is not told of what was written to shared memory."""

    def write(step: Any, value: Any, o_smem: Any, o: Any) -> None:
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        o_smem[0] = value
        if not broken:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem.at[0], o.at[_rows(step)])
        if broken:
            plgpu.commit_smem()

    return _store_loop(write, 1)


@_twin("race", before_0_11="pass")
def ends_while_it_stores(broken: bool) -> Kernel:
    """No wait for the last copies: shared memory is given away while they read it."""

    def write(step: Any, value: Any, o_smem: Any, o: Any) -> None:
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        o_smem[0] = value
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem.at[0], o.at[_rows(step)])

    return _store_loop(write, 1, finish=not broken)


@_twin("race", "plgpu.copy_gmem_to_smem(", "plgpu.copy_smem_to_gmem(", before_0_11="pass")
def rereads_what_is_being_stored(broken: bool) -> Kernel:
    """A store is waited for only as far as its reads, and what it writes is fetched again."""

    def body(x: Any, o: Any) -> None:
        @_scoped(smem=_slots(2), loaded=plgpu.Barrier(num_barriers=2))
        def _(smem: Any, loaded: Any) -> None:
            for step in range(STEPS):
                _fetch(x, smem, loaded, step, 0)
                plgpu.barrier_wait(loaded.at[0])
                plgpu.copy_smem_to_gmem(smem.at[0], o.at[_rows(step)])
                plgpu.wait_smem_to_gmem(0, wait_read_only=broken)
                _fetch(o, smem, loaded, step, 1)
                plgpu.barrier_wait(loaded.at[1])
                _double(smem, 1, smem, 1, o.at[_rows(step)])

    return _kernel(body)


@_twin("hang", "plgpu.barrier_wait(", words="1 of 2 arrived")
def barrier_for_more_arrivals_than_come(broken: bool) -> Kernel:
    """A barrier of two arrivals, and one copy that arrives."""

    def body(x: Any, o: Any) -> None:
        loaded = plgpu.Barrier(num_arrivals=2 if broken else 1, num_barriers=1)

        @_scoped(smem=_slots(1), loaded=loaded)
        def _(smem: Any, loaded: Any) -> None:
            for step in range(STEPS):
                _fetch(x, smem, loaded, step, 0)
                plgpu.barrier_wait(loaded.at[0])
                _double(smem, 0, smem, 0, o.at[_rows(step)])

    return _kernel(body)


@_twin("runtime_error", oracle=_first_doubled)
def barrier_for_fewer_arrivals_than_come(broken: bool) -> Kernel:
    """A barrier of one arrival for the two halves of a block: it opens when the first has come."""

    def body(x: Any, o: Any) -> None:
        half = ROWS // 2

        @_scoped(smem=_slots(1), out=_slots(1), loaded=plgpu.Barrier(num_arrivals=1 if broken else 2))
        def _(smem: Any, out: Any, loaded: Any) -> None:
            for part in range(2):
                rows = pl.ds(part * half, half)
                plgpu.copy_gmem_to_smem(x.at[rows], smem.at[0, rows], loaded)
            plgpu.barrier_wait(loaded)
            _double(smem, 0, out, 0, o)

    return _kernel(body, BLOCK)


@_twin("hang", "plgpu.barrier_wait(emptied)", "plgpu.barrier_wait(filled)", oracle=_first_doubled)
def waits_for_each_other(broken: bool) -> Kernel:
    """Two threads, each waiting for the other's arrival before its own."""

    def body(x: Any, o: Any) -> None:
        @functools.partial(
            pl.run_scoped,
            smem=_slots(1),
            loaded=plgpu.Barrier(num_barriers=1),
            filled=plgpu.Barrier(),
            emptied=plgpu.Barrier(),
            collective_axes="wg",
        )
        def _(smem: Any, loaded: Any, filled: Any, emptied: Any) -> None:
            thread = lax.axis_index("wg")

            @pl.when(thread == 0)
            def _() -> None:
                if broken:
                    plgpu.barrier_wait(emptied)
                _fetch(x, smem, loaded, 0, 0)
                plgpu.barrier_wait(loaded.at[0])
                plgpu.barrier_arrive(filled)
                if not broken:
                    plgpu.barrier_wait(emptied)

            @pl.when(thread == 1)
            def _() -> None:
                plgpu.barrier_wait(filled)
                _double(smem, 0, smem, 0, o)
                plgpu.barrier_arrive(emptied)

    return _kernel(body, BLOCK, threads=2)


@_twin("special_mismatch", oracle=_blocks_summed, simulated="unwritten")
def never_stores_the_invariant_output(broken: bool) -> Kernel:
    """The sum of the blocks, kept in shared memory over the loop, and left there."""

    def body(x: Any, o: Any) -> None:
        @_scoped(x_smem=_slots(1), o_smem=_slots(1), loaded=plgpu.Barrier(num_barriers=1))
        def _(x_smem: Any, o_smem: Any, loaded: Any) -> None:
            o_smem[0] = jnp.zeros(BLOCK, jnp.float32)

            @pl.loop(0, STEPS)
            def _(step: Any) -> None:
                _fetch(x, x_smem, loaded, step, 0)
                plgpu.barrier_wait(loaded.at[0])
                o_smem[0] = o_smem[0] + x_smem[0]
                plgpu.commit_smem()

            if not broken:
                plgpu.copy_smem_to_gmem(o_smem.at[0], o)
                plgpu.wait_smem_to_gmem(0)

    return _kernel(body, BLOCK)


@_twin(
    "race", "total = total + x_smem", words="with plgpu.commit_smem()", oracle=_blocks_summed, simulated="pass",
    before_0_11="pass",
)  # fmt: skip
def input_only_pipeline_without_commit_smem(broken: bool) -> Kernel:
    """A carry summed over blocks; the body reads them and does not tell the copy engine that it has."""

    def body(x: Any, o: Any) -> None:
        def add(_: Any, x_smem: Any, total: Any) -> Any:
            total = total + x_smem[...]
            if not broken:
                plgpu.commit_smem()
            return total

        pipeline = plgpu.emit_pipeline(
            add,
            grid=(STEPS,),
            in_specs=[plgpu.BlockSpec(BLOCK, lambda i: (i, 0))],
            max_concurrent_steps=2,
            init_carry=jnp.zeros(BLOCK, jnp.float32),
        )
        o[...] = pipeline(x)

    return _kernel(body, BLOCK)


@_twin("race", "value = x_smem[")
def releases_before_it_reads(broken: bool) -> Kernel:
    """Manual consumed barriers: the body arrives before it has read."""
    return _specialized(lambda wg: "early" if broken else "late")


@_twin("hang")
def one_warpgroup_never_releases(broken: bool) -> Kernel:
    """Manual consumed barriers: one of the two compute warpgroups does not arrive."""
    return _specialized(lambda wg: jnp.where(wg == 1, 0, 1) if broken else "late")


def _specialized(when: Callable[[Any], Any]) -> Kernel:
    """Two compute warpgroups that double half a block each."""

    def body(x: Any, o: Any) -> None:
        wg = lax.axis_index("wg")
        half = ROWS // 2
        how = when(wg)

        def double(indices: Any, x_smem: Any, consumed: Any) -> None:
            rows = pl.ds(wg * half, half)
            if isinstance(how, str) and how == "early":
                plgpu.barrier_arrive(consumed)
            value = x_smem[rows] * 2
            plgpu.commit_smem()
            o[pl.ds(indices[0] * ROWS + wg * half, half)] = value
            if how == "late":
                plgpu.barrier_arrive(consumed)
            elif not isinstance(how, str):
                pl.when(how == 1)(lambda: plgpu.barrier_arrive(consumed))

        plgpu.emit_pipeline_warp_specialized(
            double,
            grid=(STEPS,),
            memory_registers=40,
            in_specs=[plgpu.BlockSpec(BLOCK, lambda i: (i, 0))],
            max_concurrent_steps=2,
            wg_axis="wg",
            num_compute_wgs=2,
            manual_consumed_barriers=True,
        )(x)

    return _kernel(body, threads=3)


@_twin("out_of_bounds")
def forgets_the_remainder(broken: bool) -> Kernel:
    """Two buffers, indexed by the step and not by its remainder."""

    def write(step: Any, value: Any, o_smem: Any, o: Any) -> None:
        slot = step if broken else lax.rem(step, 2)
        plgpu.wait_smem_to_gmem(1, wait_read_only=True)
        o_smem[slot] = value
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem.at[slot], o.at[_rows(step)])

    return _store_loop(write, 2)
