"""Kernels of other lengths mostly consist of equations of the same kinds; whatever else differs makes another kind."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kerneltest.trace.jaxpr_digest import equation_kinds


def _kinds(
    body: Callable[[jax.Array], jax.Array] = lambda x: x + 1,
    m: int = 40,
    n: int = 100,
    *,
    block: int = 32,
    index_map: Callable[[Any, Any], tuple[Any, Any]] = lambda i, j: (i, j),
    dtype: Any = jnp.float32,
) -> frozenset[Any]:
    def run(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = body(x_ref[...]).astype(o_ref.dtype)

    x = jax.ShapeDtypeStruct((m, n), dtype)
    spec = pl.BlockSpec((block, block), index_map)
    call = pl.pallas_call(
        run, out_shape=x, grid=(pl.cdiv(m, block), pl.cdiv(n, block)), in_specs=[spec], out_specs=spec
    )
    return equation_kinds(jax.make_jaxpr(call)(x))


def _access(load: Callable[[Any], jax.Array], n: int = 64) -> frozenset[Any]:
    def run(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = load(x_ref)

    x = jax.ShapeDtypeStruct((n, n), jnp.float32)
    out = jax.eval_shape(lambda x: load(_Indexed(x)), x)
    return equation_kinds(jax.make_jaxpr(pl.pallas_call(run, out_shape=out))(x))


class _Indexed:
    def __init__(self, x: jax.Array) -> None:
        self.x = x

    def __getitem__(self, index: Any) -> jax.Array:
        parts = [
            each if not isinstance(each, pl.Slice) else slice(0, each.size * each.stride, each.stride) for each in index
        ]
        return self.x[tuple(parts)]


def _masked(n: int, width: int) -> frozenset[Any]:
    def run(x_ref: Any, o_ref: Any) -> None:
        at = (pl.program_id(0), pl.ds(pl.program_id(1) * width, width))
        inside = pl.program_id(1) * width + jnp.arange(width) < n
        plgpu.store(o_ref.at[at], plgpu.load(x_ref.at[at], mask=inside, other=0.0), mask=inside)

    x = jax.ShapeDtypeStruct((5, n), jnp.float32)
    return equation_kinds(jax.make_jaxpr(pl.pallas_call(run, out_shape=x, grid=(5, pl.cdiv(n, width))))(x))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (_kinds(m=70, n=1000), True),
        (_kinds(lambda x: x + 2.5), True),  # the value of a float
        (_kinds(lambda x: x + 1 + 1), True),  # more of the same
        (_kinds(n=128), False),  # blocks that fit
        (_kinds(n=20), False),  # one block, which is too long
        (_kinds(n=1), False),
        (_kinds(block=20), False),
        (_kinds(index_map=lambda i, j: (i, 0)), False),
        (_kinds(index_map=lambda i, j: (i, j // 2)), False),
        (_kinds(lambda x: x * x), False),
        (_kinds(dtype=jnp.bfloat16), False),
    ],
)
def test_lengths_make_no_kind_unless_blocks_fit_otherwise(other: frozenset[Any], same: bool) -> None:
    assert (other == _kinds()) is same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x + x.sum(0), lambda x: x + x.sum(1)),
        (lambda x: jnp.roll(x, 2, 0), lambda x: jnp.roll(x, 2, 1)),
        (lambda x: x[:, ::-1], lambda x: x[::-1]),
        (lambda x: x + jnp.arange(32), lambda x: x + jnp.arange(32)[:, None]),
        (
            lambda x: jax.lax.fori_loop(0, 1, lambda i, y: y * x, x),
            lambda x: jax.lax.fori_loop(0, 0, lambda i, y: y * x, x),
        ),
    ],
)
def test_axes_and_loops_without_a_step_are_kinds_of_their_own(
    one: Callable[[jax.Array], jax.Array], other: Callable[[jax.Array], jax.Array]
) -> None:
    assert _kinds(one) != _kinds(other)


def test_how_an_access_fits_its_array_is_a_kind() -> None:
    assert _masked(100, 128) == _masked(65, 256)
    assert _masked(200, 128) == _masked(300, 128)
    assert len({_masked(n, 128) for n in (1, 100, 128, 200, 256)}) == 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda ref: ref[pl.ds(0, 16, stride=1), :], lambda ref: ref[pl.ds(0, 16, stride=2), :]),
        (lambda ref: ref[pl.ds(0, 16), :], lambda ref: ref[pl.ds(48, 16), :]),
        (lambda ref: ref[3, :], lambda ref: ref[:, 3]),
    ],
)
def test_which_part_an_access_takes_is_a_kind(
    one: Callable[[Any], jax.Array], other: Callable[[Any], jax.Array]
) -> None:
    assert _access(one) != _access(other)
    assert _access(one) == _access(one, 128)


def test_a_loop_over_slices_is_of_another_kind_than_one_over_numbers() -> None:
    def total(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, row: (carry + row, None), x[0], x)[0] + x

    def power(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, _: (carry + x[0], None), x[0], None, length=32)[0] + x

    assert _kinds(total) != _kinds(power)
