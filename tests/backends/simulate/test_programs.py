"""Simulated control flow, and programs run in several orders."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kernels.vector_add import vector_add
from kerneltest.api import Result
from tests.simulated import TARGETS, elementwise_block, simulated

PROGRAMS = 8


def _summed(dtype: str) -> kt.Pairing:
    """A sum by atomic additions, one for each program, which depends on their order for floats."""

    def body(x: Any, start: Any, o: Any) -> None:
        del start
        plgpu.atomic_add(o, jnp.zeros((), jnp.int32), x[pl.program_id(0)])

    def total(x: jax.Array) -> jax.Array:
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct((1,), x.dtype),
            grid=x.shape,
            input_output_aliases={1: 0},
            compiler_params=plgpu.CompilerParams(),
        )(x, jnp.zeros(1, x.dtype))

    dims = dict(n=kt.dim(values=(PROGRAMS,)))
    declare = kt.oracle_for(total, x=kt.array("n", dtype), dims=dims, tolerance=kt.tolerance.conditioned(over="n"))
    return declare(lambda x: x.sum(keepdims=True))


def _checked(pairing: kt.Pairing, orders: int) -> Result:
    return kt.check(pairing, backends=["simulate:sm_90", "simulate:gfx942"], depth="quick", orders=orders)


def test_a_sum_of_floats_by_atomics_depends_on_the_order() -> None:
    findings = [f for f in _checked(_summed("float32"), 3).findings if f.family in ("normal", "log_uniform")]
    assert {finding.verdict for finding in findings} == {"nondeterministic"}
    assert "start[0] is" in findings[0].message
    assert "in another order; 1 of 1 elements differ" in findings[0].message


@pytest.mark.parametrize(("pairing", "orders"), [(_summed("int32"), 3), (_summed("float32"), 0)])
def test_a_result_that_does_not_depend_on_the_order_or_runs_once_passes(pairing: kt.Pairing, orders: int) -> None:
    verdicts = {finding.verdict for finding in _checked(pairing, orders).findings}
    assert "nondeterministic" not in verdicts


def test_ordinary_kernels_pass_in_any_order() -> None:
    dims = dict(n=kt.dim(block=16))
    pairing = kt.oracle_for(
        vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims=dims, tolerance=kt.tolerance.exact()
    )(lambda x, y: x + y)
    assert _checked(pairing, 2).ok


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
