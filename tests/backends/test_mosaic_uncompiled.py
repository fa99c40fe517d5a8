"""JAX's interpreters of Mosaic kernels find in NumPy what they find compiled, and give the same, after failures too."""

from typing import Any

import jax
import numpy as np
import pytest

from kerneltest.api import pairing_id
from kerneltest.backends.base import Artifact, Backend, Executable
from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import value_cases
from kerneltest.trace.tracing import trace
from suites import test_pipeline_specialized, test_tpu_softmax
from tests.corpus import PIPELINES, Twin
from tests.corpus import TPU as TPU_TWINS
from tests.corpus import twin as twin_named
from tests.corpus.judged import check_right, finding

GPU, TPU = "interpret-mosaic-gpu", "interpret-tpu"


def both(backend: Backend, pairing: Pairing, dtype: str, group: str = "structural") -> list[Any]:
    case = next(value_cases(pairing, pairing_id(pairing), dtype, group, 0, "quick"))
    traced = trace(pairing, case.signature, backend.platform)
    arguments = case.fill(pairing)
    leaves = [arguments[path] for path, _ in case.signature.dtypes]
    uncompiled = backend.evaluate(traced)
    assert uncompiled is not None
    prepared = backend.prepare(traced)
    assert not isinstance(prepared, Artifact)
    return [ended(each, leaves) for each in (prepared, uncompiled)]


def ended(executable: Executable, leaves: list[np.ndarray]) -> Any:
    try:
        return executable.run(leaves)
    except Failure as failure:
        return failure.verdict


@pytest.mark.sweep(26)
@pytest.mark.parametrize("broken", [True, False], ids=["broken", "right"])
@pytest.mark.parametrize("twin", [*PIPELINES, *TPU_TWINS], ids=lambda twin: twin.name)
def test_each_twin_ends_alike(twin: Twin, broken: bool) -> None:
    (one,) = resolve([next(iter(twin.verdicts))])
    pairing = twin.make(broken)
    compiled, uncompiled = both(one, pairing, str(pairing.leaves["x"].dtypes[0]))
    if isinstance(compiled, tuple):
        for wanted, got in zip(compiled, uncompiled, strict=True):
            np.testing.assert_array_equal(got, wanted)
    else:
        assert uncompiled is compiled


@pytest.mark.parametrize(
    "name",
    [
        "pipeline fetches into the block in use",
        "pipeline waits for each other",
        "pipeline forgets the remainder",
        "TPU kernel never waits for the block",
        "TPU kernel writes past its buffer",
        "TPU kernel accumulates over a parallel dimension",
    ],
)
def test_a_case_after_a_failing_one_is_not_harmed(name: str) -> None:
    failing = twin_named(name)
    assert finding(failing).verdict.is_finding
    check_right(failing)


@pytest.mark.parametrize(
    ("backend", "pairing"), [(GPU, test_pipeline_specialized.double), (TPU, test_tpu_softmax.softmax)]
)
def test_narrow_floats_and_functions_are_as_near(backend: str, pairing: Pairing) -> None:
    (one,) = resolve([backend])
    compiled, uncompiled = both(one, pairing, "bfloat16", "numeric")
    for wanted, got in zip(compiled, uncompiled, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(
            got.astype(np.float32), wanted.astype(np.float32), rtol=float(jax.numpy.finfo("bfloat16").eps)
        )
