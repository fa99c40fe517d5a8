"""Triton's compiler with no GPU: facts, limits, advice, and answers kept on disk."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import kerneltest as kt
from kernels.matmul import matmul_2x2
from kernels.softmax import softmax_fused
from kernels.vector_add import vector_add
from kerneltest.backends import compilation
from kerneltest.backends.base import Artifact
from kerneltest.backends.codegen import tiers as compiler
from kerneltest.backends.codegen.tiers import lower
from kerneltest.backends.codegen.triton_compiler import CompileError, _check_shared
from kerneltest.backends.registry import resolve
from kerneltest.core.children import Children
from kerneltest.core.failures import Failure
from kerneltest.core.files import DiskStore
from kerneltest.core.targets import TARGETS
from kerneltest.plan.signatures import signatures
from kerneltest.trace.tracing import Traced, trace
from tests.sample import elementwise

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(compilation, "_store", DiskStore(tmp_path))
    return tmp_path


def _add(x: jax.Array) -> jax.Array:
    return vector_add(x, x)


def _traced(kernel: Any, dtype: str = "float32", **lengths: int) -> Traced:
    names = list(lengths)
    shapes = {"x": "n"} if names == ["n"] else {"x": "m k", "y": "k n"} if "k" in names else {"x": "m n"}
    arguments = {name: kt.array(shape, dtype) for name, shape in shapes.items()}
    dims = {name: kt.dim(values=(length,)) for name, length in lengths.items()}
    pairing = kt.oracle_for(kernel, dims=dims, **arguments)(lambda **_: None)
    return trace(pairing, signatures(pairing, "quick")[0])


def _compiled(traced: Traced, target: str) -> Artifact:
    (stage,) = resolve([f"compile:{target}"])
    artifact = stage.prepare(traced)
    assert isinstance(artifact, Artifact)
    return artifact


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_compiles_and_tells(target: str) -> None:
    artifact = _compiled(_traced(softmax_fused, m=3, n=17), target)
    (facts,) = artifact.facts.values()
    assert 0 < facts["registers"] <= 512
    assert facts["spills"] == facts["stack"] == facts["float64 instructions"] == facts["matrix instructions"] == 0
    kind = "ptx" if target.startswith("sm") else "amdgcn"
    assert {name.rpartition(".")[2] for name in artifact.files()} == {"ttir", kind}
    assert target in "".join(artifact.files().values())


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_matrix_instructions_are_counted(target: str) -> None:
    artifact = _compiled(_traced(matmul_2x2, "bfloat16", m=64, n=64, k=64), target)
    assert artifact.facts["_quarter"]["matrix instructions"] > 0
    assert artifact.advice == ()


@pytest.mark.parametrize(("target", "available"), [("sm_90", 232448), ("gfx942", 65536)])
def test_the_teaching_matmul_exceeds_shared_memory(target: str, available: int) -> None:
    """Blocks of 512 x 1024 float32, which an H200 refuses to launch for the same reason."""
    with pytest.raises(Failure) as caught:
        _compiled(_traced(matmul_2x2, m=1024, n=1024, k=1024), target)
    assert caught.value.verdict == "resource_exceeded"
    needed, limit = map(int, re.findall(r"(\d+)(?= bytes|: use)", str(caught.value)))
    assert needed >= 2 * 2**20
    assert limit == available


def test_a_block_at_the_limit_is_not_refused() -> None:
    _check_shared(65536, 65536)
    with pytest.raises(CompileError, match="needs 65537 bytes of shared memory"):
        _check_shared(65537, 65536)


def _facts(**more: int) -> dict[str, int]:
    return {"shared memory": 0, "spills": 0, "float64 instructions": 0, "matrix instructions": 0, **more}


@pytest.mark.parametrize(
    ("facts", "text", "words"),
    [
        (_facts(), "tt.func", ""),
        (_facts(spills=128), "tt.func", "128 bytes per thread spilled"),
        (_facts(**{"shared memory": 40000}), "tt.func", "61% of the target's shared memory"),
        (_facts(**{"shared memory": 30000}), "tt.func", ""),
        (_facts(**{"float64 instructions": 3}), "tt.func", "3 float64 instructions in a kernel without float64"),
        (_facts(**{"float64 instructions": 3}), "tensor<4xf64>", ""),
        (_facts(), "tt.dot %a, %b", "a dot without matrix instructions: every product"),
        (_facts(), "tt.dot %a, %b inputPrecision = ieee", "inputPrecision = ieee asks for that"),
        (_facts(**{"matrix instructions": 4}), "tt.dot %a, %b", ""),
    ],
)
def test_advice_follows_from_the_facts(facts: dict[str, int], text: str, words: str) -> None:
    advice = compiler._advice(facts, text, TARGETS["gfx942"])
    assert len(advice) == bool(words)
    assert words in "".join(advice)


def test_float64_in_a_float32_kernel_is_seen_in_the_assembly() -> None:
    def widened(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: (v.astype(jnp.float64) * 3.1).astype(jnp.float32), x)

    jax.config.update("jax_enable_x64", True)
    try:
        artifact = _compiled(_traced(widened, n=64), "sm_90")
    finally:
        jax.config.update("jax_enable_x64", False)
    assert artifact.facts["body"]["float64 instructions"] > 0


def test_answers_are_kept_and_recalled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,) = lower(_traced(_add, n=64), TARGETS["sm_90"])
    first = compiler.compile_kernel(kernel, TARGETS["sm_90"])
    monkeypatch.setattr(Children, "ask", lambda *_: pytest.fail("compiled again"))
    assert compiler.compile_kernel(kernel, TARGETS["sm_90"]) == first
    monkeypatch.undo()
    monkeypatch.setattr(compilation, "_store", DiskStore(folder))
    compiler.compile_kernel(replace(kernel, warps=8), TARGETS["sm_90"])
    compiler.compile_kernel(kernel, TARGETS["gfx942"])
    assert len(list((folder / "compiled").iterdir())) == 3


@pytest.mark.parametrize("content", [b"", b"not gzip", gzip.compress(b"{", mtime=0)])
def test_a_corrupt_answer_is_named_and_made_again(folder: Path, content: bytes) -> None:
    (kernel,) = lower(_traced(_add, n=64), TARGETS["sm_90"])
    first = compiler.compile_kernel(kernel, TARGETS["sm_90"])
    (path,) = (folder / "compiled").iterdir()
    path.write_bytes(content)
    with pytest.warns(UserWarning, match=rf"{path.name} cannot be read \(.*\): compiling again"):
        assert compiler.compile_kernel(kernel, TARGETS["sm_90"]) == first


def _asked(text: str) -> Any:
    target = dict(platform="cuda", arch=90, warp=32, shared_memory=TARGETS["sm_90"].shared_memory)
    return compiler.COMPILER.ask(dict(text=text, warps=4, stages=3, **target))


def test_what_the_compiler_rejects_is_said() -> None:
    answer = _asked("module { this is no IR")
    assert answer["verdict"] == "compile_error"
    assert "Triton raised RuntimeError" in answer["message"]
    assert "error:" in answer["printed"]


def test_a_compiler_that_aborts_costs_one_answer() -> None:
    with pytest.raises(Failure, match=r"Triton's compiler died with exit code -6: .*Assertion") as caught:
        _asked("")
    assert caught.value.verdict == "crash"
    assert "verdict" in _asked("module { this is no IR")


def test_without_triton_the_reason_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (stage,) = resolve(["compile:sm_90"])
    assert "pip install kerneltest[compile]); lower:* works without it" in stage.unavailable()
