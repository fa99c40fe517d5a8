"""XLA's compiler, and compilers in child processes."""

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

import kerneltest as kt
from kernels.matmul import matmul_2x2
from kernels.pipeline_copy import pipeline_copy
from kernels.vector_add import vector_add
from kerneltest.backends.codegen import xla_compiler, xla_cuda
from kerneltest.backends.registry import resolve
from kerneltest.core.children import Child, Children
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.plan.signatures import signatures
from kerneltest.trace.tracing import trace, trace_function
from tests.corpus import MOSAIC_GPU, Twin, twin

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
    mosaic = PAIRINGS["mosaic_gpu"]
    for kernel, target in ((pairing, "sm_100"), (mosaic, "sm_90"), (PAIRINGS["triton"], "sm_80"), (mosaic, "sm_120")):
        result = kt.check(kernel, backends=[f"compile:xla-{target}"], depth="quick")
        assert result.ok, result.findings[0].message


@needs_xla
def test_facts_of_a_mosaic_gpu_kernel_are_those_of_ptxas_and_of_its_module() -> None:
    right = twin("blackwell: wrong phase").right()
    for _ in range(2):  # XLA compiles a kernel once in a process
        (record,) = kt.check(right, backends=["compile:xla-sm_100"], depth="quick").records
        (facts,) = record.compiler_metrics.values()
        assert 0 < facts.pop("registers") <= 255
        own = {"shared memory": 98340, "TMEM columns": 128, "barriers": 4} if jax.__version_info__ >= (0, 12) else {}
        assert facts == {**own, "stack": 0, "spills": 0}
        assert record.advice == ()


@needs_xla
def test_registers_that_spill_are_advised_on_and_a_cluster_has_its_shape() -> None:
    def exponential(x: Any) -> Any:
        def body(x_ref: Any, o_ref: Any) -> None:
            rows = jax.lax.axis_index("c")
            o_ref[rows] = jnp.exp(x_ref[rows])

        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return plgpu.kernel(body, out_type=out, cluster=(2,), cluster_names=("c",))(x)

    pairing = kt.oracle_for(
        exponential,
        x=kt.array("c m n", "float32"),
        dims={"c": kt.dim(values=(2,)), "m": kt.dim(values=(256,)), "n": kt.dim(values=(512,))},
    )(np.exp)
    (record,) = kt.check(pairing, backends=["compile:xla-sm_90"], depth="quick").records
    (facts,) = record.compiler_metrics.values()
    assert facts["spills"] > 0
    assert f"{facts['spills']} bytes per thread spilled" in record.advice[0]
    if jax.__version_info__ >= (0, 12):
        assert (facts["cluster x"], facts["cluster y"], facts["cluster z"]) == (2, 1, 1)


def _report(name: str, registers: int) -> str:
    return (
        f"ptxas info    : Compiling entry function '{name}_mosaic_gpu_kernel' for 'sm_90a'\n"
        "    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 2 barriers\n"
    )


def test_reports_of_kernels_that_share_a_name_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_compiler, "_reports", {"known": {}})
    printed = _report("one", 40) + _report("two", 50) + _report("two", 60)
    xla_compiler._take_reports(printed, [("one", "a"), ("two", "b"), ("two", "c"), ("one", "known")])
    assert xla_compiler._reports == {"known": {}, "a": {"registers": 40, "stack": 16, "spills": 8}}


@needs_xla
@pytest.mark.sweep(3)
@pytest.mark.parametrize("twin", [twin for twin in MOSAIC_GPU if not twin.right_is_tested], ids=lambda twin: twin.name)
def test_what_lowers_for_a_target_compiles_for_it(twin: Twin) -> None:
    pairing = twin.right()
    for target in ("sm_80", "sm_90", "sm_100", "sm_120"):
        traced = trace(pairing, signatures(pairing, "quick")[0])
        verdicts = []
        for stage in resolve([f"lower:{target}", f"compile:xla-{target}"]):
            if stage.unsupported_reason(traced):
                verdicts.append("not applicable")
                continue
            try:
                stage.prepare(traced)
                verdicts.append("pass")
            except Failure as failure:
                verdicts.append(str(failure.verdict))
        assert verdicts[0] == verdicts[1]
        assert verdicts[0] in ("pass", "not applicable", "unimplemented", "unavailable", "resource_exceeded")
