"""A TPU stores arrays in whole tiles: a copy may reach past an array's end up to its last tile, but not further."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import kerneltest as kt
from kerneltest.trace.jax_compat.tpu_interpreter import padded_shape
from tests.found import findings

WHOLE = pl.BlockSpec(memory_space=pl.ANY)


def pipelined(body: Callable[..., None], x: jax.Array, columns: int, index: Callable[..., Any]) -> jax.Array:
    """Runs a body on blocks of 8 by 128 that a pipeline copies from and to main memory."""
    rows, length = x.shape

    def kernel(x_ref: Any, o_ref: Any) -> None:
        pltpu.emit_pipeline(
            body,
            grid=(pl.cdiv(rows, 8), pl.cdiv(length, 128)),
            in_specs=[pl.BlockSpec((8, 128), lambda i, j: (i, j))],
            out_specs=[pl.BlockSpec((8, 128), index)],
        )(x_ref, o_ref)

    out = jax.ShapeDtypeStruct((rows, columns), x.dtype)
    return pl.pallas_call(kernel, out_shape=out, in_specs=[WHOLE], out_specs=WHOLE)(x)


def doubled(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = 2 * x_ref[...]

    return pipelined(body, x, x.shape[1], lambda i, j: (i, j))


def row_sums(x: jax.Array, masked: bool = True) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        column = pl.program_id(1)

        @pl.when(column == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        at = column * 128 + jax.lax.broadcasted_iota(jnp.int32, (8, 128), 1)
        values = jnp.where(at < x.shape[1], x_ref[...], 0) if masked else x_ref[...]
        o_ref[...] += jnp.broadcast_to(jnp.sum(values, axis=1, keepdims=True), (8, 128))

    return pipelined(body, x, 128, lambda i, j: (i, 0))


def copied_from(start: int) -> Callable[[jax.Array], jax.Array]:
    """Returns a kernel that copies 8 rows to the output, from a row that only values tell."""

    def kernel(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
        rows = x_ref.at[pl.ds(start + 0 * pl.program_id(0), 8)]
        pltpu.make_async_copy(rows, o_ref, semaphore).start()
        pltpu.make_async_copy(rows, o_ref, semaphore).wait()

    def call(x: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct((8, x.shape[1]), x.dtype)
        semaphores = [pltpu.SemaphoreType.DMA]
        return pl.pallas_call(
            kernel, out_shape=out, grid=(1,), in_specs=[WHOLE], out_specs=WHOLE, scratch_shapes=semaphores
        )(x)

    return call


def as_summed(x: np.ndarray) -> np.ndarray:
    return np.repeat(x.sum(axis=1, keepdims=True), 128, axis=1)


# A kernel, its oracle, and what findings on arrays of 12 rows and 136 columns say; "" if there must be none.
KERNELS = {
    "moved whole": (doubled, lambda x: 2 * x, ""),
    "masked": (row_sums, as_summed, ""),
    "without a mask": (lambda x: row_sums(x, masked=False), as_summed, "never written"),
    "past the last tile": (copied_from(16), lambda x: x[:8], "x_ref[16:24, 0:136] is read at"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_only_what_depends_on_padding_or_leaves_it_is_found(name: str) -> None:
    kernel, oracle, words = KERNELS[name]
    x, dims = kt.array("m k", "float32"), {"m": kt.dim(values=(12,)), "k": kt.dim(values=(136,))}
    made = kt.oracle_for(kernel, x=x, dims=dims)(oracle)
    if words:
        assert any(words in each.message for each in findings(made, ["interpret-tpu"]))
        return
    result = kt.check(made, backends=["interpret-tpu"], depth="quick")
    assert any(each.compared for each in result.records)
    assert not result.findings


@pytest.mark.parametrize(
    ("shape", "dtype", "padded"),
    [
        ((12, 136), "float32", (16, 256)),
        ((3, 1, 5), "float32", (3, 1, 128)),
        ((3, 5), "float32", (4, 128)),
        ((1, 5), "bfloat16", (2, 128)),
        ((12, 8), "int8", (16, 128)),
        ((5,), "float32", (128,)),
        ((300,), "bfloat16", (512,)),
        ((), "float32", ()),
        ((3, 5), "float64", (3, 5)),
    ],
)
def test_arrays_take_whole_tiles(shape: tuple[int, ...], dtype: str, padded: tuple[int, ...]) -> None:
    assert padded_shape(shape, jnp.dtype(dtype)) == padded
