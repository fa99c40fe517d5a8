"""0, 1, 2, ... n-1 on a TPU, a tile of 8 x 128 numbers a step. (`iota_scalar_memory` stores one a step.)"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

TILE = (8, 128)
BLOCK = TILE[0] * TILE[1]


def _store_tile(o_ref: Any) -> None:
    # A TPU has no iota of one axis: `jnp.arange` does not lower.
    row = jax.lax.broadcasted_iota(jnp.int32, TILE, 0)
    lane = jax.lax.broadcasted_iota(jnp.int32, TILE, 1)
    o_ref[...] = pl.program_id(0) * BLOCK + row * TILE[1] + lane


def tpu_iota(n: int) -> jax.Array:
    """`(n,)` int32; what the last tile holds past the end is cut off."""
    if n == 0:
        return jnp.zeros(0, jnp.int32)
    tiles = pl.cdiv(n, BLOCK)
    numbers = pl.pallas_call(
        _store_tile,
        grid=(tiles,),
        out_specs=pl.BlockSpec(TILE, lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((tiles * TILE[0], TILE[1]), jnp.int32),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )()
    return numbers.reshape(-1)[:n]
