"""Warp-specialized Mosaic GPU pipelines: one warpgroup fetches blocks, one or two others compute."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.pipeline_copy import BLOCK, BLOCK_M, BLOCK_N, blocks_of

MEMORY_REGISTERS = 40


def specialized_double(
    x: jax.Array,
    *,
    warpgroups: int = 1,
    manual_release: bool = False,
    memory_thread: int | None = None,
    stages: tuple[int, int] = (2, 0),
) -> jax.Array:
    """`2 x`. One warpgroup stores through shared memory; two write half a block each to global memory.

    Args:
      x: `(m, n)`, floating point, whole blocks of 64 in both axes.
      warpgroups: that compute, 1 or 2.
      manual_release: the body itself arrives at the barrier that frees an input buffer.
      memory_thread: the warpgroup that fetches: the last, which None stands for.
      stages: how many blocks may be under way at once (`max_concurrent_steps`), and for how many steps after its
        own an input buffer is kept (`delay_release`), which are fewer.
    """
    rows, columns = blocks_of(x.shape)
    half = BLOCK_M // 2
    through_smem = warpgroups == 1

    def body(indices: Any, x_smem: Any, *rest: Any) -> None:
        i, j = indices
        if through_smem:
            rest[0][...] = x_smem[...] * 2
        else:
            warpgroup = lax.axis_index("wg")
            value = x_smem[pl.ds(warpgroup * half, half), :] * 2
            rest[0][pl.ds(i * BLOCK_M + warpgroup * half, half), pl.ds(j * BLOCK_N, BLOCK_N)] = value
        plgpu.commit_smem()  # before the release: the copy engine may write to the buffer from then on
        if manual_release:
            pl.when(i * columns + j >= stages[1])(lambda: plgpu.barrier_arrive(rest[1]))

    def kernel(x_gmem: Any, o_gmem: Any) -> None:
        source = plgpu.BlockSpec(BLOCK, lambda i, j: (i, j), delay_release=stages[1])
        target = plgpu.BlockSpec(BLOCK, lambda i, j: (i, j))
        plgpu.emit_pipeline_warp_specialized(
            body if through_smem else lambda indices, x_smem, *consumed: body(indices, x_smem, o_gmem, *consumed),
            grid=(rows, columns),
            memory_registers=MEMORY_REGISTERS,
            in_specs=[source],
            out_specs=[target] if through_smem else [],
            max_concurrent_steps=stages[0],
            wg_axis="wg",
            num_compute_wgs=warpgroups,
            manual_consumed_barriers=manual_release,
            memory_thread_idx=memory_thread,
        )(*((x_gmem, o_gmem) if through_smem else (x_gmem,)))

    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return plgpu.kernel(kernel, out_type=out, num_threads=warpgroups + 1, thread_name="wg")(x)


def specialized_total(x: jax.Array, *, warpgroups: int = 1, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """The sum of all blocks, `(64, 64)`: a carry that each computing warpgroup keeps of its rows.

    Args:
      x: `(m, 64)`, float32, whole blocks of 64 rows.
      warpgroups: that compute, 1 or 2.
      stages: as in `specialized_double`.
    """
    blocks, _ = blocks_of(x.shape)
    rows = BLOCK_M // warpgroups

    def kernel(x_gmem: Any, o_gmem: Any) -> None:
        own = pl.ds(lax.axis_index("wg") * rows, rows)

        def body(_: Any, x_smem: Any, total: Any) -> Any:
            total = total + x_smem[own, :]
            plgpu.commit_smem()
            return total

        def compute(pipeline: Any) -> None:
            o_gmem[own, :] = pipeline(jnp.zeros((rows, BLOCK_N), jnp.float32))

        plgpu.emit_pipeline_warp_specialized(
            body,
            grid=(blocks,),
            memory_registers=MEMORY_REGISTERS,
            in_specs=[plgpu.BlockSpec(BLOCK, lambda i: (i, 0), delay_release=stages[1])],
            max_concurrent_steps=stages[0],
            wg_axis="wg",
            num_compute_wgs=warpgroups,
            compute_context=compute,
        )(x_gmem)

    out = jax.ShapeDtypeStruct((BLOCK_M, x.shape[1]), x.dtype)
    return plgpu.kernel(kernel, out_type=out, num_threads=warpgroups + 1, thread_name="wg")(x)
