"""A matrix product for Hopper GPUs in Mosaic GPU: blocks travel through shared memory in a pipeline, to wgmma."""

from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.pipeline_copy import BLOCK, BLOCK_M, BLOCK_N, blocks_of

SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def hopper_matmul(a: jax.Array, b: jax.Array, *, stages: int = 2) -> jax.Array:
    """`a @ b`, summed in float32.

    Args:
      a, b: `(m, k)` and `(k, n)`, float16 or bfloat16, whole blocks of 64 in all axes.
      stages: how many blocks of each may be under way at once, at least 2. One of them is kept for a step after its
        own, while wgmma reads it.
    """
    rows, steps = blocks_of(a.shape)
    _, columns = blocks_of(b.shape)

    def body(a_gmem: Any, b_gmem: Any, o_gmem: Any, o_smem: Any) -> None:
        i, j = lax.axis_index("i"), lax.axis_index("j")

        def product(total: Any) -> jax.Array:
            def step(_: Any, a_smem: Any, b_smem: Any) -> None:
                plgpu.wgmma(total, a_smem, b_smem)
                plgpu.wgmma_wait(1)

            options: dict[str, Any] = {"transforms": SWIZZLED, "delay_release": 1}
            blocks = [
                plgpu.BlockSpec(BLOCK, lambda k: (i, k), **options),
                plgpu.BlockSpec(BLOCK, lambda k: (k, j), **options),
            ]
            pipeline = plgpu.emit_pipeline(step, grid=(steps,), in_specs=blocks, max_concurrent_steps=stages)
            pipeline(a_gmem, b_gmem)
            return total[...]

        o_smem[...] = pl.run_scoped(product, plgpu.ACC(BLOCK)).astype(o_smem.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[pl.ds(i * BLOCK_M, BLOCK_M), pl.ds(j * BLOCK_N, BLOCK_N)])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(rows, columns),
        grid_names=("i", "j"),
        scratch_types={"o_smem": plgpu.SMEM(BLOCK, a.dtype, transforms=SWIZZLED)},
    )(a, b)
