"""Conditions on the magnitudes of inputs: a range that all failing cases reach, and hardly any passing one."""

from dataclasses import replace

import numpy as np
import pytest

from kerneltest.core.dtypes import parse_dtype
from kerneltest.judge.special_values import find_magnitudes
from kerneltest.records.evidence import LOWEST
from kerneltest.records.schema import Record
from kerneltest.triage.conditions import magnitude_condition
from tests.made_runs import WRONG
from tests.written import PASS

PLAIN = [[1.0, 2.0], [0.0, 1.0], [0.5, 7.0], [3.0, 100.0], [-9.0, 4.0], [1e-9, 1.0], [0.0, 0.0], [-60.0, 90.0]]


def _records(record: Record, *inputs: list[float]) -> list[Record]:
    return [replace(record, magnitudes=find_magnitudes({"x": np.array(each, np.float32)})) for each in inputs]


def _words(failing: list[list[float]], passing: list[list[float]]) -> str:
    """The condition; the first failing case is the smallest."""
    bad = _records(WRONG, *failing)
    return magnitude_condition(bad, _records(PASS, *passing), bad[0]).words


@pytest.mark.parametrize(
    ("failing", "more", "words"),
    [
        ([[256.0], [300.0, 1.0], [-400.0], [1e4, 0.5]], [], "x holds a number of magnitude 256 or more"),
        ([[256.0], [300.0, 1.0], [-400.0], [511.0, 2.0]], [[600.0]], "x holds a number of magnitude 256 to 512"),
        ([[-256.0], [-300.0, 1.0], [-400.0], [-1e4, 0.5]], [[300.0], [900.0]], "x holds a number of -256 or less"),
        ([[1e-4], [1.5e-4, 1.0], [-2e-4], [1.1e-4]], [[1e-3]], "x holds a number of magnitude 6.104e-05 to 0.0002441"),
        ([[1e-4], [1.5e-4, 1.0], [-2e-4], [1.1e-4]], [[1.2e-4]] * 3, ""),
    ],
    ids=["open", "between", "negative", "small", "passing ones too"],
)  # fmt: skip
def test_a_range_holds_for_all_failing_cases_and_no_passing_one(
    failing: list[list[float]], more: list[list[float]], words: str
) -> None:
    assert _words(failing, PLAIN * 6 + more) == words


def test_a_smallest_case_of_plain_values_disproves_a_range() -> None:
    large = [[256.0], [300.0, 1.0], [-400.0], [1e4, 0.5]]
    assert _words([[1.0], *large], PLAIN * 6) == ""
    plain, *_ = _records(WRONG, [1.0])
    assert not magnitude_condition(_records(WRONG, *large), _records(PASS, *PLAIN * 6), plain).words


def test_few_cases_and_frequent_exceptions_say_nothing() -> None:
    large = [[256.0], [300.0, 1.0]]
    assert _words(large, PLAIN[:3]) == ""
    assert _words([*large, [-400.0], [1e4, 0.5]], PLAIN * 6 + large) == ""


def test_other_backends_must_agree() -> None:
    bad = _records(WRONG, [256.0], [300.0], [400.0], [1e4])
    good = _records(PASS, *PLAIN * 6)
    assert magnitude_condition(bad, good, bad[0], _records(WRONG, [512.0])).words
    assert not magnitude_condition(bad, good, bad[0], _records(WRONG, [8.0])).words


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "int4"])
def test_binades_are_kept_by_sign(dtype: str) -> None:
    (found,) = find_magnitudes({"x": np.array([0, 1, 4, 5, -2]).astype(parse_dtype(dtype)), "m": np.array([True])})
    assert (found.positive, found.negative) == (0b101 << -LOWEST, 0b10 << -LOWEST)


def test_numbers_beyond_the_last_binades_count_for_them_and_infinities_for_none() -> None:
    (found,) = find_magnitudes({"x": np.array([1e30, 1e-30, np.inf, -np.inf, np.nan])})
    assert (found.positive, found.negative) == (1 << 61 | 1, 0)
