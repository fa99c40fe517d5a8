"""The errors of one operation, row by row."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.core.dtypes import TF32, Array, FloatFormat, float_format, parse_dtype
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.rounding_model import NOISELESS_ROWS, ErrorSource, RoundingModel, round_to_nearest, truncate
from tests.numerics.tracking import PLAIN, tracked

FLUSHING = replace(PLAIN, name="flushing", flushes=True)
BFLOAT16, FLOAT16 = float_format(parse_dtype("bfloat16")), float_format(np.dtype(np.float16))
ROWS = 17
LEAST = FLOAT32.smallest_subnormal


def _random(n: int = 1000, seed: int = 0) -> Array:
    """Returns numbers of many magnitudes that float32 cannot represent."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) * 10.0 ** rng.uniform(-20, 20, n)


def _relative(moved: Array, exact: Array, u: float) -> Array:
    return np.abs(moved - exact) / (u * np.abs(exact))


FORMATS = [
    (FLOAT32, np.float32),
    (FLOAT16, np.float16),
    (BFLOAT16, ml_dtypes.bfloat16),
    (float_format(parse_dtype("float8_e5m2")), ml_dtypes.float8_e5m2),
]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("fmt", "dtype"), FORMATS, ids=["float32", "float16", "bfloat16", "float8_e5m2"])
def test_nearest_is_what_a_cast_gives(fmt: FloatFormat, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    sizes = 2.0 ** rng.uniform(fmt.min_exponent - fmt.precision - 2, 16, 20000)
    special = [0, np.inf, -np.inf, np.nan, fmt.overflow, fmt.smallest_normal, fmt.smallest_subnormal / 2, 1 + 2.0**-11]
    values = np.concatenate([sizes * rng.choice((-1, 1), sizes.size), special])
    with np.errstate(all="ignore"):
        # By way of float32, since a cast from float64 is rounded twice by some versions.
        values = values.astype(np.float32).astype(np.float64)
        wanted = values.astype(np.float32).astype(dtype).astype(np.float64)
    assert np.array_equal(round_to_nearest(values, fmt), wanted, equal_nan=True)
    assert np.isinf(round_to_nearest(np.array([1e300]), fmt)).all()


def test_tf32_keeps_eleven_bits() -> None:
    one = np.array([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-12, 3e38])
    assert round_to_nearest(one, TF32)[:4].tolist() == [1 + 2.0**-10, 1, 1 + 2.0**-9, 1]
    assert truncate(-one, TF32)[:4].tolist() == [-1 - 2.0**-10, -1, -1 - 2.0**-10, -1]


@pytest.mark.parametrize("fmt", [TF32, BFLOAT16, FLOAT16], ids=["tf32", "bfloat16", "float16"])
def test_what_is_truncated_is_the_multiple_of_the_spacing_before_it(fmt: FloatFormat) -> None:
    rng = np.random.default_rng(0)
    sizes = 2.0 ** rng.uniform(fmt.min_exponent - fmt.precision - 2, fmt.max_exponent, 2000)
    values = np.concatenate([sizes * rng.choice((-1, 1), sizes.size), [0.0, -0.0, np.inf, -np.inf, np.nan]])
    wanted = np.where(np.isfinite(values), np.trunc(values / fmt.ulp(values)) * fmt.ulp(values), values)
    out = truncate(values, fmt)
    assert np.array_equal(out, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(out), np.signbit(wanted))


def test_the_first_row_is_exact_the_next_two_are_rounded_to_nearest_and_the_others_differ() -> None:
    values = _random()
    out = RoundingModel(PLAIN, rows=ROWS).round_result(values[None], 2.0, FLOAT32)
    assert out.shape == (ROWS, values.size)
    assert (out[0] == values).all()
    assert (out[1] == values.astype(np.float32)).all()
    assert (out[2] == out[1]).all()
    assert all((out[row] != out[1]).any() for row in range(NOISELESS_ROWS, ROWS))
    assert len({row.tobytes() for row in out}) == ROWS - 1


# The error before the last rounding in ulps, and how many u a result may move in all.
@pytest.mark.parametrize(("ulps", "most"), [(0.0, 2.5), (0.5, 3.5), (2.0, 6.5), (4.5, 11.5)])
@pytest.mark.parametrize("fmt", [FLOAT32, BFLOAT16], ids=["float32", "bfloat16"])
def test_an_inexact_result_moves_by_so_many_roundings_and_no_more(ulps: float, most: float, fmt: FloatFormat) -> None:
    values = _random()
    out = RoundingModel(PLAIN, rows=4 * ROWS).round_result(values[None], ulps, fmt)
    moved = _relative(out[NOISELESS_ROWS:], values, fmt.unit_roundoff)
    assert 0.7 * most < moved.max() <= most * (1 + 4 * ulps * fmt.unit_roundoff + fmt.unit_roundoff)
    assert moved.mean(0).min() > 0.1


def test_representable_results_of_correctly_rounded_operations_stay() -> None:
    values = _random().astype(np.float32).astype(np.float64)
    machine = RoundingModel(PLAIN, rows=ROWS)
    assert (machine.round_result(values[None], 0.0, FLOAT32) == values).all()
    assert (machine.round_result(values[None], 0.5, FLOAT32) != values).any()
    assert (machine.round_result(values[None], 0.0, BFLOAT16) != values).any()


def test_ulps_may_differ_between_elements_and_between_rows() -> None:
    values = np.full((ROWS, 2), 1.1)
    each = np.zeros((ROWS, 2))
    each[:, 1] = 100
    out = RoundingModel(PLAIN, rows=ROWS).round_result(values.copy(), lambda at: each[at], FLOAT32)
    moved = _relative(out, values, FLOAT32.unit_roundoff).max(0)
    assert moved[0] < 3
    assert moved[1] > 50


def test_subnormal_results_are_kept_in_row_one_and_zero_in_row_two() -> None:
    small = np.array([1e-40, -1e-40, 1e-30])
    out = RoundingModel(FLUSHING, rows=ROWS).round_result(small[None], 0.0, FLOAT32)
    assert (out[0] == small).all()
    assert (np.abs(out[1] - small)[:2] <= LEAST).all()
    assert out[2].tolist() == [0.0, 0.0, out[1, 2]]
    assert np.signbit(out[2]).tolist() == [False, True, False]
    flushed = (out[NOISELESS_ROWS:, :2] == 0).mean()
    assert 0.2 < flushed < 0.8
    kept = RoundingModel(PLAIN, rows=ROWS).round_result(small[None], 0.0, FLOAT32)
    assert (kept != 0).all()
    stated = RoundingModel(PLAIN, rows=ROWS).round_result(small[None], 0.0, FLOAT32, flushing=True)
    assert (stated[2, :2] == 0).all()


def test_a_narrower_format_keeps_its_own_subnormal_numbers() -> None:
    small = np.array([FLOAT16.smallest_subnormal])
    assert (RoundingModel(FLUSHING, rows=ROWS).round_result(small[None], 0.0, FLOAT16) == small).all()


def test_a_part_that_vanishes_takes_the_result_with_it() -> None:
    values, vanishing = np.array([1.0, 1.0, np.inf]), np.array([True, False, True])
    out = RoundingModel(FLUSHING, rows=ROWS).round_result(values[None], 0.0, FLOAT32, vanishing=vanishing[None])
    assert out[2].tolist() == [0.0, 1.0, np.inf]
    assert (out[1] == values).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fmt", [FLOAT32, FLOAT16, BFLOAT16], ids=["float32", "float16", "bfloat16"])
def test_what_is_too_large_becomes_infinite_in_every_row_but_the_first(fmt: FloatFormat) -> None:
    values = np.array([4 * fmt.overflow, -4 * fmt.overflow])
    out = RoundingModel(PLAIN, rows=ROWS).round_result(values[None], 0.0, fmt)
    assert (out[0] == values).all()
    assert (out[1:] == [np.inf, -np.inf]).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_values_stay() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
    machine = RoundingModel(FLUSHING, rows=ROWS)
    for out in (
        machine.round_result(values[None], 3.0, FLOAT32),
        machine.round_sum(values[None], np.abs(values[None]), 9, FLOAT32),
        machine.round_operand(values[None], TF32, True, "TF32"),
    ):
        assert all(np.array_equal(row, values, equal_nan=True) for row in out)


@pytest.mark.parametrize("terms", [2, 3, 10, 1000, 100000])
def test_sums_stay_within_the_worst_case_and_within_a_walk(terms: int) -> None:
    values, mass = np.full(1000, 0.3), np.full(1000, 5.0)
    out = RoundingModel(PLAIN, rows=ROWS).round_sum(values[None], mass[None], terms, FLOAT32)
    u = FLOAT32.unit_roundoff
    moved = np.abs(out[NOISELESS_ROWS:] - values).max()
    steps = min(np.sqrt(3 * terms), (terms - 1) / (1 - terms * u))
    assert 0.9 * steps * u * 5 < moved <= steps * u * 5 + u * 0.3 * 1.01
    assert (out[0] == values).all()
    assert (out[1] == np.float32(0.3)).all()


def test_one_term_is_no_sum() -> None:
    out = RoundingModel(PLAIN, rows=ROWS).round_sum(np.ones((1, 3)), np.full((1, 3), 1e9), 1, FLOAT32)
    assert (out == 1).all()


def test_row_one_is_the_sum_in_turn() -> None:
    out = RoundingModel(PLAIN, rows=ROWS).round_sum(
        np.ones((1, 2)), np.ones((1, 2)), 9, FLOAT32, sequential=np.array([0.5, 0.25])
    )
    assert out[1].tolist() == [0.5, 0.25]
    assert (out[2] == 1).all()


def test_sums_of_equal_terms_may_lose_the_same_in_each_step() -> None:
    values, near_equal = np.full((1, 2), 1e6), np.array([[True, False]])
    out = RoundingModel(PLAIN, rows=ROWS).round_sum(values, values, 10**6, FLOAT32, near_equal=near_equal)
    moved = _relative(out[NOISELESS_ROWS:], values, FLOAT32.unit_roundoff).max(0)
    assert moved[0] > 100 * moved[1]
    assert moved[0] <= 0.25 * 10**6 + 1


def test_a_sum_that_may_overflow_on_its_way_says_nothing() -> None:
    out = RoundingModel(PLAIN, rows=ROWS).round_sum(np.zeros((1, 2)), np.array([[2e38, 4e38]]), 9, FLOAT32)
    assert np.isfinite(out[:, 0]).all()
    assert np.isnan(out[1:, 1]).all()
    assert out[0, 1] == 0


@pytest.mark.parametrize("fmt", [TF32, BFLOAT16, FLOAT16], ids=["TF32", "bfloat16", "float16"])
def test_operands_are_rounded_to_what_is_multiplied(fmt: FloatFormat) -> None:
    values = np.random.default_rng(0).uniform(1, 2, 1000)
    machine = RoundingModel(PLAIN, rows=ROWS)
    out = machine.round_operand(values[None], fmt, False, "these")
    assert (out[0] == values).all()
    assert (round_to_nearest(out[1:], fmt) == out[1:]).all()
    assert (out[1] == round_to_nearest(values, fmt)).all()
    assert _relative(out, values, fmt.unit_roundoff).max() <= 2.6
    representable = out[1]
    assert (machine.round_operand(representable[None], fmt, True, "these") == representable).all()


def test_a_machine_that_drops_bits_does_so_in_half_of_the_rows() -> None:
    values = np.random.default_rng(0).uniform(1, 2, 1000)
    out = RoundingModel(PLAIN, rows=ROWS).round_operand(values[None], TF32, True, "TF32")
    down = [bool((row == truncate(values, TF32)).all()) for row in out]
    assert down == [row >= 2 and row % 2 == 0 for row in range(ROWS)]


def test_inputs_are_flushed_where_the_machine_does() -> None:
    values = np.array([[1e-40, 1.0, -1e-44, 0.0]])
    assert RoundingModel(PLAIN, rows=ROWS).flush_inputs(values) is values
    assert RoundingModel(FLUSHING, rows=ROWS).flush_inputs(values[:, 1:2]).shape == (1, 1)
    out = RoundingModel(FLUSHING, rows=ROWS).flush_inputs(values)
    assert out[0].tolist() == out[1].tolist() == values[0].tolist()
    assert out[2].tolist() == [0, 1, 0, 0]


def test_each_source_of_error_moves_its_own_rows() -> None:
    look = RoundingModel(PLAIN, rows=NOISELESS_ROWS)
    values = np.full((1, 50), 1.1)

    def steps(machine: RoundingModel) -> tuple[Array, Array]:
        return machine.round_result(values, 3.0, FLOAT32), machine.round_sum(values, values, 9, FLOAT32)

    steps(look)
    rounding, summing = look.sources
    assert (rounding.kind, summing.kind) == ("rounding", "summing")
    assert "machine.round_result(values, 3.0, FLOAT32)" in str(rounding.origin)
    one, two = steps(RoundingModel(PLAIN, rows=5, rows_by_source={rounding: slice(1, 3), summing: slice(3, 5)}))
    assert [bool((row != 1.1).any()) for row in one] == [False, True, True, False, False]
    assert [bool((row != 1.1).any()) for row in two] == [False, False, False, True, True]
    nothing = RoundingModel(PLAIN, rows=5, rows_by_source={ErrorSource(rounding.origin, "flushing"): slice(1, 5)})
    assert (steps(nothing)[0] == 1.1).all()


@pytest.mark.parametrize("row", range(6))
def test_one_row_alone_follows_the_rules_of_its_row(row: int) -> None:
    machine = RoundingModel(FLUSHING, rows=ROWS, single=row)
    out = machine.round_result(np.array([[1.1, 1e-40]]), 2.0, FLOAT32)
    assert out.shape == (1, 2)
    if row == 0:
        assert out.tolist() == [[1.1, 1e-40]]
    elif row < NOISELESS_ROWS:
        assert out[0, 0] == np.float32(1.1)
        assert (out[0, 1] == 0) == (row == 2)
    sequential = machine.round_sum(np.ones((1, 1)), np.ones((1, 1)), 9, FLOAT32, sequential=np.array([0.5]))
    assert (sequential == 0.5) == (row == 1)


def test_the_same_seed_gives_the_same_samples() -> None:
    values = _random()[None]
    one, other, third = (
        RoundingModel(PLAIN, rows=ROWS, seed=seed).round_result(values, 1.0, FLOAT32) for seed in (0, 0, 1)
    )
    assert (one == other).all()
    assert (one != third).any()


@pytest.mark.parametrize("shape", [(), (4,), (3, 4)])
def test_an_ordinary_divisor_with_a_subnormal_reciprocal_flushes_the_quotients_of_its_elements(shape: Any) -> None:
    divisor = np.ones(shape)
    divisor[(0,) * len(shape)] = 2.0**127
    quotients = tracked(np.full((1, 3, 4), 1.5), RoundingModel(FLUSHING)) / divisor
    flushed = (quotients.samples == 0).any(axis=0)
    assert (flushed == np.broadcast_to(divisor > 1, (3, 4))).all()
