"""XLA's compiler, and compilers in child processes."""

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

import kerneltest as kt
from kernels.matmul import matmul_2x2
from kernels.pipeline_copy import pipeline_copy
from kernels.vector_add import vector_add
from kerneltest.backends.codegen import xla_cuda
from kerneltest.backends.registry import resolve
from kerneltest.core.children import Child, Children
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.trace.tracing import trace_function

X = (ShapeDtype((4,), np.dtype(np.float32)),)
INSTALLED = importlib.util.find_spec("jax_cuda13_plugin") is not None
needs_xla = pytest.mark.skipif(not INSTALLED, reason="XLA's CUDA compiler is not installed")


def _pairing(kernel: Any, length: int, **arguments: Any) -> kt.Pairing:
    names = {axis for argument in arguments.values() for axis in argument.shape}
    dims = {name: kt.dim(values=(length,)) for name in names}
    return kt.oracle_for(kernel, dims=dims, **arguments)(lambda **_: None)


PAIRINGS = MappingProxyType(
    {  # no dict, whose pairings pytest would run as a suite
        "triton": _pairing(vector_add, 1000, x=kt.array("n", "float32"), y=kt.array("n", "float32")),
        "mosaic_gpu": _pairing(pipeline_copy, 128, x=kt.array("m n", "float32")),
        "large": _pairing(matmul_2x2, 1024, x=kt.array("m k", "float32"), y=kt.array("k n", "float32")),
    }
)


@needs_xla
@pytest.mark.parametrize("language", ["triton", "mosaic_gpu"])
def test_kernels_compile_as_the_device_would(language: str) -> None:
    result = kt.check(PAIRINGS[language], backends=["compile:xla-sm_90"], depth="quick")
    assert result.ok, result.findings[0].message
    assert result.cases == 1


@needs_xla
def test_the_teaching_matmul_is_refused_as_the_hardware_refuses_it() -> None:
    (finding,) = kt.check(PAIRINGS["large"], backends=["compile:xla-sm_90"], depth="quick").findings
    assert finding.verdict == "resource_exceeded"
    assert "requested 2097152, available: 232448" in finding.message


def test_without_it_the_reason_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (stage,) = resolve(["compile:xla-sm_90"])
    assert "pip install kerneltest[xla-cuda]" in stage.unavailable()


@pytest.fixture
def dying_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    children = Children(lambda: Child("tests.dying_compiler", "XLA's CUDA compiler"))
    monkeypatch.setattr(xla_cuda.COMPILERS["sm_90"], "children", children)
    monkeypatch.setattr(metadata, "version", lambda name: "1")
    yield
    children.close()


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("aborts", "crash", r"XLA's CUDA compiler died with exit code -6: .*LLVM ERROR: Cannot select: .*cg1$"),
        ("refused", "compile_error", r"Pass pipeline failed \(loc.*not supported\) \(kernels/here\.py:7\)$"),
    ],
)
@pytest.mark.usefixtures("dying_compiler")
def test_what_xla_does_to_its_process_is_the_verdict_of_one_signature(name: str, verdict: str, words: str) -> None:
    def function(x: Any) -> Any:
        with jax.named_scope(name):
            return [x + 1]

    (backend,) = resolve(["compile:xla-sm_90"])
    with pytest.raises(Failure, match=words) as caught:
        backend.prepare(trace_function(function, X, ""))
    assert caught.value.verdict == verdict
    assert backend.prepare(trace_function(lambda x: [x * 2], X, "")).files() == {
        "optimized.hlo.txt": "HloModule jit_run"
    }


@needs_xla
def test_each_target_compiles_in_a_process_of_its_own() -> None:
    """XLA would assemble the second kernel for the target of the first."""

    def arrives(x: Any) -> Any:
        def body(x_ref: Any, o_ref: Any, barrier: Any) -> None:
            o_ref[...] = x_ref[...]
            plgpu.tcgen05_commit_arrive(barrier)

        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        barrier = plgpu.Barrier(orders_tensor_core=True)
        return plgpu.kernel(body, out_type=out, scratch_types={"barrier": barrier})(x)

    pairing = _pairing(arrives, 128, x=kt.array("m n", "float32"))
    for kernel, target in ((pairing, "sm_100"), (PAIRINGS["mosaic_gpu"], "sm_90"), (PAIRINGS["triton"], "sm_80")):
        result = kt.check(kernel, backends=[f"compile:xla-{target}"], depth="quick")
        assert result.ok, result.findings[0].message
