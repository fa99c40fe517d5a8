"""The special values among inputs, in words."""

import numpy as np
import pytest

from kerneltest.judge.special_values import find_special_inputs

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "phrases"),
    [
        ([[1, 2], [3, 4]], []),
        ([[0, 1], [1, 0]], []),
        ([[NAN, 1]], ["x holds a NaN"]),
        ([[-INF, 1], [2, 3]], ["x holds -inf"]),
        ([[-INF, -INF], [2, 3]], ["a row of x holds nothing but -inf", "x holds -inf"]),
        ([[-INF, -INF]], ["x holds nothing but -inf", "a row of x holds nothing but -inf", "x holds -inf"]),
        ([[INF, NAN]], ["x holds a NaN", "x holds +inf"]),
        ([[1e-40, 1]], ["x holds a subnormal number"]),
        ([[3.4028235e38, 1]], ["x holds a number near the largest"]),
        ([[-0.0, 1]], ["x holds a zero of negative sign"]),
        ([], []),
    ],
    ids=str,
)
def test_special_values_are_named(values: list[list[float]], phrases: list[str]) -> None:
    assert [each.text() for each in find_special_inputs({"x": np.array(values, np.float32)})] == phrases


@pytest.mark.parametrize(
    ("mask", "phrases"),
    [
        ([[True, True]], []),
        ([[True, False]], []),
        ([[True, True], [False, False]], ["a row of mask holds nothing but False"]),
        ([[False, False]], ["mask holds nothing but False"]),
    ],
)
def test_masks_of_false_are_special(mask: list[list[bool]], phrases: list[str]) -> None:
    assert [each.text() for each in find_special_inputs({"mask": np.array(mask)})] == phrases


def test_integers_are_never_special() -> None:
    assert find_special_inputs({"x": np.array([-(2**31), 2**31 - 1], np.int32)}) == ()
