"""Error models: right computations stay within, wrong ones do not, and each term does its part."""

import numpy as np
import pytest

from kerneltest import conditioned, dot, reduction, relative_to, ulp
from kerneltest.core.dtypes import TF32, Output, float_format
from kerneltest.declare import pairing
from kerneltest.declare.bounds import Bound, Measured, Precision, gamma
from kerneltest.oracle.expectation import Expectation, expect
from kerneltest.plan.signatures import signatures

F32 = float_format(np.dtype(np.float32))
PLAIN, ON_TENSOR_CORES, FLUSHING = Precision(), Precision(dot_input=TF32), Precision(flushes=True)


def _measured(function, leaves, declared, dims):  # type: ignore[no-untyped-def]
    def evaluate(named):  # type: ignore[no-untyped-def]
        return (np.asarray(function(**named)),)

    wide = {name: value.astype(np.float64) for name, value in leaves.items()}
    formats = tuple(float_format(value.dtype) for value in leaves.values())

    def in_kind(reference):  # type: ignore[no-untyped-def]
        return (np.asarray(reference(**leaves)).astype(np.float64),)

    return Measured(evaluate, wide, evaluate(wide), declared, dims, formats, in_kind)


def _product(m: int = 9, k: int = 200, n: int = 7) -> Measured:
    rng = np.random.default_rng(0)
    leaves = {"x": rng.normal(size=(m, k)).astype(np.float32), "y": rng.normal(size=(k, n)).astype(np.float32)}
    declared = {"x": pairing.array("m k"), "y": pairing.array("k n")}
    return _measured(lambda x, y: x @ y, leaves, declared, dict(m=m, k=k, n=n))


def _to_tf32(x: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)


def test_dot_bounds_float32_sums_in_any_order() -> None:
    measured = _product()
    (bound,) = dot("k").bounds(measured)
    x, y = (value.astype(np.float32) for value in measured.leaves.values())
    forward, backward = np.float32(0), np.float32(0)
    for i in range(x.shape[1]):
        forward = forward + x[:, i, None] * y[None, i]
        backward = backward + x[:, ~i, None] * y[None, ~i]
    for result in (forward, backward, x @ y):
        assert (np.abs(result - measured.values[0]) <= bound.at(PLAIN)).all()


def test_dot_admits_tf32_only_where_it_is_in_play() -> None:
    measured = _product()
    (bound,) = dot("k").bounds(measured)
    rounded = _to_tf32(measured.leaves["x"]) @ _to_tf32(measured.leaves["y"])
    error = np.abs(rounded - measured.values[0])
    assert (error <= bound.at(ON_TENSOR_CORES)).all()
    assert (error > bound.at(PLAIN)).any()


def test_dot_finds_sums_in_bfloat16() -> None:
    measured = _product()
    (bound,) = dot("k").bounds(measured)
    (loose,) = dot("k", accumulate="bfloat16").bounds(measured)
    import ml_dtypes

    total = np.zeros((9, 7), ml_dtypes.bfloat16)
    for i in range(200):
        total = total + (measured.leaves["x"][:, i, None] * measured.leaves["y"][None, i]).astype(ml_dtypes.bfloat16)
    error = np.abs(total.astype(np.float64) - measured.values[0])
    assert (error > bound.at(PLAIN)).any()
    assert (error <= loose.at(PLAIN)).all()


def test_dot_says_nothing_where_a_partial_sum_may_overflow() -> None:
    leaves = {"x": np.array([[3e38, -3e38, 1.0]], np.float32), "y": np.array([[2.0], [2.0], [1.0]], np.float32)}
    declared = {"x": pairing.array("m k"), "y": pairing.array("k n")}
    (bound,) = dot("k").bounds(_measured(lambda x, y: x @ y, leaves, declared, dict(m=1, k=3, n=1)))
    assert np.isinf(bound.at(PLAIN)).all()


def test_dot_says_nothing_where_rounding_an_operand_overflows() -> None:
    largest = np.finfo(np.float32).max
    leaves = {"x": np.array([[largest], [1.0]], np.float32), "y": np.array([[0.5]], np.float32)}
    declared = {"x": pairing.array("m k"), "y": pairing.array("k n")}
    (bound,) = dot("k").bounds(_measured(lambda x, y: x @ y, leaves, declared, dict(m=2, k=1, n=1)))
    assert np.isfinite(bound.at(PLAIN)).all()
    assert np.isinf(bound.at(ON_TENSOR_CORES)).tolist() == [[True], [False]]


@pytest.mark.parametrize("axes", ["b m n", ""])
def test_dot_orders_the_output_as_it_is_told(axes: str) -> None:
    leaves = {"x": np.ones((2, 3), np.float32), "y": np.ones((5, 3, 4), np.float32)}
    declared = {"x": pairing.array("m k"), "y": pairing.array("b k n")}
    measured = _measured(lambda x, y: x @ y, leaves, declared, dict(m=2, k=3, b=5, n=4))
    if axes:
        assert dot("k", output=axes).bounds(measured)[0].fixed.shape == (5, 2, 4)
    else:
        with pytest.raises(ValueError, match="say which dims the output has"):
            dot("k").bounds(measured)


def test_conditioned_follows_the_condition_of_the_function() -> None:
    x = np.linspace(-30, 30, 101, dtype=np.float32)
    (bound,) = conditioned().bounds(_measured(lambda x: np.exp(x), {"x": x}, {"x": pairing.array("n")}, dict(n=101)))
    relative = bound.fixed / np.exp(x.astype(np.float64))
    u = F32.unit_roundoff
    # exp's condition number is |x|: the bound is 8 u (|x| + 1), to first order
    assert np.allclose(relative, 8 * u * (np.abs(x) + 1), rtol=1e-3)


def test_conditioned_is_infinite_where_a_rounding_leaves_the_domain() -> None:
    x = np.array([1.0, 4.0], np.float32)
    with np.errstate(all="ignore"):
        measured = _measured(
            lambda x: np.sqrt(1 - x) * np.sqrt(x - 1), {"x": x[:1]}, {"x": pairing.array("n")}, dict(n=1)
        )
        (bound,) = conditioned().bounds(measured)
    assert np.isinf(bound.fixed).all()


def test_conditioned_adds_gamma_for_declared_sums() -> None:
    leaves, declared = {"x": np.ones((1, 100), np.float32)}, {"x": pairing.array("m n")}
    measured = _measured(lambda x: x.sum(-1), leaves, declared, dict(m=1, n=100))
    without, with_sums = (model.bounds(measured)[0].fixed for model in (conditioned(), conditioned(over="n")))
    assert with_sums - without == pytest.approx(gamma(100, F32.unit_roundoff) * 100)


def test_gamma_is_infinite_once_no_digit_is_certain() -> None:
    assert gamma(10, 2.0**-24) == pytest.approx(10 * 2.0**-24, rel=1e-5)
    assert gamma(2**24, 2.0**-24) == np.inf


def test_underflow_has_its_own_term_and_flushing_a_larger_one() -> None:
    bound = Bound(np.zeros(1), roundings=4)
    assert bound.at(PLAIN) == 4 * 2.0**-150
    assert bound.at(FLUSHING) == 4 * 2.0**-126


def _expectation(x: np.ndarray) -> Expectation:
    from kerneltest import array, exact, oracle_for
    from tests.sample import double

    made = oracle_for(double, x=array("n"), tolerance=exact())(lambda x: 2 * x)
    signature = signatures(made, "quick")[0]
    return expect(made, signature, {"x": x}, (Output(x.shape, x.dtype),), bitwise=False)


def test_flushed_subnormals_are_allowed_where_the_backend_flushes_and_nowhere_else() -> None:
    kind = np.dtype(np.float32)
    expectation = _expectation(np.array([1e-40, 1.0], np.float32))
    assert expectation.bound(0, kind, PLAIN).tolist() == [0.0, 0.0]
    flushing = expectation.bound(0, kind, FLUSHING)
    assert flushing[0] >= 2e-40
    assert flushing[1] == 0


def test_half_an_ulp_of_the_output_is_added_for_its_rounding() -> None:
    expectation = Expectation((np.array([1.0]),), None, (Bound(np.array([2.0**-30])),))
    for name, half in ((np.float32, 2.0**-24), (np.float16, 2.0**-11)):
        assert expectation.bound(0, np.dtype(name), PLAIN) == pytest.approx(2.0**-30 + half)


def _vector(function, kind=np.float32, n=1000, scale=1.0):  # type: ignore[no-untyped-def]
    leaves = {"x": (np.random.default_rng(0).normal(size=n) * scale).astype(kind)}
    return _measured(function, leaves, {"x": pairing.array("n")}, dict(n=n))


def test_ulp_counts_units_in_the_last_place() -> None:
    measured = _vector(lambda x: np.exp(x))
    (bound,) = ulp(2).bounds(measured)
    exact = measured.values[0]
    assert (np.abs(exact * (1 + 3.9 * 2.0**-24) - exact) <= bound.at(PLAIN)).all()
    assert (np.abs(exact * (1 + 4.1 * 2.0**-24) - exact) > bound.at(PLAIN)).all()


def test_reduction_bounds_a_sum_of_terms_of_both_signs_in_any_order() -> None:
    measured = _vector(lambda x: x.sum())
    (bound,) = reduction("n").bounds(measured)
    for order in (1, -1):
        total = np.float32(0)
        for term in measured.leaves["x"].astype(np.float32)[::order]:
            total = total + term
        assert abs(float(total) - measured.values[0]) <= bound.at(PLAIN)
    measured = _vector(lambda x: (x + 4).sum())
    (bound,) = reduction("n").bounds(measured)
    in_half = np.add.accumulate((measured.leaves["x"] + 4).astype(np.float16))[-1]
    assert abs(float(in_half) - measured.values[0]) > bound.at(PLAIN)
    assert np.isinf(reduction("n").bounds(_vector(lambda x: x.sum(), np.float64, 10, 1e39))[0].at(PLAIN))


def test_relative_to_allows_a_multiple_of_the_references_error_and_never_nothing() -> None:
    measured = _vector(lambda x: np.exp(x).sum(keepdims=True))

    def in_half(x: np.ndarray) -> np.ndarray:
        return np.exp(x).astype(np.float16).sum(keepdims=True, dtype=np.float32)

    (bound,) = relative_to(in_half, factor=3).bounds(measured)
    error = abs(float(in_half(measured.leaves["x"].astype(np.float32))[0]) - measured.values[0][0])
    assert bound.at(PLAIN)[0] == pytest.approx(3 * error)
    (floor,) = relative_to(lambda x: np.exp(x.astype(np.float64)).sum(keepdims=True)).bounds(measured)
    assert floor.at(PLAIN)[0] >= 2 * 2.0**-24 * measured.values[0][0]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (ulp(0), "allows nothing: use exact()"),
        (reduction("k"), "needs exactly one array argument with these dims, and 0 have them (none)"),
        (relative_to(np.exp, factor=0.5), "a kernel may be as bad as the reference"),
    ],
)
def test_a_model_that_does_not_fit_says_why(model, words) -> None:  # type: ignore[no-untyped-def]
    assert words in model.misfit({"x": pairing.array("n")}, {"n": pairing.dim()})
