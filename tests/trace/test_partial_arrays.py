"""The function around simulated Pallas calls: nested calls, JAX's own operations, and undefined values among them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kernels.vector_add import vector_add
from kerneltest.api import Result

N = 16


def _double(x: jax.Array) -> jax.Array:
    return vector_add(x, x)


def _half_written(x: jax.Array) -> jax.Array:
    """Twice x in the first half of an array of which nobody writes the second."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.ds(0, N)] = x_ref[...] * 2

    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct((2 * N,), x.dtype), compiler_params=plgpu.CompilerParams()
    )(x)


_custom = jax.custom_vjp(_double)
_custom.defvjp(lambda x: (_double(x), None), lambda _, g: (2 * g,))


def _checked(kernel: Callable[..., Any], oracle: Callable[..., Any]) -> Result:
    declare = kt.oracle_for(
        kernel,
        x=kt.array("n", "float32"),
        dims=dict(n=kt.dim(values=(N,))),
        tolerance=kt.tolerance.conditioned(over="n"),
    )
    return kt.check(declare(oracle), backends=["simulate:sm_90", "simulate:gfx942"], depth="quick")


@pytest.mark.parametrize(
    ("kernel", "oracle"),
    [
        (jax.jit(_double), lambda x: 2 * x),
        (_custom, lambda x: 2 * x),
        (lambda x: jax.vmap(_double)(x.reshape(4, 4)).reshape(-1), lambda x: 2 * x),
        (lambda x: jax.lax.scan(lambda c, _: (_double(c), c[0]), x, None, length=3)[0], lambda x: 8 * x),
        (lambda x: jax.lax.scan(lambda c, r: (c, _double(r)), 0, x.reshape(4, 4), reverse=True)[1].reshape(-1),
         lambda x: 2 * x),
        (lambda x: jax.lax.cond(x.shape[0] > 3, _double, lambda v: v, x), lambda x: 2 * x),
        (lambda x: jax.lax.fori_loop(0, jnp.int32(2), lambda i, c: _double(c), x), lambda x: 4 * x),
        (lambda x: jax.lax.while_loop(lambda c: c[1] < 2, lambda c: (_double(c[0]), c[1] + 1), (x, 0))[0],
         lambda x: 4 * x),
        (lambda x: jnp.concatenate([_double(x)[::-1], jnp.pad(x, (1, 2))]),
         lambda x: np.concatenate([2 * x[::-1], np.pad(x, (1, 2))])),
        (lambda x: (_double(x)[2:14:3], _double(x).reshape(4, 4).T, jnp.broadcast_to(x, (3, N))),
         lambda x: ((2 * x)[2:14:3], (2 * x).reshape(4, 4).T, np.broadcast_to(x, (3, N)))),
        (lambda x: _half_written(x)[:N], lambda x: 2 * x),
        (lambda x: _half_written(x).reshape(2, N)[0], lambda x: 2 * x),
        (lambda x: jax.lax.empty((2 * N,), x.dtype).at[:N].set(_double(x))[:N], lambda x: 2 * x),
        (lambda x: jnp.where(jnp.arange(2 * N) < N, _half_written(x), 0.0),
         lambda x: np.append(2 * x, np.zeros(N))),
    ],
)  # fmt: skip
def test_right_functions_are_evaluated_and_not_accused(kernel: Callable[..., Any], oracle: Callable[..., Any]) -> None:
    result = _checked(kernel, oracle)
    assert result.ok, result.findings[0].message


@pytest.mark.parametrize(
    ("kernel", "verdict", "words"),
    [
        (_half_written, "unwritten", "16 of 32 elements of output 0 were never written, the first [16]"),
        (lambda x: _half_written(x)[1 : N + 1], "unwritten", "1 of 16 elements of output 0 were never written"),
        (lambda x: _half_written(x).reshape(2, N).T, "unwritten", "the first [0, 1]"),
        (lambda x: _half_written(x) + 1, "unwritten", "16 of 32 elements"),
        (lambda x: jnp.sum(_half_written(x)), "unwritten", "1 of 1 elements"),
        (lambda x: jax.lax.empty((2 * N,), x.dtype).at[:N].set(_double(x)), "uninitialised", "; jax.lax.empty at "),
        (lambda x: jax.jit(lambda v: jax.lax.empty((N,), x.dtype) + v)(_double(x)), "uninitialised", "16 of 16 elem"),
        (lambda x: _double(_half_written(x)), "uninitialised", "16 of 32 elements of output 0 depend on memory"),
    ],
)
def test_what_depends_on_undefined_memory_is_told(kernel: Callable[..., Any], verdict: str, words: str) -> None:
    def oracle(x: np.ndarray) -> np.ndarray:
        return np.zeros(np.shape(jax.eval_shape(kernel, jax.ShapeDtypeStruct((N,), jnp.float32))))

    (finding, *_) = _checked(kernel, oracle).findings
    assert finding.verdict == verdict
    assert words in finding.message


def _half_products(x: jax.Array) -> jax.Array:
    half = x.reshape(4, 4).astype(jnp.float16)
    preset = jax.lax.DotAlgorithmPreset.F16_F16_F32
    groups = jnp.array([4])
    product = jax.lax.ragged_dot(half, half[None], groups, precision=preset, preferred_element_type=jnp.float32)
    return product.reshape(N)


def _refuse(x: np.ndarray) -> np.ndarray:
    raise ValueError("not mine")


@pytest.mark.parametrize(
    ("before", "verdict", "words"),
    [
        (_half_products, "unavailable", "cannot evaluate ragged_dot_general, outside of the Pallas calls, on this CPU"),
        (lambda x: jax.pure_callback(_refuse, x, x), "runtime_error", "ValueError: not mine"),
    ],
)
def test_what_jax_cannot_evaluate_is_no_fault_of_the_kernel(
    before: Callable[..., Any], verdict: str, words: str
) -> None:
    result = _checked(lambda x: _double(before(x)), lambda x: x)
    told = [record for record in result.records if record.family == "small_integers"]
    assert {record.verdict for record in told} == {verdict}
    assert all(words in record.message for record in told)
