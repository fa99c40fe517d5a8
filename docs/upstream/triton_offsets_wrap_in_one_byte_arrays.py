"""On a GPU, a Pallas kernel loses its way in an array of 2^31 to 2^32 elements of one byte.

The Triton lowering computes offsets in 64 bits where an array has over 2^32 bytes, and in 32 bits where it has fewer.
Offsets count elements and are signed, so an array of int8 wraps around from 2^31 elements on. A plain copy by block
specs reads and writes before its arrays: an illegal address on an H200 with JAX 0.11.2; 0.10.2 and 0.12.0 emit the
same offsets. Run it on a GPU; it takes two arrays of 2.9 GB.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

ROWS, COLUMNS, BLOCK = 70_000, 40_960, 1024  # 2,867,200,000 elements


def body(x_ref, o_ref):
    o_ref[...] = x_ref[...]


@jax.jit
def copy(x):
    block = pl.BlockSpec((1, BLOCK), lambda i, j: (i, j))
    grid = (ROWS, COLUMNS // BLOCK)
    return pl.pallas_call(
        body, out_shape=x, grid=grid, in_specs=[block], out_specs=block, compiler_params=plgpu.CompilerParams()
    )(x)


x = jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 0).astype(jnp.int8)
y = jax.block_until_ready(copy(x))
wrong = jnp.any(x != y, axis=1)
first = int(jnp.argmax(wrong))
print(f"{int(wrong.sum()):,} of {ROWS:,} rows are wrong, the first {first:,}, at element {first * COLUMNS:,}")
