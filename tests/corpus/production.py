"""Kernels that are right at every length that fits, and wrong at those that users run, each with a right twin."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from tests.corpus.twin import Twin

BLOCK = 1024
RIGHT_ON = ("simulate:sm_90", "simulate:gfx942", "lower:gfx942")


def one_axis(body: Callable[..., None], *arrays: jax.Array, n: int, dtype: Any, block: int = BLOCK) -> Any:
    """A call over blocks of an axis of n elements."""
    out = jax.ShapeDtypeStruct((n,), dtype)
    return pl.pallas_call(body, out_shape=out, grid=(pl.cdiv(n, block),))(*arrays)


def lanes(block: int = BLOCK) -> Any:
    return pl.program_id(0) * block + jnp.arange(block)


def ramp(x: jax.Array, *, kept: Any, block: int = BLOCK) -> Any:
    """x plus the position, which is kept in some dtype."""

    def body(x_ref: Any, o_ref: Any) -> None:
        at = lanes(block)
        inside = at < x.shape[0]
        value = plgpu.load(x_ref.at[at], mask=inside, other=0)
        plgpu.store(o_ref.at[at], value + at.astype(kept).astype(x.dtype), mask=inside)

    return one_axis(body, x, n=x.shape[0], dtype=x.dtype, block=block)


def narrow(x: jax.Array, *, kept: Any, block: int = BLOCK) -> Any:
    """x, whose elements are found by an index of some dtype."""

    def body(x_ref: Any, o_ref: Any) -> None:
        at = lanes(block)
        inside = at < x.shape[0]
        value = plgpu.load(x_ref.at[at.astype(kept).astype(jnp.int32)], mask=inside, other=0)
        plgpu.store(o_ref.at[at], value, mask=inside)

    return one_axis(body, x, n=x.shape[0], dtype=x.dtype, block=block)


def flat_rows(x: jax.Array, *, whole: bool) -> Any:
    """x, its elements found by one index into all of it, or by row and column."""
    rows, columns = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        row, column = pl.program_id(0), pl.program_id(1) * BLOCK + jnp.arange(BLOCK)
        inside = column < columns
        at = (row * columns + column,) if whole else (row, column)
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at], mask=inside, other=0), mask=inside)

    given, shape = (x.reshape(-1), (rows * columns,)) if whole else (x, x.shape)
    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(shape, x.dtype), grid=(rows, pl.cdiv(columns, BLOCK)))
    return call(given).reshape(x.shape)


def first_bytes(x: jax.Array, *, whole: bool) -> Any:
    """The first byte of each word: x holds four bytes for each."""
    n = x.shape[0]

    def body(x_ref: Any, o_ref: Any) -> None:
        at = lanes()
        inside = at < n
        where = (at * 4,) if whole else (at, 0)
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[where], mask=inside, other=0), mask=inside)

    return one_axis(body, x.reshape(-1) if whole else x, n=n, dtype=x.dtype)


def heads(x: jax.Array, *, whole: bool) -> Any:
    """x of batches, heads and elements, found by a product of strides or by each axis."""
    b, h, d = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        i, j, at = pl.program_id(0), pl.program_id(1), jnp.arange(pl.next_power_of_2(d))
        inside = at < d
        where = (i * (h * d) + j * d + at,) if whole else (i, j, at)
        plgpu.store(o_ref.at[where], plgpu.load(x_ref.at[where], mask=inside, other=0), mask=inside)

    shape = (b * h * d,) if whole else x.shape
    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(shape, x.dtype), grid=(b, h))
    return call(x.reshape(shape)).reshape(x.shape)


def row_sums(x: jax.Array, *, carried: bool) -> Any:
    """The sum of each row, over an offset that a loop carries on, or over each axis."""
    rows, columns = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        row, lane = pl.program_id(0), jnp.arange(BLOCK)

        def turn(k: Any, carry: Any) -> Any:
            offset, total = carry
            inside = k * BLOCK + lane < columns
            where = (offset + lane,) if carried else (row, k * BLOCK + lane)
            loaded = plgpu.load(x_ref.at[where], mask=inside, other=0).astype(jnp.int32)
            return offset + BLOCK, total + loaded

        start = (row * columns, jnp.zeros(BLOCK, jnp.int32))
        o_ref[row] = jnp.sum(jax.lax.fori_loop(0, pl.cdiv(columns, BLOCK), turn, start)[1])

    given = x.reshape(-1) if carried else x
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((rows,), jnp.int32), grid=(rows,))(given)


def raised(x: jax.Array, *, steps: bool) -> Any:
    """x plus one, a program for each block of sixteen: along one axis of the grid, or along two."""
    width, row = 16, 4096
    blocks = pl.cdiv(x.shape[0], width)

    def body(x_ref: Any, o_ref: Any) -> None:
        at = pl.program_id(0) * row + pl.program_id(1) if steps else pl.program_id(0)
        lane = at * width + jnp.arange(width)
        inside = lane < x.shape[0]
        plgpu.store(o_ref.at[lane], plgpu.load(x_ref.at[lane], mask=inside, other=0) + 1, mask=inside)

    grid = (pl.cdiv(blocks, row), row) if steps else (blocks,)
    return pl.pallas_call(body, out_shape=x, grid=grid)(x)


def _twin(
    kernel: Callable[..., Any],
    broken: Mapping[str, Any],
    right: Mapping[str, Any],
    oracle: Callable[..., Any],
    options: Mapping[str, Any],
    verdict: str,
    words: str,
    name: str,
    backend: str = "simulate:sm_90",
) -> Twin:
    def pairing(is_broken: bool) -> kt.Pairing:
        return kt.oracle_for(functools.partial(kernel, **(broken if is_broken else right)), **options)(oracle)

    return Twin(
        name=name, make=pairing, verdicts={backend: verdict}, words=words, cases="production", right_on=RIGHT_ON
    )


def _one(dtype: str, production: int, **more: Any) -> dict[str, Any]:
    return dict(x=kt.array("n", dtype), dims=dict(n=kt.dim(block=BLOCK, production=production)), **more)


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x


def _ramped(x: np.ndarray) -> np.ndarray:
    return x + np.arange(len(x))


UP_TO = {"n": lambda i: slice(0, i + 1)}
WRAPS = "out_of_bounds"

PRODUCTION = (
    *(
        _twin(
            ramp, dict(kept=kept), dict(kept="int32"), _ramped,
            _one("int32", production, needs=UP_TO), "mismatch", "sampled elements are wrong",
            f"positions in {kept}")
        for kept, production in (("bfloat16", 10_000), ("float16", 100_000))
    ),
    *(
        _twin(
            narrow, dict(kept=kept), dict(kept="int32"), _unchanged,
            _one("int32", production, batch_dims="n"), "out_of_bounds", "load at x_ref offset -",
            f"an index in {kept}")
        for kept, production in (("int8", 10_000), ("int16", 1_000_000))
    ),
    _twin(
        flat_rows, dict(whole=True), dict(whole=False), _unchanged,
        dict(x=kt.array("m n", "float16"), batch_dims=("m", "n"),
             dims=dict(m=kt.dim(production=131_072), n=kt.dim(block=BLOCK, production=40_960))),
        WRAPS, "an index wraps around: ", "an offset past 2^31 elements",
    ),
    _twin(
        first_bytes, dict(whole=True), dict(whole=False), lambda x: x[:, 0],
        dict(x=kt.array("n 4", "int8"), batch_dims="n", dims=dict(n=kt.dim(block=BLOCK, production=1_200_000_000))),
        WRAPS, "an index wraps around: ", "an offset past 2^31 bytes",
    ),
    _twin(
        heads, dict(whole=True), dict(whole=False), _unchanged,
        dict(x=kt.array("b h d", "float16"), batch_dims=("b", "h"),
             dims=dict(b=kt.dim(production=40_000), h=kt.dim(production=1024), d=kt.dim(values=(128,)))),
        WRAPS, "an index wraps around: ", "a product of two strides",
    ),
    _twin(
        row_sums, dict(carried=True), dict(carried=False), lambda x: x.sum(axis=1),
        dict(x=kt.array("m n", "int16"), batch_dims="m",
             dims=dict(m=kt.dim(production=131_072), n=kt.dim(block=BLOCK, production=40_960))),
        WRAPS, "an index wraps around: ", "an offset that a loop carries",
    ),
    _twin(
        raised, dict(steps=False), dict(steps=True), lambda x: x + 1,
        dict(x=kt.array("n", "int32"), batch_dims="n", dims=dict(n=kt.dim(block=16, production=2**28))),
        "resource_exceeded", "work items", "a grid axis over its limit", "lower:gfx942",
    ),
    _twin(
        ramp, dict(kept="float32"), dict(kept="int32"), _ramped, _one("int32", 17_000_000, needs=UP_TO), "mismatch",
        "sampled elements are wrong", "positions in float32",
    ),  # the longest of all, and last: `make test` leaves it out
)  # fmt: skip
