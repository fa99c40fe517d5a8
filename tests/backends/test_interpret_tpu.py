"""What JAX's TPU interpreter cannot do by itself, and does here."""

import numpy as np

import kerneltest as kt
from kernels.tpu_vector_add import tpu_vector_add


def test_axes_that_vmap_adds_have_dimension_semantics_too() -> None:
    number = kt.array("n", "int32")

    @kt.oracle_for(tpu_vector_add, x=number, y=number, dims={"n": kt.dim(values=(3,))}, tolerance=kt.tolerance.exact())
    def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    result = kt.check(add, backends=["interpret-tpu"], depth="quick")
    assert result.ok, result.findings
    assert "pass" in {record.verdict for record in result.records if record.family == "vmapped"}
