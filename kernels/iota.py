"""0, 1, 2, ... n-1: a kernel with no array argument."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

BLOCK = 64


def _store_program_id(o_ref: Any) -> None:
    i = pl.program_id(0)
    o_ref[i] = i


def _store_block(o_ref: Any, *, block: int, length: int) -> None:
    index = pl.program_id(0) * block + jnp.arange(block)
    plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index, mask=index < length)


def iota_grid(n: int) -> jax.Array:
    """`(n,)` int32, one program and one scalar store an element."""
    if n == 0:
        return jnp.zeros(0, jnp.int32)
    return pl.pallas_call(
        _store_program_id,
        grid=(n,),
        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),
        compiler_params=plgpu.CompilerParams(),
    )()


def iota_blocked(n: int, *, block: int = BLOCK) -> jax.Array:
    """`(n,)` int32, `block` elements a program (a power of two); the last block is masked."""
    if n == 0:
        return jnp.zeros(0, jnp.int32)
    return pl.pallas_call(
        functools.partial(_store_block, block=block, length=n),
        grid=(pl.cdiv(n, block),),
        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),
        compiler_params=plgpu.CompilerParams(),
    )()


def iota_scalar_memory(n: int) -> jax.Array:
    """`(n,)` int32 on a TPU, `n > 0`: the output lives in scalar memory, where single elements can be stored."""
    return pl.pallas_call(
        _store_program_id,
        grid=(n,),
        out_specs=pl.BlockSpec(memory_space=pltpu.SMEM),
        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),
        compiler_params=pltpu.CompilerParams(),
    )()
