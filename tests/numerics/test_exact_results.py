"""Quotients that are exact, numbers that are not, and logarithms of running sums."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kerneltest.core.dtypes import Array
from kerneltest.core.precision import AMD, FLOAT32, NVIDIA, SIMULATED, XLA_CPU, Precision
from kerneltest.numerics.rounding_bounds import bound_from_spread
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import spread_of
from tests.numerics.tracking import samples_of

# a dividend, a divisor, whether both the quotient and the product with the rounded reciprocal are exact
QUOTIENTS = [
    (1.0, 2.0, True),
    (0.5, 1.0, True),
    (127.0, 127.0, True),
    (63.5, 127.0, True),
    (3.0, 3.0, True),
    (6.0, 3.0, True),
    (0.0, 5.0, False),  # 0 stays in any case
    (1.0, 3.0, False),
    (41.0, 41.0, False),  # 41 * (1 / 41) is not 1 in float32
    (1e-30, 1e10, False),
]


@pytest.mark.parametrize(("dividend", "divisor", "exact"), QUOTIENTS)
@pytest.mark.parametrize("precision", [XLA_CPU, SIMULATED, AMD, NVIDIA, XLA_CPU.never_exact()], ids=lambda p: p.name)
def test_a_quotient_stays_if_both_ways_to_divide_are_exact(
    precision: Precision, dividend: float, divisor: float, exact: bool
) -> None:
    leaves = {"x": np.full(9, np.float32(dividend)), "y": np.full(9, np.float32(divisor))}
    leaves = {name: value.astype(np.float64) for name, value in leaves.items()}
    samples = samples_of(lambda x, y: x / y, leaves, RoundingModel(precision))
    moves = bool((samples[1:] != samples[0]).any())
    assert moves == (dividend != 0 and not (exact and precision.exact_quotients))


def test_a_tie_of_a_rounding_has_one_side() -> None:
    x = np.array([[127.0, 0.5, 1.5, -2.5, 3.0], [254.0, 1.0, 3.0, -5.0, 6.0]])

    def quantised(x: Any) -> Any:
        return np.rint(x / (np.abs(x).max(axis=1, keepdims=True) / 127))

    samples = samples_of(quantised, {"x": x}, RoundingModel(XLA_CPU))
    assert (samples == samples[0]).all()
    assert samples[0].tolist() == [[127, 0, 2, -2, 3]] * 2


TENTH = float(np.float32(0.1))
# oracles of x = float32(0.1), and how far a kernel with the constant in float32 may be off, in units of its rounding
CONSTANTS = [
    (lambda x: x - 0.1, 0.5),
    (lambda x: 0.1 - x, 0.5),
    (lambda x: np.minimum(x, 0.1), 0.5),
    (lambda x: np.where(x > 5, x, 0.1), 0.5),
    (lambda x: x[:, None] @ np.full((1, 1), 0.1) * 10, 0.5),
    (lambda x: x - np.float32(0.1), 0.0),
    (lambda x: np.maximum(x, -1e300), 0.0),  # a kernel writes another number
    (lambda x: np.where(x > 0, x, 1e-300), 0.0),
]


@pytest.mark.parametrize(("oracle", "least"), CONSTANTS)
def test_a_constant_is_known_to_half_an_ulp(oracle: Callable[..., Array], least: float) -> None:
    samples = samples_of(oracle, {"x": np.full(40, TENTH)}, RoundingModel(XLA_CPU))
    found = spread_of(samples)
    assert not found.lost.any()
    unit = 0.1 * FLOAT32.unit_roundoff
    assert (found.deviation.mean() > least * unit) == bool(least)
    assert found.deviation.max() < 4 * FLOAT32.unit_roundoff


def test_a_comparison_with_a_constant_has_two_results_at_it() -> None:
    samples = samples_of(lambda x: x > 0.1, {"x": np.array([TENTH, 0.2, 0.0])}, RoundingModel(XLA_CPU))
    assert samples[0].tolist() == [True, True, False]
    assert {tuple(row) for row in samples.tolist()} == {(True, True, False), (False, True, False)}


def _doubling(x: Array) -> Array:
    """Returns running logarithms of sums by doubling steps on maxima and scaled sums, in float32."""
    m, s = x.astype(np.float32), np.ones(x.shape, np.float32)
    step = 1
    while step < x.shape[1]:
        new = np.maximum(m[:, step:], m[:, :-step])
        joined = s[:, step:] * np.exp(m[:, step:] - new) + s[:, :-step] * np.exp(m[:, :-step] - new)
        m, s = np.concatenate([m[:, :step], new], 1), np.concatenate([s[:, :step], joined], 1)
        step *= 2
    return m + np.log(s)


@pytest.mark.parametrize("scale", [0.01, 3.0, 1000.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_logarithms_of_sums_are_followed(scale: float, axis: int) -> None:
    x = (scale * np.random.default_rng(0).normal(size=(8, 50))).astype(np.float32)
    leaves = {"x": (x if axis else x.T).astype(np.float64)}
    samples = samples_of(lambda x: np.logaddexp.accumulate(x, axis=axis), leaves, RoundingModel(XLA_CPU))
    bound = bound_from_spread(samples[0], spread_of(samples), FLOAT32.unit_roundoff)
    exact, bound = (samples[0], bound) if axis else (samples[0].T, bound.T)
    assert (np.abs(np.logaddexp.accumulate(x, axis=1, dtype=np.float32) - exact) <= bound).all()
    assert (np.abs(_doubling(x) - exact) <= bound).all()
    assert np.median(bound) < 400 * FLOAT32.unit_roundoff * max(scale, 3.0)
