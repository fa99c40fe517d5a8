"""The options that a kernel is compiled with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from kerneltest.trace.jax_environment import AS_WRITTEN, PORTABLE_OPTIONS, fast_compile_options


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        (lambda x: jnp.exp(x) / x, True),
        (jnp.tanh, False),
        (jax.vmap(lambda x: jax.lax.cond(x > 0, jnp.cbrt, lambda x: x, x)), False),
    ],
    ids=["exp", "tanh", "cbrt within"],
)
def test_a_function_that_plain_loops_compute_worse_is_compiled_in_the_other_way(function: object, plain: bool) -> None:
    jaxpr = jax.make_jaxpr(function)(jnp.ones(4)).jaxpr  # type: ignore[arg-type]
    options = fast_compile_options(jaxpr)
    assert {**PORTABLE_OPTIONS, **options} == options
    assert ("xla_cpu_use_fusion_emitters" in options) is (plain and jax.__version_info__ < (0, 11))
    assert ("xla_disable_hlo_passes" in options) is plain


def test_this_version_knows_the_options() -> None:
    function = jax.jit(lambda x: x + 1)
    options = fast_compile_options(jax.make_jaxpr(function)(1.0).jaxpr)
    assert function.lower(1.0).compile(compiler_options=options)(1.0) == 2.0


def test_a_product_with_zero_is_a_product() -> None:
    function = jax.jit(lambda x, mask: (x * mask.astype(x.dtype)).sum())
    x, mask = jnp.array([1, jnp.nan]), jnp.array([True, False])
    options = fast_compile_options(jax.make_jaxpr(function)(x, mask).jaxpr)
    assert jnp.isnan(function.lower(x, mask).compile(compiler_options=options)(x, mask))


@pytest.mark.parametrize(("rows", "columns", "depth"), [(8, 32, 16), (8, 33, 17), (64, 64, 64)])
def test_a_sum_of_products_is_right(rows: int, columns: int, depth: int) -> None:
    function = jax.jit(lambda x, y: jnp.sum(x[:, None, :] * y[None], axis=-1))
    x, y = (np.random.default_rng(0).normal(size=(n, depth)).astype(np.float32) for n in (rows, columns))
    options = fast_compile_options(jax.make_jaxpr(function)(x, y).jaxpr)
    np.testing.assert_allclose(function.lower(x, y).compile(compiler_options=options)(x, y), x @ y.T, atol=1e-4)


@pytest.mark.parametrize(("programs", "own"), [(8, False), (2048, True)])
def test_a_long_grid_is_compiled_as_xla_would(programs: int, own: bool) -> None:
    def copy(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    spec = pl.BlockSpec((1,), lambda i: (i,))
    shape = jax.ShapeDtypeStruct((programs,), jnp.float32)
    call = pl.pallas_call(copy, grid=(programs,), in_specs=[spec], out_specs=spec, out_shape=shape)
    assert (fast_compile_options(jax.make_jaxpr(call)(jnp.ones(programs)).jaxpr) == AS_WRITTEN) is own
