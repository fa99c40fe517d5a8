"""Error models in closed form and by sampling."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import float_format
from kerneltest.declare.error_models import Measured
from kerneltest.numerics.bounds import Bound, gamma
from tests.declare.measured import FLUSHING, ON_TENSOR_CORES, PLAIN, measured, vector

DOT = kt.tolerance.dot("k")
OPERANDS = {"x": kt.array("m k"), "y": kt.array("k n")}


def _product(x: np.ndarray, y: np.ndarray) -> Measured:
    (m, k), n = x.shape, y.shape[1]
    return measured(lambda x, y: x @ y, {"x": x, "y": y}, OPERANDS, dict(m=m, k=k, n=n))


def _random_product(m: int = 9, k: int = 200, n: int = 7) -> Measured:
    rng = np.random.default_rng(0)
    return _product(rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32))


def _to_tf32(x: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)


def test_dot_bounds_float32_sums_in_any_order() -> None:
    case = _random_product()
    (bound,) = DOT.bounds(case)
    x, y = (value.astype(np.float32) for value in case.leaves.values())
    forward, backward = np.float32(0), np.float32(0)
    for i in range(x.shape[1]):
        forward = forward + x[:, i, None] * y[None, i]
        backward = backward + x[:, ~i, None] * y[None, ~i]
    for result in (forward, backward, x @ y):
        assert (np.abs(result - case.values[0]) <= bound.at(PLAIN)).all()


def test_dot_admits_tf32_only_where_it_is_in_play() -> None:
    case = _random_product()
    (bound,) = DOT.bounds(case)
    error = np.abs(_to_tf32(case.leaves["x"]) @ _to_tf32(case.leaves["y"]) - case.values[0])
    assert (error <= bound.at(ON_TENSOR_CORES)).all()
    assert (error > bound.at(PLAIN)).any()


def test_dot_finds_sums_in_bfloat16() -> None:
    case = _random_product()
    (bound,) = DOT.bounds(case)
    (loose,) = kt.tolerance.dot("k", accumulate="bfloat16").bounds(case)
    total = np.zeros((9, 7), ml_dtypes.bfloat16)
    for i in range(200):
        total = total + (case.leaves["x"][:, i, None] * case.leaves["y"][None, i]).astype(ml_dtypes.bfloat16)
    error = np.abs(total.astype(np.float64) - case.values[0])
    assert (error > bound.at(PLAIN)).any()
    assert (error <= loose.at(PLAIN)).all()


def test_dot_says_nothing_where_a_partial_sum_may_overflow() -> None:
    x, y = np.array([[3e38, -3e38, 1.0]], np.float32), np.array([[2.0], [2.0], [1.0]], np.float32)
    (bound,) = DOT.bounds(_product(x, y))
    assert np.isinf(bound.at(PLAIN)).all()


def test_dot_says_nothing_where_rounding_an_operand_overflows() -> None:
    x, y = np.array([[np.finfo(np.float32).max], [1.0]], np.float32), np.array([[0.5]], np.float32)
    (bound,) = DOT.bounds(_product(x, y))
    assert np.isfinite(bound.at(PLAIN)).all()
    assert np.isinf(bound.at(ON_TENSOR_CORES)).tolist() == [[True], [False]]


@pytest.mark.parametrize("axes", ["b m n", ""])
def test_dot_orders_the_output_as_it_is_told(axes: str) -> None:
    leaves = {"x": np.ones((2, 3), np.float32), "y": np.ones((5, 3, 4), np.float32)}
    declared = {"x": kt.array("m k"), "y": kt.array("b k n")}
    case = measured(lambda x, y: x @ y, leaves, declared, dict(m=2, k=3, b=5, n=4))
    if axes:
        assert kt.tolerance.dot("k", output=axes).bounds(case)[0].fixed.shape == (5, 2, 4)
    else:
        with pytest.raises(ValueError, match="say which dims the output has"):
            DOT.bounds(case)


def test_ulp_counts_units_in_the_last_place() -> None:
    case = vector(lambda x: np.exp(x))
    (bound,) = kt.tolerance.ulp(2).bounds(case)
    exact = case.values[0]
    assert (np.abs(exact * (1 + 3.9 * 2.0**-24) - exact) <= bound.at(PLAIN)).all()
    assert (np.abs(exact * (1 + 4.1 * 2.0**-24) - exact) > bound.at(PLAIN)).all()


def test_reduction_bounds_a_sum_of_terms_of_both_signs_in_any_order() -> None:
    case, model = vector(lambda x: x.sum()), kt.tolerance.reduction("n")
    (bound,) = model.bounds(case)
    for order in (1, -1):
        total = np.float32(0)
        for term in case.leaves["x"].astype(np.float32)[::order]:
            total = total + term
        assert abs(float(total) - case.values[0]) <= bound.at(PLAIN)
    case = vector(lambda x: (x + 4).sum())
    (bound,) = model.bounds(case)
    in_half = np.add.accumulate((case.leaves["x"] + 4).astype(np.float16))[-1]
    assert abs(float(in_half) - case.values[0]) > bound.at(PLAIN)
    assert np.isinf(model.bounds(vector(lambda x: x.sum(), np.float64, 10, 1e39))[0].at(PLAIN))


CUMULATIVE = (lambda x: np.cumsum(x, axis=-1), dict(output="m n"), (3, 8))
GROUPS = (lambda x: x.reshape(3, 4, 2).sum(-1), {}, (3, 4))


@pytest.mark.parametrize(
    ("oracle", "more", "shape"),
    [
        (lambda x: x.sum(-1), {}, (3,)),
        (lambda x: x.sum(-1, keepdims=True), {}, (3, 1)),
        CUMULATIVE,
        (*CUMULATIVE[:1], {}, (3, 8)),
        GROUPS,
        (lambda x: x.reshape(3, 2, 2, 2).sum(1), {}, (3, 2, 2)),
        (lambda x: np.broadcast_to(x.sum(-1), (5, 3)), dict(output="copies m"), (5, 3)),
    ],
)
def test_a_reduction_may_keep_what_it_sums_over(oracle: Any, more: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32) * [[1], [100], [10_000]]
    case = measured(oracle, {"x": x.astype(np.float32)}, {"x": kt.array("m n")}, dict(m=3, n=8, copies=5))
    (bound,) = kt.tolerance.reduction("n", **more).bounds(case)
    assert bound.fixed.shape == shape
    by_row = np.abs(case.leaves["x"]).sum(-1) * gamma(8, 2.0**-24)
    axis = shape.index(3)
    assert np.allclose(bound.fixed, by_row.reshape([3 if i == axis else 1 for i in range(len(shape))]))


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_sums_before_a_special_term_keep_their_bound(special: float) -> None:
    x = np.array([[1.0, 2.0, special]], np.float32)
    case = measured(lambda x: np.cumsum(x, axis=-1), {"x": x}, {"x": kt.array("m n")}, dict(m=1, n=3))
    (bound,) = kt.tolerance.reduction("n").bounds(case)
    assert bound.fixed[0, 0] == pytest.approx(3 * gamma(3, 2.0**-24))


def test_a_square_argument_keeps_its_axes_in_their_places() -> None:
    x = np.array([[1.0, 100.0], [1.0, 100.0]], np.float32)
    case = measured(lambda x: np.cumsum(x, axis=0), {"x": x}, {"x": kt.array("m n")}, dict(m=2, n=2))
    (bound,) = kt.tolerance.reduction("m").bounds(case)
    assert (bound.fixed[:, 1] == 100 * bound.fixed[:, 0]).all()


def test_a_reduction_says_which_dims_it_lacks() -> None:
    declared = {"x": kt.array("m n")}
    assert kt.tolerance.reduction("n", output="n").misfit(declared, {}) == (
        "reduction(output='n') lacks m, which is not summed over"
    )
    case = measured(lambda x: x.sum(-1)[None, None], {"x": np.ones((3, 4))}, declared, dict(m=3, n=4))
    with pytest.raises(ValueError, match="say which dims the output has, as in"):
        kt.tolerance.reduction("n").bounds(case)


def test_gamma_is_the_worst_case_while_that_says_something() -> None:
    assert gamma(10, 2.0**-24) == pytest.approx(10 * 2.0**-24, rel=1e-5)
    assert gamma(127, 2.0**-8) == pytest.approx(127 / 129)
    assert 0 < gamma(2**24, 2.0**-24) < 0.01
    assert gamma(0, 2.0**-8) == 0


@pytest.mark.parametrize("n", [2_000, 20_000])
def test_beyond_it_gamma_bounds_long_sums_in_16_bits(n: int) -> None:
    rng, u = np.random.default_rng(0), 2.0**-11
    terms = (rng.normal(size=(200, n)) * 0.1).astype(np.float16)
    total = np.zeros(200, np.float16)
    for i in range(n):
        total = (total + terms[:, i]).astype(np.float16)
    error = np.abs(total.astype(np.float64) - terms.astype(np.float64).sum(-1))
    bound = gamma(n, u) * np.abs(terms.astype(np.float64)).sum(-1)
    assert (error <= bound).all()
    assert gamma(n, u) < 1


def test_where_all_terms_are_zero_nothing_is_lost_however_long_the_sum() -> None:
    n = 10**9  # so long that nothing is known of other terms
    assert gamma(n, 2.0**-8) == np.inf
    x = np.zeros((2, 3), np.float32)
    x[1] = 1
    case = measured(lambda x: x.sum(-1), {"x": x}, {"x": kt.array("m n")}, dict(m=2, n=n))
    (bound,) = kt.tolerance.reduction("n", accumulate="bfloat16").bounds(case)
    assert bound.fixed.tolist() == [0, np.inf]


def test_each_output_has_a_model_of_its_own() -> None:
    leaves, declared = {"x": np.ones((2, 3), np.float32)}, {"x": kt.array("m n")}
    case = measured(lambda x: x.sum(-1), leaves, declared, dict(m=2, n=3))
    both = replace(case, values=(*case.values, case.leaves["x"]), evaluate=lambda leaves: (leaves["x"],) * 2)
    model = kt.tolerance.each(kt.tolerance.reduction("n"), kt.tolerance.exact())
    first, second = model.bounds(both)
    (alone,) = kt.tolerance.reduction("n").bounds(case)
    assert np.array_equal(first.fixed, alone.fixed)
    assert not second.at(PLAIN).any()
    assert str(model) == "each(reduction(n, accumulate=float32), exact)"
    assert "needs exactly one" in kt.tolerance.each(kt.tolerance.reduction("k")).misfit(declared, {})
    with pytest.raises(ValueError, match="has 2 models, but the oracle 1 outputs"):
        model.bounds(case)


def test_underflow_has_its_own_term_and_flushing_a_larger_one() -> None:
    bound = Bound(np.zeros(1), roundings=4)
    assert bound.at(PLAIN) == 4 * 2.0**-150
    assert bound.at(FLUSHING) == 4 * 2.0**-126


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (kt.tolerance.ulp(0), "allows no error: use exact()"),
        (kt.tolerance.reduction("k"), "needs exactly one array argument with these dims, but 0 have them (none)"),
        (kt.tolerance.reference(np.exp, factor=0.5), "a kernel may be as inaccurate as the reference"),
    ],
)
def test_a_model_that_does_not_fit_says_why(model: Any, words: str) -> None:
    assert words in model.misfit({"x": kt.array("n")}, {"n": kt.dim()})


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
