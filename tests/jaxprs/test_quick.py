"""The options that a kernel is compiled with."""

import jax
import jax.numpy as jnp
import pytest

from kerneltest.jaxprs.quick import PORTABLE, quick


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
    options = quick(jaxpr)
    assert {**PORTABLE, **options} == options
    assert ("xla_cpu_use_fusion_emitters" in options) is (plain and jax.__version_info__ < (0, 11))


def test_this_version_knows_the_options() -> None:
    function = jax.jit(lambda x: x + 1)
    options = quick(jax.make_jaxpr(function)(1.0).jaxpr)
    assert function.lower(1.0).compile(compiler_options=options)(1.0) == 2.0
