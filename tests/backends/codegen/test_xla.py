"""XLA's CUDA compiler with no GPU, where it is installed (`pip install kerneltest[xla-cuda]`)."""

import importlib.util
from typing import Any

import pytest

import kerneltest as kt
from kernels.matmul import matmul_2x2
from kernels.pipeline_copy import pipeline_copy
from kernels.vector_add import vector_add
from kerneltest.backends.registry import resolve

INSTALLED = importlib.util.find_spec("jax_cuda13_plugin") is not None
needs_xla = pytest.mark.skipif(not INSTALLED, reason="XLA's CUDA compiler is not installed")


def _pairing(kernel: Any, length: int, **arguments: Any) -> kt.Pairing:
    names = {axis for argument in arguments.values() for axis in argument.shape}
    dims = {name: kt.dim(values=(length,)) for name in names}
    return kt.oracle_for(kernel, dims=dims, **arguments)(lambda **_: None)


PAIRINGS = {
    "triton": _pairing(vector_add, 1000, x=kt.array("n", "float32"), y=kt.array("n", "float32")),
    "mosaic_gpu": _pairing(pipeline_copy, 128, x=kt.array("m n", "float32")),
    "large": _pairing(matmul_2x2, 1024, x=kt.array("m k", "float32"), y=kt.array("k n", "float32")),
}


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
