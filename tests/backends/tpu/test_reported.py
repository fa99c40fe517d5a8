"""Failures on TPUs that users reported: each is named on the generations where it fails, and its fixed twin on none."""

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.backends.base import Artifact
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.trace.platform_dispatch import abstract_platform
from kerneltest.trace.tracing import Traced, trace_function
from tests.reported_by_mosaic import ENDING_THE_PROCESS
from tests.reported_by_mosaic import REPORTED as COMPILING
from tests.reported_on_tpus import GENERATIONS, Reported
from tests.reported_on_tpus import REPORTED as LOWERING

needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


def _named(reported: Reported) -> str:
    return reported.name.replace(" ", "-")


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def _traced(kernel: Any, reported: Reported, tpu: str) -> Traced:
    inputs = tuple(ShapeDtype(shape, _dtype(dtype)) for shape, dtype in reported.inputs)
    with abstract_platform(tpu):
        return trace_function(lambda *arrays: [kernel(*arrays)], inputs, "here")


def _taken(kernel: Any, reported: Reported, tier: str, generation: str) -> Failure | Artifact:
    """As far as a tier takes a kernel on a generation, or why it does not."""
    (backend,) = resolve([f"{tier}:tpu-{generation}"])
    try:
        artifact = backend.prepare(_traced(kernel, reported, f"tpu-{generation}"))
    except Failure as failure:
        return failure
    assert isinstance(artifact, Artifact)
    return artifact


def _check(reported: Reported, verdicts: set[str]) -> None:
    for generation in GENERATIONS:
        broken = _taken(reported.broken, reported, reported.stage, generation)
        if generation not in reported.generations:
            assert isinstance(broken, Artifact), str(broken)
            continue
        assert isinstance(broken, Failure), generation
        assert reported.words in f"{broken}\n{broken.stderr}" or broken.verdict in ("crash", "resource_exceeded")
        assert broken.verdict in verdicts
        first = str(broken).splitlines()[0]
        assert not first.startswith(("JaxRuntimeError", "MosaicError")), first
        assert "Error: " not in first or broken.verdict == "runtime_error", first
        if reported.stage == "compile":
            assert isinstance(_taken(reported.broken, reported, "lower", generation), Artifact)


@pytest.mark.parametrize("reported", LOWERING, ids=_named)
def test_what_does_not_lower_is_named(reported: Reported) -> None:
    # What JAX raises while it traces, it raises for every backend.
    _check(reported, {reported.verdict, "runtime_error"})


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_was_mended_lowers(generation: str) -> None:
    for reported in (*LOWERING, *COMPILING, *ENDING_THE_PROCESS):
        fixed = _taken(reported.fixed, reported, "lower", generation)
        assert isinstance(fixed, Artifact), f"{reported.name}: {fixed}"


@needs_libtpu
@pytest.mark.parametrize("reported", COMPILING, ids=_named)
def test_what_does_not_compile_is_named(reported: Reported) -> None:
    _check(reported, {reported.verdict})


@needs_libtpu
@pytest.mark.parametrize("reported", ENDING_THE_PROCESS, ids=_named)
def test_what_ends_the_compiler_costs_itself(reported: Reported) -> None:
    _check(reported, {reported.verdict, "crash"})
    assert isinstance(_taken(reported.fixed, reported, "compile", "v5e"), Artifact)


@needs_libtpu
@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_was_mended_compiles(generation: str) -> None:
    for reported in (*LOWERING, *COMPILING):
        fixed = _taken(reported.fixed, reported, "compile", generation)
        assert isinstance(fixed, Artifact), f"{reported.name}: {fixed}"
