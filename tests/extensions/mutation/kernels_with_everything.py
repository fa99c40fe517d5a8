"""Kernels that contain, all together, something for each mutation operator."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

ROWS, COLUMNS, BLOCK = 4, 24, 16


def _masked(x_ref: Any, count_ref: Any, o_ref: Any) -> None:
    i = pl.program_id(0)
    index = i * BLOCK + jnp.arange(BLOCK)
    mask = (index < COLUMNS) & (index >= 1)
    x = plgpu.load(x_ref.at[pl.ds(i * BLOCK, BLOCK)], mask=mask, other=0.0)
    y = jnp.where(x > 0.5, -x, jnp.minimum(jnp.maximum(x - 0.25, -2.0), 3.0) * 1.5)
    y = jnp.clip(y, -2.5, 2.5) / (jnp.exp(x) + 1.25) + jnp.abs(y) ** 3 - jax.lax.integer_pow(x, 2)
    y = jnp.where(jnp.isfinite(y), y, 0.0) + jnp.cumsum(x) + count_ref[0].astype(jnp.float32) * 2.0**-8
    y = y + jnp.sum(y) + jnp.max(y)
    plgpu.store(o_ref.at[pl.ds(i * BLOCK, BLOCK)], y, mask=mask)


def masked(x: Any, count: Any) -> Any:
    return pl.pallas_call(
        _masked, grid=(2,), out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), compiler_params=plgpu.CompilerParams()
    )(x, count)


def _product(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    def step(k: Any, total: Any) -> Any:
        x = x_ref[:, pl.ds(k * 8, 8)]
        y = y_ref[pl.ds(k * 8, 8), :]
        return total + jnp.dot(x, y.T.T, precision="highest")

    o_ref[...] = jax.lax.fori_loop(0, 2, step, jnp.zeros((8, 8), jnp.float32))


def product(x: Any, y: Any) -> Any:
    return pl.pallas_call(
        _product,
        grid=(2, 2),
        in_specs=[pl.BlockSpec((8, 16), lambda i, j: (i, 0)), pl.BlockSpec((16, 8), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((8, 8), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((16, 16), jnp.float32),
    )(x, y)


def _branches(x_ref: Any, o_ref: Any) -> None:
    i = pl.program_id(0)

    @pl.when(i == 0)
    def _first() -> None:
        o_ref[...] = jnp.zeros_like(o_ref)

    o_ref[...] += jnp.swapaxes(x_ref[...], 0, 1)
    jax.ref.addupdate(o_ref, ..., x_ref[...])


def branches(x: Any) -> Any:
    return pl.pallas_call(
        _branches,
        grid=(2,),
        in_specs=[pl.BlockSpec((8, 8), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((8, 8), lambda i: (0, 0)),
        out_shape=jax.ShapeDtypeStruct((8, 8), jnp.float32),
    )(x)


def _copies(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
    copy = pltpu.make_async_copy(x_ref, o_ref, semaphore)
    copy.start()
    copy.wait()


def copies(x: Any) -> Any:
    return pl.pallas_call(
        _copies,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )(x)


RNG = np.random.default_rng(0)


def _values(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


KERNELS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "masked": (masked, [_values(COLUMNS), np.array([257], np.int32)]),
    "product": (product, [_values(16, 16), _values(16, 16)]),
    "branches": (branches, [_values(16, 8)]),
    "copies": (copies, [_values(8, 128)]),
}
