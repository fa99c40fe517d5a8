"""XLA's TPU compiler with no TPU: facts, limits, advice, and what is said where it is not there."""

import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest

from kerneltest.backends import compilation
from kerneltest.backends.base import Artifact
from kerneltest.backends.registry import resolve
from kerneltest.backends.tpu import tiers as compiler
from kerneltest.core.children import Children
from kerneltest.core.failures import Failure
from kerneltest.core.files import DiskStore
from kerneltest.core.targets import TPUS
from tests.backends.tpu.test_lower import blocked

INSTALLED = importlib.util.find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not INSTALLED, reason="libtpu is not installed")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compilation, "_store", DiskStore(tmp_path))
    return tmp_path


@needs_libtpu
@pytest.mark.parametrize("tpu", TPUS)
def test_every_generation_compiles_and_tells(tpu: str) -> None:
    (backend,) = resolve([f"compile:{tpu}"])
    assert backend.unavailable() == ""
    artifact = backend.prepare(blocked((64, 256), (8, 128)))
    assert isinstance(artifact, Artifact)
    (facts,) = artifact.facts.values()
    assert facts["VMEM there is"] == TPUS[tpu].vmem
    # Two buffers of each of two windows, and what Mosaic keeps for itself.
    assert 4 * 8 * 128 * 4 <= facts["VMEM"] < 128 * 1024
    assert facts["SMEM"] < facts["SMEM there is"]
    assert facts["bytes accessed"] >= 2 * 64 * 256 * 4  # more on a 7x, where XLA copies small arrays to VMEM
    assert 10 < facts["bundles"] < 1000
    assert list(artifact.files()) == ["kernel.mosaic.mlir"]


@needs_libtpu
def test_answers_are_kept_and_recalled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (backend,) = resolve(["compile:tpu-v5e"])
    told = []
    for _ in range(2):
        artifact = backend.prepare(blocked((64, 256), (8, 128)))
        assert isinstance(artifact, Artifact)
        told.append(artifact.facts)
        monkeypatch.setattr(Children, "ask", lambda *_: pytest.fail("compiled again"))
    assert told[0] == told[1]


# The array, the block, its dtype, the verdict and what is said, on a TPU v5e.
REFUSED = {
    "windows": ((20480, 1024), (10240, 1024), "float32", "resource_exceeded",
                "needs 160 MiB of VMEM, but may use only 128 MiB: x_ref 2 x float32[10240, 1024] = 80 MiB; o_ref 2 x"),
    "scoped": ((5120, 1024), (2560, 1024), "float32", "resource_exceeded",
               "blocks of 1/4 the size fit, and so do these with pltpu.CompilerParams(vmem_limit_bytes=41943040)"),
    "float16": ((64, 256), (8, 128), "float16", "unimplemented",
                "no TPU has vectors of float16: convert to bfloat16 or float32"),
}  # fmt: skip


@needs_libtpu
@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_compile_is_told(case: str) -> None:
    shape, block, dtype, verdict, words = REFUSED[case]
    (backend,) = resolve(["compile:tpu-v5e"])
    with pytest.raises(Failure) as caught:
        backend.prepare(blocked(shape, block, dtype))
    assert caught.value.verdict == verdict
    assert words in str(caught.value)
    assert str(caught.value).startswith("kernel kernel for tpu-v5e: ")


def test_blocks_that_alone_take_more_than_there_is_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Children, "ask", lambda *_: pytest.fail("asked"))
    (backend,) = resolve(["compile:tpu-v4"])
    with pytest.raises(Failure, match="needs 20 MiB of VMEM, but may use only 16 MiB") as caught:
        backend.prepare(blocked((2560, 1024), (2560, 1024)))
    assert caught.value.verdict == "resource_exceeded"


def test_without_libtpu_the_reason_says_what_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    compiler.problem.cache_clear()
    (backend,) = resolve(["compile:tpu-v5e"])
    reason = "libtpu is not installed (pip install kerneltest[tpu]); lower:tpu-* works without it"
    assert backend.unavailable() == reason
    compiler.problem.cache_clear()


@pytest.mark.parametrize("said", [
    "JaxRuntimeError: INTERNAL: Could not convert JSON string to proto: no such field: 'debug_locations'",
    "RuntimeError: Unable to initialize backend",
])  # fmt: skip
def test_a_libtpu_that_does_not_fit_is_unavailable_with_the_one_that_does(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(compilation, "_circumstances", lambda: "")  # of these libraries, which it looks for as well
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.1")
    monkeypatch.setattr(Children, "ask", lambda *_: {"verdict": "compile_error", "message": said, "stderr": ""})
    compiler.problem.cache_clear()
    (backend,) = resolve(["compile:tpu-v6e"])
    reason = backend.unavailable()
    assert reason.startswith("libtpu 0.0.1 with JAX ")
    (asked,) = (each for each in metadata.requires("jax") or () if each.startswith("libtpu"))
    assert f"this JAX requires {asked.partition(';')[0].strip()}: pip install 'jax[tpu]'" in reason
    compiler.problem.cache_clear()


@pytest.mark.parametrize(("verdict", "words"), [("hang", "did not answer"), ("crash", "died with exit code -6")])
def test_a_compiler_that_dies_or_hangs_costs_one_finding(
    verdict: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: object) -> None:
        from kerneltest.core.verdicts import Verdict

        raise Failure(Verdict(verdict), f"XLA's TPU compiler {words}", "the end of stderr")

    monkeypatch.setattr(metadata, "version", lambda name: "0.0.1")
    monkeypatch.setattr(Children, "ask", ask)
    (backend,) = resolve(["compile:tpu-v5e"])
    with pytest.raises(Failure, match=f"kernel kernel for tpu-v5e: XLA's TPU compiler {words}") as caught:
        backend.prepare(blocked((64, 256), (8, 128)))
    assert (caught.value.verdict, caught.value.stderr) == (verdict, "the end of stderr")


@needs_libtpu
def test_two_compile_at_once_and_the_end_of_one_costs_one_answer() -> None:
    (backend,) = resolve(["compile:tpu-v5e"])
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.005):  # far less than an answer takes
            for worker in list(compiler.COMPILER.children._busy):
                worker.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        with pytest.raises(Failure, match="XLA's TPU compiler died with exit code -9"):
            backend.prepare(blocked((5120, 1024), (2560, 1024)))
    finally:
        ended.set()
        killing.join()
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(backend.prepare, blocked((64, columns), (8, 128))) for columns in (256, 512)]
        assert all(isinstance(each.result(), Artifact) for each in both)


@needs_libtpu
def test_a_compiler_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.COMPILER, "SECONDS", 0.05)
    (backend,) = resolve(["compile:tpu-v5e"])
    with pytest.raises(Failure, match=r"did not answer within 0\.05 s and was killed") as caught:
        backend.prepare(blocked((5120, 1024), (2560, 1024)))
    assert caught.value.verdict == "hang"
    monkeypatch.undo()
    assert isinstance(backend.prepare(blocked((64, 256), (8, 128))), Artifact)
