"""Mosaic GPU's `emit_pipeline` stores an output block at its first visit, not at its last.

Two steps add up two blocks of ones in a carry and write the sum so far to the same output block; between rows of the
grid the block changes. The output of a row should be 2. Each row but the last keeps its first step's 1, since the copy
to global memory is issued where the block *becomes* another one (and in the last step), while a later step writes only
to shared memory. A TPU pipeline gives 2. Read from jax/_src/pallas/mosaic_gpu/pipeline.py of JAX 0.10.2, 0.11.2 and
0.12.0.1; seen with the values of JAX's interpreter, which sees the last row's two stores as a race as well.
Needs a Hopper GPU.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

BLOCK = (64, 64)


def body(indices, x_smem, o_smem, total):
    total = jnp.where(indices[1] == 0, 0.0, 1.0) * total + x_smem[...]
    o_smem[...] = total
    return total


def row_totals(x_gmem, o_gmem):
    plgpu.emit_pipeline(
        body,
        grid=(2, 2),
        in_specs=[plgpu.BlockSpec(BLOCK, lambda i, j: (i, j))],
        out_specs=[plgpu.BlockSpec(BLOCK, lambda i, j: (i, 0))],
        max_concurrent_steps=2,
        init_carry=jnp.zeros(BLOCK, jnp.float32),
    )(x_gmem, o_gmem)


out = plgpu.kernel(row_totals, out_type=jax.ShapeDtypeStruct((128, 64), jnp.float32))(jnp.ones((128, 128)))
print("JAX", jax.__version__, "rows give", out[0, 0], "and", out[64, 0], "where both should give 2.0")
raise SystemExit(int(not (out == 2).all()))
