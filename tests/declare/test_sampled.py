"""Error models that evaluate the oracle, or a reference, again: they follow its condition, or the reference's error."""

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import float_format
from kerneltest.declare.bounds import gamma
from tests.declare.measured import PLAIN, measured, vector

U = float_format(np.dtype(np.float32)).unit_roundoff


def test_conditioned_follows_the_condition_of_the_function() -> None:
    x = np.linspace(-30, 30, 101, dtype=np.float32)
    case = measured(lambda x: np.exp(x), {"x": x}, {"x": kt.array("n")}, dict(n=101))
    (bound,) = kt.tolerance.conditioned().bounds(case)
    relative = bound.fixed / np.exp(x.astype(np.float64))
    # exp's condition number is |x|: the bound is 8 u (|x| + 1), to first order
    assert np.allclose(relative, 8 * U * (np.abs(x) + 1), rtol=1e-3)


def test_conditioned_is_infinite_where_a_rounding_leaves_the_domain() -> None:
    x = np.array([1.0], np.float32)
    with np.errstate(all="ignore"):
        case = measured(lambda x: np.sqrt(1 - x) * np.sqrt(x - 1), {"x": x}, {"x": kt.array("n")}, dict(n=1))
        (bound,) = kt.tolerance.conditioned().bounds(case)
    assert np.isinf(bound.fixed).all()


def test_conditioned_adds_gamma_for_declared_sums() -> None:
    leaves, declared = {"x": np.ones((1, 100), np.float32)}, {"x": kt.array("m n")}
    case = measured(lambda x: x.sum(-1), leaves, declared, dict(m=1, n=100))
    models = kt.tolerance.conditioned(), kt.tolerance.conditioned(over="n")
    without, with_sums = (model.bounds(case)[0].fixed for model in models)
    assert with_sums - without == pytest.approx(gamma(100, U) * 100)


def test_reference_allows_a_multiple_of_the_references_error_and_never_nothing() -> None:
    case = vector(lambda x: np.exp(x).sum(keepdims=True))

    def in_half(x: np.ndarray) -> np.ndarray:
        return np.exp(x).astype(np.float16).sum(keepdims=True, dtype=np.float32)

    (bound,) = kt.tolerance.reference(in_half, factor=3).bounds(case)
    error = abs(float(in_half(case.leaves["x"].astype(np.float32))[0]) - case.values[0][0])
    assert bound.at(PLAIN)[0] == pytest.approx(3 * error)
    (floor,) = kt.tolerance.reference(lambda x: np.exp(x.astype(np.float64)).sum(keepdims=True)).bounds(case)
    assert floor.at(PLAIN)[0] >= 2 * 2.0**-24 * case.values[0][0]
