"""The spread of an output's samples around its exact row."""

from typing import Any

import numpy as np
import pytest

from kerneltest.core.precision import FLOAT32, XLA_CPU
from kerneltest.numerics.bounds import OracleCase
from kerneltest.numerics.rounding_bounds import OracleSamples
from kerneltest.numerics.rounding_model import RoundingModel, noise
from kerneltest.numerics.spread import Spread, median, sample_outputs, sample_row_by_row, spread_of

INF, NAN = np.inf, np.nan

# the exact value, those of the samples, the deviation, whether nothing can be asked
ELEMENTS = [
    (1.0, [1.0, 1.0], 0.0, False),
    (1.0, [1.5, 0.5], 0.5, False),
    (1.0, [4.0, 5.0], np.sqrt(12.5), False),
    (NAN, [NAN, NAN], 0.0, False),
    (NAN, [NAN, 1.0], 0.0, True),
    (1.0, [1.0, NAN], 0.0, True),
    (1.0, [INF, 1.0], 0.0, True),
    (INF, [INF, INF], 0.0, False),
    (INF, [INF, 3e38], 0.0, True),
    (INF, [INF, -INF], 0.0, True),
    (INF, [INF, NAN], 0.0, True),
    (1e39, [INF, INF], 0.0, False),  # what float32 says of so large a number
    (-1e39, [-INF, -INF], 0.0, False),
    (1e39, [INF, -INF], 0.0, True),
    (0.0, [0.0, -0.0], 0.0, False),
]


@pytest.mark.parametrize(("exact", "samples", "deviation", "lost"), ELEMENTS)
def test_the_spread_of_an_element(exact: float, samples: list[float], deviation: float, lost: bool) -> None:
    found = spread_of(np.array([exact, *samples])[:, None])
    assert found.lost.tolist() == [lost]
    assert lost or found.deviation == pytest.approx([deviation])
    assert found.alternatives == ()


@pytest.mark.parametrize("samples", [np.ones((1, 3)), np.ones((1, 3), int), np.ones((1, 3), bool), np.ones((1, 0))])
def test_what_does_not_move_has_none(samples: np.ndarray) -> None:
    found = spread_of(samples)
    assert not found.deviation.any()
    assert not found.lost.any()
    assert found.deviation.shape == found.lost.shape == samples.shape[1:]


@pytest.mark.parametrize("dtype", [int, bool])
def test_integers_and_booleans_that_differ_are_kept_as_they_are(dtype: type) -> None:
    rows = np.array([[1, 0], [1, 0], [0, 0], [1, 1]]).astype(dtype)
    found = spread_of(rows)
    assert [other.tolist() for other in found.alternatives] == rows[2:].tolist()
    assert not found.deviation.any()


def test_a_floor_is_the_least_and_where_it_is_infinite_nothing_is_asked() -> None:
    found = Spread(np.array([1.0, 5.0, 2.0]), np.zeros(3, bool)).at_least(np.array([3.0, 3.0, INF]))
    assert found.deviation.tolist() == [3.0, 5.0, 2.0]
    assert found.lost.tolist() == [False, False, True]


def _oracle(given: Any) -> list[Any]:
    return [np.exp(given["x"]) @ given["x"].T, given["x"] > 0.5, given["k"] + 1]


LEAVES = {"x": np.linspace(0, 1, 12).reshape(3, 4), "k": np.arange(3)}


def test_an_oracle_in_samples_and_row_by_row_is_the_same_where_nothing_is_left_to_chance() -> None:
    formats = {"x": FLOAT32}
    at_once = sample_outputs(_oracle, LEAVES, formats, RoundingModel(XLA_CPU, rows=17))
    each = sample_row_by_row(_oracle, LEAVES, formats, RoundingModel(XLA_CPU, rows=17))
    assert [out.shape for out in at_once] == [(17, 3, 3), (1, 3, 4), (1, 3)]
    assert [out.shape for out in each] == [(17, 3, 3), (17, 3, 4), (17, 3)]
    assert (at_once[0][:3] == each[0][:3]).all()
    assert np.allclose(at_once[0][0], _oracle(LEAVES)[0], rtol=1e-13)
    ratio = spread_of(each[0]).deviation / spread_of(at_once[0]).deviation
    assert 0.3 < np.median(ratio) < 3
    assert (each[2] == LEAVES["k"] + 1).all()


def test_an_oracle_may_branch_by_row_where_it_is_evaluated_so() -> None:
    def branching(given: Any) -> list[Any]:
        thirds = given["x"] / 3 - 1 / 3
        return [np.array([1 if v > 0 else 0 for v in thirds])]

    leaves, formats = {"x": np.ones(1)}, {"x": FLOAT32}
    (found,) = sample_row_by_row(branching, leaves, formats, RoundingModel(XLA_CPU, rows=17))
    assert len(spread_of(found).alternatives) > 0
    with pytest.raises(TypeError, match="branch"):
        sample_outputs(branching, leaves, formats, RoundingModel(XLA_CPU, rows=17))


def test_subnormal_inputs_are_flushed_in_the_samples_of_a_machine_that_does() -> None:
    small = {"x": np.array([1e-40, 1.0])}
    (found,) = sample_outputs(lambda given: [given["x"] * 1e38], small, {"x": FLOAT32}, RoundingModel(XLA_CPU, rows=17))
    assert found[1, 0] == pytest.approx(0.01, rel=1e-4)
    assert found[2, 0] == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4, 17, 1000, 1001])
def test_a_median_is_numpys(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    before = values.copy()
    assert median(values) == np.median(values)
    assert median(np.where(values > 0, INF, values)) == np.median(np.where(values > 0, INF, values))
    assert (values == before).all()


# the oracle's value, the exact row, how far the other rows are from it, whether nothing escaped tracking
ROWS = [
    (1.0, 1.0, 0.0, True),
    (1.0, 1.0 + 1e-15, 1e-7, True),
    (1.0, 1.0 + 1e-8, 1e-7, False),
    (1e-17, 3e-17, 1e-7, True),  # left where values of about 1 cancel
    (0.0, -2e-17, 1e-7, True),
    (0.0, 1e-9, 1e-7, False),
    (0.0, 2e-17, 0.0, False),
    (NAN, NAN, 1e-7, True),
    (NAN, 1.0, 1e-7, False),
    (INF, -INF, 1e-7, False),
]


@pytest.mark.parametrize(("value", "exact", "moved", "tracked"), ROWS)
def test_what_the_exact_row_may_differ_by(value: float, exact: float, moved: float, tracked: bool) -> None:
    case = OracleCase(lambda leaves: (), {}, (np.array([value]),), {}, lambda leaves: (), print)
    rows = np.array([exact, exact + moved, exact - moved])[:, None]
    assert OracleSamples(case, FLOAT32, False).is_tracked([rows]) == tracked


@pytest.mark.parametrize("elements", [2**16, 2**17, 3 * 2**18, 2**20])
def test_the_samples_of_a_large_array_get_different_errors(elements: int) -> None:
    errors = noise((14, 1, elements), 0.3)[:, 0]
    assert len({row[:64].tobytes() for row in errors}) == len(errors)
    assert len(np.unique(errors.sum(1))) == len(errors)
    assert (errors == noise((14, 1, elements), 0.3)[:, 0]).all()
    assert (errors != noise((14, 1, elements), 0.4)[:, 0]).mean() > 0.99
