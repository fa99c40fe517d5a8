"""Expected values and gradients, with their bounds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.numerics.bounds import Bound
from kerneltest.oracle.evaluation import check_all_masked, expect
from kerneltest.oracle.expectation import Expectation
from kerneltest.oracle.gradient import expect_gradients
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


def _with_special_values(x: np.ndarray) -> np.ndarray:
    nothing = np.mean(x[:0]) + np.nanmax(x * np.nan) + np.var(x[:1], ddof=1)
    return np.where(np.isnan(nothing), 2 * x, x / 0)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_numpy_warns_of_in_an_oracle_is_no_error() -> None:
    made = kt.oracle_for(double, x=kt.array("n"))(_with_special_values)
    x = np.array([1.0, -2.0, 0.0], np.float32)
    expectation = expect(made, signatures(made, "quick")[0], {"x": x}, (ShapeDtype(x.shape, x.dtype),), bitwise=False)
    assert expectation.values[0].tolist() == [2.0, -4.0, 0.0]


def test_half_an_ulp_of_the_output_is_added_for_its_rounding() -> None:
    expectation = Expectation((np.array([1.0]),), None, (Bound(np.array([2.0**-30])),))
    for name, half in ((np.float32, 2.0**-24), (np.float16, 2.0**-11)):
        assert expectation.bound(0, np.dtype(name), PLAIN) == pytest.approx(2.0**-30 + half)


SLOPES: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "analytic": (lambda x: np.exp(x), np.exp),
    "dropping the imaginary part": (lambda x: np.exp(x.real), np.exp),
    "complex in another sense": (lambda x: np.abs(x), np.sign),
    "raising for complex numbers": (lambda x: np.array([float(v) ** 2 for v in x]), lambda x: 2 * x),
    "maximum": (lambda x: np.maximum(x, 0.5), lambda x: (x > 0.5).astype(float)),
    "constant": (lambda x: np.ones_like(x.real), np.zeros_like),
}


@pytest.mark.parametrize("name", SLOPES)
def test_an_oracles_gradient_is_its_analytic_one(name: str) -> None:
    function, slope = SLOPES[name]
    x = np.linspace(-2, 2, 12).astype(np.float32)
    weight = np.where(np.arange(12) % 2, 0.5, -1.0).astype(np.float32)
    found = expect_gradients(lambda leaves: (function(leaves["x"]),), {"x": x}, [weight], np.random.default_rng(0))
    bound = found.bound(0, np.dtype(np.float32), PLAIN)
    assert np.isfinite(bound).all()
    assert np.abs(found.values[0] - weight * slope(x.astype(np.float64))).max() < 1e-9
    assert bound.max() < 1e-4


def test_nothing_is_asked_at_a_kink() -> None:
    x = np.array([-1.0, 0.0, 2.0], np.float32)
    found = expect_gradients(lambda leaves: (np.abs(leaves["x"].real),), {"x": x}, [np.ones(3, np.float32)],
                      np.random.default_rng(0))  # fmt: skip
    assert list(np.isinf(found.bound(0, np.dtype(np.float32), PLAIN))) == [False, True, False]


def _all_nan(*, masked: bool) -> tuple[kt.Pairing, Expectation]:
    more = {"mask": kt.mask("n")} if masked else {}
    kernel = (lambda x, mask: double(x)) if masked else double
    made = kt.oracle_for(kernel, x=kt.array("n"), all_masked="zeros", dims=dict(n=kt.dim(block=4)), **more)(kernel)
    return made, Expectation((np.full(3, np.nan),), None, None)


def test_where_a_mask_is_declared_it_alone_masks() -> None:
    made, nan = _all_nan(masked=True)
    check_all_masked(made, "x", nan)  # of scores that are all -inf
    with pytest.raises(kt.Failure, match="returns nan where everything is masked"):
        check_all_masked(made, "mask", nan)


def test_without_a_mask_minus_infinity_masks() -> None:
    made, nan = _all_nan(masked=False)
    with pytest.raises(kt.Failure, match="returns nan where everything is masked"):
        check_all_masked(made, "x", nan)


def test_what_is_declared_of_everything_masked_is_not_held_against_what_is_not_asked() -> None:
    made, nan = _all_nan(masked=True)
    unasked = Expectation((np.zeros(3),), None, None, (np.zeros(3, bool),))
    check_all_masked(replace(made, all_masked="nan"), "mask", unasked)
    with pytest.raises(kt.Failure):
        check_all_masked(replace(made, all_masked="nan"), "mask", Expectation((np.zeros(3),), None, None))
    check_all_masked(replace(made, all_masked="nan"), "mask", nan)
