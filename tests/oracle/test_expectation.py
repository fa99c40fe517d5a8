"""What is expected of an output: the oracle's value, and a bound that depends on its dtype and on the backend."""

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.declare.bounds import Bound
from kerneltest.oracle.expectation import Expectation, expect
from kerneltest.plan.signatures import signatures
from tests.declare.measured import FLUSHING, PLAIN
from tests.sample import double


def _doubled(x: np.ndarray) -> Expectation:
    made = kt.oracle_for(double, x=kt.array("n"), tolerance=kt.tolerance.exact())(lambda x: 2 * x)
    signature = signatures(made, "quick")[0]
    return expect(made, signature, {"x": x}, (ShapeDtype(x.shape, x.dtype),), bitwise=False)


def test_flushed_subnormals_are_allowed_where_the_backend_flushes_and_nowhere_else() -> None:
    float32 = np.dtype(np.float32)
    expectation = _doubled(np.array([1e-40, 1.0], np.float32))
    assert expectation.bound(0, float32, PLAIN).tolist() == [0.0, 0.0]
    flushing = expectation.bound(0, float32, FLUSHING)
    assert flushing[0] >= 2e-40
    assert flushing[1] == 0


def test_half_an_ulp_of_the_output_is_added_for_its_rounding() -> None:
    expectation = Expectation((np.array([1.0]),), None, (Bound(np.array([2.0**-30])),))
    for name, half in ((np.float32, 2.0**-24), (np.float16, 2.0**-11)):
        assert expectation.bound(0, np.dtype(name), PLAIN) == pytest.approx(2.0**-30 + half)
