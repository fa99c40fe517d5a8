"""Kernels with one bug each, of the kind that a normal input of a nice shape does not show."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK = 16


def add_without_tail(x: jax.Array, y: jax.Array) -> jax.Array:
    """The sum of two vectors; the grid rounds down, so that nobody writes the tail."""
    (n,) = x.shape

    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        at = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
        inside = pl.program_id(0) * BLOCK + jnp.arange(BLOCK) < n
        total = plgpu.load(x_ref.at[at], mask=inside, other=0) + plgpu.load(y_ref.at[at], mask=inside, other=0)
        plgpu.store(o_ref.at[at], total, mask=inside)

    return pl.pallas_call(
        body,
        grid=(max(n // BLOCK, 1),),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, y)


def transposed_tiles(x: jax.Array) -> jax.Array:
    """Doubles a matrix tile by tile; the output's tiles go where the transposed ones belong."""
    m, n = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        row, column = pl.program_id(0) * BLOCK + jnp.arange(BLOCK), pl.program_id(1) * BLOCK + jnp.arange(BLOCK)
        there, here = pl.ds(pl.program_id(0) * BLOCK, BLOCK), pl.ds(pl.program_id(1) * BLOCK, BLOCK)
        inside = (row[:, None] < m) & (column[None, :] < n)
        tile = plgpu.load(x_ref.at[there, here], mask=inside, other=0)
        plgpu.store(o_ref.at[here, there], tile + tile, mask=(column[:, None] < m) & (row[None, :] < n))

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, BLOCK), pl.cdiv(n, BLOCK)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)


def matmul_unmasked_depth(x: jax.Array, y: jax.Array) -> jax.Array:
    """A matrix product whose last step along k reads past the end of x: its mask forgets k."""
    (m, k), (_, n) = x.shape, y.shape

    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        row, column = pl.program_id(0) * BLOCK + jnp.arange(BLOCK), pl.program_id(1) * BLOCK + jnp.arange(BLOCK)
        rows, columns = pl.ds(pl.program_id(0) * BLOCK, BLOCK), pl.ds(pl.program_id(1) * BLOCK, BLOCK)

        def step(i: Any, total: jax.Array) -> jax.Array:
            depth, at = i * BLOCK + jnp.arange(BLOCK), pl.ds(i * BLOCK, BLOCK)
            left = plgpu.load(x_ref.at[rows, at], mask=row[:, None] < m, other=0)
            right = plgpu.load(y_ref.at[at, columns], mask=(depth[:, None] < k) & (column[None, :] < n), other=0)
            return total + jnp.dot(left, right, preferred_element_type=jnp.float32)

        total = jax.lax.fori_loop(0, pl.cdiv(k, BLOCK), step, jnp.zeros((BLOCK, BLOCK), jnp.float32))
        inside = (row[:, None] < m) & (column[None, :] < n)
        plgpu.store(o_ref.at[rows, columns], total.astype(o_ref.dtype), mask=inside)

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, BLOCK), pl.cdiv(n, BLOCK)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x, y)


def softmax_unguarded(x: jax.Array) -> jax.Array:
    """Softmax of rows; a row that is masked altogether divides zero by zero."""
    m, n = x.shape
    width = pl.next_power_of_2(n)

    def body(x_ref: Any, o_ref: Any) -> None:
        column = jnp.arange(width)
        at, inside = (pl.program_id(0), column), column < n
        row = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)
        e = jnp.exp(row - jnp.max(row))
        plgpu.store(o_ref.at[at], (e / jnp.sum(e)).astype(o_ref.dtype), mask=inside)

    return pl.pallas_call(
        body,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)


def row_sums_in_input_dtype(x: jax.Array) -> jax.Array:
    """Sums of rows, accumulated one element after another in the dtype of the input."""
    m, n = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        row = pl.program_id(0)

        def step(i: Any, total: jax.Array) -> jax.Array:
            return total + x_ref[row, i]

        o_ref[row] = jax.lax.fori_loop(0, n, step, jnp.zeros((), x_ref.dtype))

    return pl.pallas_call(
        body,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m,), x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)


def racing_total(x: jax.Array) -> jax.Array:
    """The sum of a vector; all programs add to one element, which a GPU does in no order."""
    (n,) = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        inside = pl.program_id(0) * BLOCK + jnp.arange(BLOCK) < n
        part = jnp.sum(plgpu.load(x_ref.at[pl.ds(pl.program_id(0) * BLOCK, BLOCK)], mask=inside, other=0))

        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            o_ref[0] = jnp.zeros((), o_ref.dtype)

        o_ref[0] += part

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(n, BLOCK),),
        out_shape=jax.ShapeDtypeStruct((1,), x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)


def sorted_rows(x: jax.Array) -> jax.Array:
    """Each row in ascending order: right, but Triton has no lowering for a sort."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.program_id(0), :] = jnp.sort(x_ref[pl.program_id(0), :])

    return pl.pallas_call(
        body,
        grid=x.shape[:1],
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)


def clamp(x: jax.Array) -> jax.Array:
    """Values limited to [-1, 1], with nothing wrong; NaN stays NaN."""
    (n,) = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        at = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
        inside = pl.program_id(0) * BLOCK + jnp.arange(BLOCK) < n
        value = plgpu.load(x_ref.at[at], mask=inside, other=0)
        plgpu.store(o_ref.at[at], jnp.where(value > 1, 1.0, jnp.where(value < -1, -1.0, value)), mask=inside)

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(n, BLOCK),),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)
