"""The default error model: its bound, and its fallback for oracles that cannot be tracked."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.precision import FLOAT32, NVIDIA, XLA_CPU
from kerneltest.declare.error_models import Conditioned, Measured, Rounding
from kerneltest.numerics.rounding_bounds import SPREAD_FACTOR, RoundingLimit, bound_from_spread, sample_together
from kerneltest.numerics.samples import UntrackedError
from kerneltest.numerics.spread import Spread
from tests.declare.measured import measured, vector
from tests.sample import elementwise

U = FLOAT32.unit_roundoff
MODEL = kt.tolerance.rounding()


def _one(case: Measured, model: Any = MODEL) -> RoundingLimit:
    (found,) = model.bounds(case)
    assert isinstance(found, RoundingLimit)
    return found


# values, deviations, the bound in parts of u
BOUNDS = [
    pytest.param([1.0], [2.0], [7 * 2 + 2], id="seven-deviations-and-two-roundings"),
    pytest.param([1.0], [0.0], [0], id="what-does-not-move-is-exact"),
    pytest.param([4.0], [2.0], [7 * 2 + 8], id="roundings-of-the-value"),
    pytest.param([1.0, 1.0, 1.0], [8.0, 8.0, 0.1], [58, 58, 7 * 2 + 2], id="a-floor-of-a-quarter-of-the-median"),
    pytest.param([1.0, 1.0, 1.0], [8.0, 8.0, 0.0], [58, 58, 7 * 2], id="floor-alone"),
    pytest.param([1.0, 1.0, 1.0], [8e5, 8e5, 0.1], [56e5 + 2, 56e5 + 2, 7 * 8 + 2], id="a-median-counts-up-to-32"),
    pytest.param([np.inf, 1.0], [0.0, 1.0], [0, 9], id="an-infinity-has-no-size"),
    pytest.param([0.0], [1.0], [7], id="zero"),
]


@pytest.mark.parametrize(("values", "deviations", "wanted"), BOUNDS)
def test_the_bound_is_what_is_documented(values: list[float], deviations: list[float], wanted: list[float]) -> None:
    found = Spread(np.array(deviations) * U, np.zeros(len(values), bool))
    assert bound_from_spread(np.array(values), found, U) / U == pytest.approx(wanted)


def test_nothing_is_asked_of_what_is_lost() -> None:
    found = bound_from_spread(np.ones(2), Spread(np.ones(2), np.array([False, True])), U)
    assert np.isfinite(found).tolist() == [True, False]


def test_the_default_is_this_model() -> None:
    pairing = kt.oracle_for(lambda x: x, x=kt.array("n"))(lambda x: x)
    assert isinstance(pairing.tolerance, Rounding)
    assert str(pairing.tolerance) == "rounding()"
    assert str(kt.tolerance.rounding(compute="input")) == "rounding(compute=input)"


def test_a_backend_that_rounds_operands_has_a_wider_bound_unless_its_products_are_exact() -> None:
    rng = np.random.default_rng(0)
    leaves = {"x": rng.normal(size=(8, 64)).astype(np.float32), "y": rng.normal(size=(64, 8)).astype(np.float32)}
    case = measured(lambda x, y: x @ y, leaves, {}, {})
    on_device, here = (_one(case).at(row) for row in (NVIDIA, XLA_CPU))
    assert np.median(on_device / here) > 100
    assert np.median(_one(case).at(NVIDIA.with_exact_dots()) / here) < 3
    object.__setattr__(case, "statics", {"precision": "HIGHEST"})
    assert np.median(_one(case).at(NVIDIA) / here) < 3
    object.__setattr__(case, "statics", {"mode": "highest"})
    assert np.median(_one(case, Rounding(precision="mode")).at(NVIDIA) / here) < 3


def test_arithmetic_in_the_inputs_format_has_the_bound_of_that_format() -> None:
    case = vector(lambda x: x / 3 + 1, ml_dtypes.bfloat16)
    default, narrow = (_one(case, model).at(XLA_CPU) for model in (MODEL, Rounding(compute="input")))
    assert 2.0**14 < np.median(narrow / default) < 2.0**18


def test_integers_have_no_bound_and_other_values_where_rounding_decides() -> None:
    case = measured(lambda x: (x / 3 * 3 > 1).astype(int), {"x": np.array([1, 2, 0.5], np.float32)}, {}, {})
    found = _one(case)
    assert not found.at(XLA_CPU).any()
    assert {tuple(other) for other in found.alternatives(XLA_CPU)} == {(1, 1, 0)}


def test_the_parts_of_a_bound_name_operations() -> None:
    case = vector(lambda x: np.exp(x) * 1.1)
    found = _one(case).shares(XLA_CPU)
    assert {share.source.origin.text for share in found} >= {"np.exp(x)", "np.exp(x) * 1.1"}
    assert sum(share.part for share in found) == pytest.approx(1)


# Oracles, and the notes on how they were tracked.


def _loop(x: Any) -> Any:
    out = np.zeros(x.shape)
    for i in range(len(x)):
        out[i] = x[i] * 1.1
    return out


def _scaled_by(y: Any, scale: float) -> Any:
    return np.asarray(y) * scale


def _helper(x: Any) -> Any:
    return _scaled_by(np.array([v * 1.0 for v in x]), 1.1)


def _floats(x: Any) -> Any:
    return np.array([float(v) * 1.1 for v in x])


def _listed(x: Any) -> Any:
    return np.array([v * 1.1 for v in x.tolist()])


def _branching(x: Any) -> Any:
    return np.array([v * 1.1 if v > 0 else -(v * -1.1) for v in x])


def _interpolated(x: Any) -> Any:
    return np.interp(x, [-100.0, 0.0, 100.0], [-110.0, 0.0, 110.0])


def _by_type(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        raise ValueError("not an array\nbut something else")
    return x * 1.1


def _something_else(x: Any) -> Any:
    return x * 1.1 if isinstance(x, np.ndarray) else x * 1.2


FLOOR = "is not tracked; conditioned() is the floor"
INSTEAD = "conditioned() instead, because the oracle cannot be tracked"
FOLLOWED = [
    (_loop, ""),
    (_helper, ""),
    (_branching, ""),
    (_floats, f"float(), `float(v)` at test_rounding.py:LINE {FLOOR}"),
    (_listed, f"tolist(), `x.tolist()` at test_rounding.py:LINE {FLOOR}"),
    (_interpolated, f"{INSTEAD} ({UntrackedError.__name__}: np.interp)"),
    (_by_type, f"{INSTEAD} (ValueError: not an array)"),
    (_something_else, f"{INSTEAD} (ValueError: on tracked arrays it computes something else)"),
]
ORACLES = pytest.mark.parametrize(("oracle", "note"), FOLLOWED, ids=lambda v: getattr(v, "__name__", " ").strip("_"))


def _line(oracle: Callable[..., Any]) -> int:
    return oracle.__code__.co_firstlineno + 1


@ORACLES
def test_what_is_not_followed_is_said_and_bounded_by_conditioned(oracle: Callable[..., Any], note: str) -> None:
    case = vector(oracle, n=50)
    found = _one(case)
    assert found.note(XLA_CPU) == note.replace("LINE", str(_line(oracle)))
    (floor,) = Conditioned().bounds(case)
    plain = _one(vector(lambda x: x * 1.1, n=50)).at(XLA_CPU)
    wide = found.at(XLA_CPU)
    assert (wide >= floor.at(XLA_CPU) * (1 - 1e-9)).all() == bool(note)
    assert note or (wide <= 4 * plain).all()
    assert (wide < 1e-5 * np.abs(case.values[0]) + 1e-30).all()
    assert bool(found.shares(XLA_CPU)) == (not note)


def test_what_an_oracle_is_written_like_is_tried_once() -> None:
    calls: list[int] = []

    def oracle(x: Any) -> Any:
        calls.append(1)
        return np.interp(x, [-100.0, 100.0], [0.0, 1.0])

    for expected in (6, 0):  # three ways, each repeated in case it raises once only
        case = vector(oracle, n=5)
        found = _one(case)
        calls.clear()
        found.at(XLA_CPU)
        assert len(calls) == expected + Conditioned().samples


def _exp_of_each(x: Any) -> Any:
    return np.array([np.exp(float(v)) for v in x])


@pytest.mark.parametrize("oracle", [np.exp, _exp_of_each])
def test_the_parts_of_a_bound_come_from_the_samples_of_the_bound(oracle: Callable[..., Any]) -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return oracle(x)

    found = _one(vector(counted, n=5), Rounding(functions=(("exp", 1e-4),)))
    found.at(NVIDIA)
    known = set(found.samples.found)
    calls.clear()
    found.shares(NVIDIA)
    assert set(found.samples.found) == known
    assert len(calls) <= 2


def test_no_more_than_numpy_is_needed() -> None:
    code = "import sys; sys.modules['scipy'] = None; import kerneltest.numerics.spread"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("oracle", "note"), [FOLLOWED[i] for i in (0, 3, 5)], ids=["loop", "floats", "interp"])
def test_records_say_so(oracle: Callable[..., Any], note: str) -> None:
    def kernel(x: Any) -> Any:
        return elementwise(lambda v: v * 1.1, x)

    domain = kt.array("n", "float32", domain=(-10, 10))
    pairing = kt.oracle_for(kernel, x=domain, dims=dict(n=kt.dim(values=(4,))))(oracle)
    result = kt.check(pairing, depth="quick")
    assert result.ok
    said = {record.tolerance for record in result.records if record.family == "sorted_rows"}
    assert said == {"rounding()" + (f": {note.replace('LINE', str(_line(oracle)))}" if note else "")}


def test_the_factor_is_that_of_the_documentation() -> None:
    assert f"{SPREAD_FACTOR:g} max(s" in str(bound_from_spread.__doc__)


def _cases(function: Callable[..., Any], count: int) -> list[RoundingLimit]:
    drawn = np.random.default_rng(5).normal(size=(count, 16)).astype(np.float32)
    return [_one(measured(function, {"x": row}, {"x": kt.array("n")}, {"n": 16})) for row in drawn]


def test_cases_that_are_followed_at_once_have_the_bounds_that_each_has_alone() -> None:
    calls = []

    def softmax(x: Any) -> Any:
        calls.append(isinstance(x, np.ndarray))
        parts = np.exp(x - x.max())
        return parts / parts.sum()

    alone = [each.at(XLA_CPU) for each in _cases(softmax, 5)]
    assert calls.count(False) == 5
    calls.clear()
    beside = _cases(softmax, 5)
    sample_together((each,) for each in beside)
    assert all((one == each.at(XLA_CPU)).all() for one, each in zip(alone, beside, strict=True))
    assert calls.count(False) == 1
    assert all(each.shares(XLA_CPU) for each in beside)


def test_an_oracle_that_branches_on_its_values_is_followed_case_by_case() -> None:
    def doubled(x: Any) -> Any:
        return x * 3 if x[0] > 0 else x / 3

    beside = _cases(doubled, 4)
    sample_together((each,) for each in beside)
    bounds = [each.at(XLA_CPU) for each in beside]
    assert all((bound > 0).any() for bound in bounds)
    assert all((bound == each.at(XLA_CPU)).all() for bound, each in zip(bounds, _cases(doubled, 4), strict=True))
