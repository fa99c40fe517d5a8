"""Lowering for TPUs with no TPU: what fails, on which generation, and what is told of it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.backends.base import Artifact
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TPUS
from kerneltest.trace.tracing import Traced, trace_function
from tests.sample import whole


def blocked(
    shape: tuple[int, ...], block: tuple[int, ...], dtype: str = "float32", body: Callable[..., Any] = lambda x: x + 1
) -> Traced:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = body(x_ref[...])

    def function(x: jax.Array) -> list[jax.Array]:
        spec = pl.BlockSpec(block, lambda *ids: ids)
        grid = tuple(pl.cdiv(length, size) for length, size in zip(shape, block, strict=True))
        return [pl.pallas_call(kernel, grid=grid, in_specs=[spec], out_specs=spec, out_shape=x)(x)]

    return trace_function(function, (ShapeDtype(shape, np.dtype(dtype)),), "")


@pytest.mark.parametrize("tpu", TPUS)
def test_every_generation_lowers_a_plain_kernel(tpu: str) -> None:
    (backend,) = resolve([f"lower:{tpu}"])
    artifact = backend.prepare(blocked((64, 256), (8, 128)))
    assert isinstance(artifact, Artifact)
    assert artifact.kernels == 1
    (text,) = artifact.files().values()
    assert "memref<8x128xf32" in text


# A block, the array, and what to write instead.
NEAREST: list[tuple[tuple[int, ...], tuple[int, ...], list[int]]] = [
    ((10, 100), (64, 256), [16, 128]),
    ((8, 100), (64, 256), [8, 128]),
    ((12, 256), (64, 256), [16, 256]),
    ((60, 128), (61, 256), [61, 128]),
    ((8, 100), (64, 120), [8, 120]),
    ((2, 3, 128), (4, 64, 256), [2, 8, 128]),
    ((100,), (1000,), [128]),
    ((700,), (900,), [900]),
    ((1500,), (5000,), [2048]),
]


@pytest.mark.parametrize(("block", "shape", "nearest"), NEAREST, ids=str)
def test_a_block_that_no_tpu_takes_is_told_with_the_nearest_that_it_does(
    block: tuple[int, ...], shape: tuple[int, ...], nearest: list[int]
) -> None:
    (backend,) = resolve(["lower:tpu-v5e"])
    with pytest.raises(Failure) as caught:
        backend.prepare(blocked(shape, block))
    assert caught.value.verdict == "compile_error"
    assert caught.value.does_not_lower
    first = str(caught.value).splitlines()[0]
    assert f"has blocks of {list(block)}" in first
    assert f"the nearest is {nearest} (tests/backends/tpu/test_lower.py:" in first
    assert isinstance(backend.prepare(blocked(shape, tuple(nearest))), Artifact)


def test_a_primitive_without_a_rule_is_named_with_its_line() -> None:
    (backend,) = resolve(["lower:tpu-v6e"])
    with pytest.raises(Failure, match=r"primitive cumsum has no lowering \(tests/backends/tpu/test_lower.py") as caught:
        backend.prepare(blocked((64, 256), (8, 128), body=lambda x: jnp.cumsum(x, 0)))
    assert caught.value.verdict == "unimplemented"


def test_a_kernel_of_another_language_is_not_for_a_tpu() -> None:
    from kernels.vector_add import vector_add

    traced = trace_function(lambda x: [vector_add(x, x)], (ShapeDtype((64,), np.dtype(np.float32)),), "")
    for each in resolve(["lower:tpu-v4", "tpu"]):
        assert (
            "a kernel written for triton (compiler_params is pallas.triton.CompilerParams) cannot be"
            in each.unsupported_reason(traced)
        )


def test_a_kernel_without_parameters_is_planned_for_every_language() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return whole(lambda x_ref: x_ref[...] * 2, x, x)

    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(256,))))(lambda x: 2 * x)
    chosen = ["interpret", "interpret-tpu", "lower:sm_90", "lower:tpu-*", "simulate:sm_90"]
    result = kt.check(pairing, backends=chosen, depth="quick")
    assert result.findings == ()
    assert {r.backend for r in result.records if r.verdict == "pass"} == {b.id for b in resolve(chosen)}
