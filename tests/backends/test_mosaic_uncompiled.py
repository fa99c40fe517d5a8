"""JAX's interpreters of Mosaic kernels find in NumPy what they find compiled, and give the same."""

from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
import tests.tpu_memory_bugs  # noqa: F401 - its twins join the others
from kerneltest.api import pairing_id
from kerneltest.backends.base import Artifact, Backend, Executable
from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import value_cases
from kerneltest.trace.tracing import trace
from suites import test_pipeline_specialized, test_tpu_softmax
from tests import pipeline_bugs, tpu_bugs

GPU, TPU = "interpret-mosaic-gpu", "interpret-tpu"


def paired(kernel: Any, dtype: str, rows: int, columns: int) -> Pairing:
    return kt.oracle_for(
        kernel,
        x=kt.array("m n", dtype),
        dims={"m": kt.dim(values=[rows]), "n": kt.dim(values=[columns])},
    )(lambda x: x)


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


TWINS = [(GPU, name) for name in pipeline_bugs.TWINS] + [(TPU, name) for name in tpu_bugs.TWINS]


@pytest.mark.sweep(26)
@pytest.mark.parametrize("broken", [True, False], ids=["broken", "right"])
@pytest.mark.parametrize(("backend", "name"), TWINS)
def test_each_twin_ends_alike(backend: str, name: str, broken: bool) -> None:
    (one,) = resolve([backend])
    if backend == GPU:
        make, _ = pipeline_bugs.TWINS[name]
        pairing, dtype = paired(make(broken), "float32", *pipeline_bugs.SHAPE), "float32"
    else:
        twins = tpu_bugs.TWINS[name]
        pairing, dtype = paired(twins.make(broken), twins.dtype, twins.rows, tpu_bugs.COLUMNS), twins.dtype
    compiled, uncompiled = both(one, pairing, dtype)
    if isinstance(compiled, tuple):
        for wanted, got in zip(compiled, uncompiled, strict=True):
            np.testing.assert_array_equal(got, wanted)
    else:
        assert uncompiled is compiled


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
