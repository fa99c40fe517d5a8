"""Programs one after another, in random orders: what depends on the order is `nondeterministic`."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kernels.vector_add import vector_add
from kerneltest.api import Result

PROGRAMS = 8


def _summed(dtype: str) -> kt.Pairing:
    """A sum of one element a program, by atomic additions: in floats, it depends on their order."""

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
    assert "in another order; 1 elements differ" in findings[0].message


@pytest.mark.parametrize(("pairing", "orders"), [(_summed("int32"), 3), (_summed("float32"), 0)])
def test_what_does_not_depend_on_it_or_was_not_asked_is_not_accused(pairing: kt.Pairing, orders: int) -> None:
    verdicts = {finding.verdict for finding in _checked(pairing, orders).findings}
    assert "nondeterministic" not in verdicts


def test_ordinary_kernels_pass_in_any_order() -> None:
    dims = dict(n=kt.dim(block=16))
    pairing = kt.oracle_for(
        vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims=dims, tolerance=kt.tolerance.exact()
    )(lambda x, y: x + y)
    assert _checked(pairing, 2).ok
