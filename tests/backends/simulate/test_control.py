"""Movement of elements and control flow in the simulator, uniform and divergent, against NumPy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from tests.simulated import TARGETS, elementwise_block, simulated

N = 64


@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize(
    ("name", "kernel", "wanted"),
    [
        ("transpose", lambda x: x.T, lambda x: x.T),
        ("reshape", lambda x: x.reshape(8, 64), lambda x: x.reshape(8, 64)),
        ("outer", lambda x: x.sum(axis=1)[:, None] + x.sum(axis=0)[None, :],
         lambda x: x.sum(axis=1)[:, None] + x.sum(axis=0)[None, :]),
        ("iota", lambda x: x * lax.broadcasted_iota(jnp.int32, (16, 32), 1), lambda x: x * np.arange(32)),
        ("static loop", lambda x: lax.fori_loop(0, 5, lambda i, c: c * 2 + i, x), lambda x: x * 32 + 26),
        ("dynamic loop", lambda x: lax.fori_loop(0, (x.max() & 3) + 2, lambda i, c: c + i, x),
         lambda x: x + sum(range((x.max() & 3) + 2))),
        ("while loop", lambda x: lax.while_loop(lambda c: c.sum() < 10000, lambda c: c + 1, x),
         lambda x: x + max(0, -(-(10000 - x.sum()) // x.size))),
        ("branch on data", lambda x: lax.cond(x.max() > 0, lambda v: v + 1, lambda v: v - 1, x), lambda x: x + 1),
        ("other branch", lambda x: lax.cond(x.max() < 0, lambda v: v + 1, lambda v: v - 1, x), lambda x: x - 1),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)  # fmt: skip
def test_movement_and_control_flow(
    name: str, kernel: Callable[..., Any], wanted: Callable[..., Any], backend: str
) -> None:
    x = np.random.default_rng(0).integers(-50, 50, (16, 32)).astype(np.int32)
    (got,) = simulated(elementwise_block(kernel), [x], backend)
    np.testing.assert_array_equal(got, wanted(x))


def _gridded(body: Callable[..., None]) -> Callable[[jax.Array], jax.Array]:
    def kernel(x: jax.Array) -> jax.Array:
        return pl.pallas_call(body, out_shape=x, grid=x.shape, compiler_params=plgpu.CompilerParams())(x)

    return kernel


def _triangular(x: Any, o: Any) -> None:
    i = pl.program_id(0)
    o[i] = lax.fori_loop(0, i + 1, lambda j, total: total + x[j], jnp.int32(0))


def _as_often_as_it_says(x: Any, o: Any) -> None:
    i = pl.program_id(0)
    o[i] = lax.fori_loop(0, x[i] & 7, lambda j, total: total + j, jnp.int32(0))


def _by_sign(x: Any, o: Any) -> None:
    i = pl.program_id(0)

    @pl.when(x[i] > 0)
    def _() -> None:
        o[i] = x[i] * 2

    @pl.when(x[i] <= 0)
    def _() -> None:
        o[i] = lax.while_loop(lambda v: v < 0, lambda v: v + 7, x[i])


def _by_parity(x: Any, o: Any) -> None:
    i = pl.program_id(0)
    value = x[i]
    o[i] = lax.cond(i % 2 == 0, lambda: value + 1, lambda: lax.fori_loop(0, i, lambda j, c: c + j, value))


@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (_triangular, np.cumsum),
        (_as_often_as_it_says, lambda x: (x & 7) * ((x & 7) - 1) // 2),
        (_by_sign, lambda x: np.where(x > 0, 2 * x, x % 7)),
        (_by_parity, lambda x: np.where(np.arange(N) % 2 == 0, x + 1, x + np.arange(N) * (np.arange(N) - 1) // 2)),
    ],
    ids=["trips by program", "trips by data", "branches by data", "branches by program"],
)
def test_programs_that_go_different_ways(body: Callable[..., None], wanted: Callable[..., Any], backend: str) -> None:
    x = np.random.default_rng(0).integers(-50, 50, N).astype(np.int32)
    (got,) = simulated(_gridded(body), [x], backend)
    np.testing.assert_array_equal(got, wanted(x))
