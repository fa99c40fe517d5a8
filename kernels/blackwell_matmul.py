"""A matrix product for Blackwell GPUs in Mosaic GPU, by tcgen05 in tensor memory, on one or two blocks."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

TILE, STEP, SLOTS = 128, 64, 2
SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def blackwell_matmul(a: jax.Array, b: jax.Array, *, blocks: int = 1) -> jax.Array:
    """`a @ b`, summed in float32.

    Args:
      a, b: `(m, k)` and `(k, n)`, float16 or bfloat16; m and n whole tiles of 128 * `blocks`, k of 64.
      blocks: how many compute a tile together, 1 or 2. Each of two has half of the rows of `a` and of the columns of
        `b`; the first starts the products.
    """
    side, steps = TILE * blocks, a.shape[1] // STEP
    both = {"collective_axis": "x"} if blocks == 2 else {}

    def body(
        a_ref: Any, b_ref: Any, o_ref: Any, a_smem: Any, b_smem: Any, o_smem: Any, acc: Any, **barriers: Any
    ) -> None:
        loaded, used = barriers["loaded"], barriers["used"]
        block = lax.axis_index("x")
        rows, columns = pl.ds(lax.axis_index("i") * side, side), pl.ds(lax.axis_index("j") * side, side)

        def copy(source: Any, target: Any, barrier: Any, axis: int) -> None:
            part: Any = {"collective_axes": "x", "leader_tracked": plgpu.CopyPartition.PARTITIONED(axis)}
            plgpu.copy_gmem_to_smem(source, target, barrier, **(part if both else {}))

        @pl.loop(0, steps)
        def _(k: Any) -> None:
            slot, step = lax.rem(k, SLOTS), pl.ds(k * STEP, STEP)
            pl.when(k >= SLOTS)(lambda: plgpu.barrier_wait(used.at[slot]))
            copy(a_ref.at[rows, step], a_smem.at[slot], loaded.at[slot], 0)
            copy(b_ref.at[step, columns], b_smem.at[slot], loaded.at[slot], 1)

            @pl.when(block == 0)
            def _() -> None:
                plgpu.barrier_wait(loaded.at[slot])
                plgpu.tcgen05_mma(acc, a_smem.at[slot], b_smem.at[slot], used.at[slot], accumulate=k > 0, **both)

        plgpu.barrier_wait(used.at[(steps - 1) % SLOTS])
        o_smem[...] = plgpu.async_load_tmem(acc).astype(o_smem.dtype)
        plgpu.commit_smem()
        own = pl.ds(lax.axis_index("i") * side + block * TILE, TILE)
        plgpu.copy_smem_to_gmem(o_smem, o_ref.at[own, columns])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(a.shape[0] // side, b.shape[1] // side),
        grid_names=("i", "j"),
        cluster=(blocks,),
        cluster_names=("x",),
        scratch_types={
            "a_smem": plgpu.SMEM((SLOTS, TILE, STEP), a.dtype, transforms=SWIZZLED),
            "b_smem": plgpu.SMEM((SLOTS, STEP, TILE), b.dtype, transforms=SWIZZLED),
            "o_smem": plgpu.SMEM((TILE, side), a.dtype, transforms=SWIZZLED),
            "acc": plgpu.TMEM((TILE, side), jnp.float32, collective=blocks == 2),
            "loaded": plgpu.Barrier(num_arrivals=2, num_barriers=SLOTS),
            "used": plgpu.Barrier(num_barriers=SLOTS, orders_tensor_core=True),
        },
    )(a, b)
