"""The special values among inputs, in words."""

import numpy as np
import pytest

from kerneltest.core.dtypes import parse_dtype
from kerneltest.judge.special_values import find_special_inputs

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "phrases"),
    [
        ([[1, 2], [3, 4]], []),
        ([[0, 1], [1, 0]], ["x holds a zero"]),
        ([[0, 0], [1, 2]], ["a row of x holds nothing but zeros", "x holds a zero", "x holds a number twice"]),
        ([[-1, 2]], ["x holds a negative number"]),
        ([[-1, -2], [3, 4]], ["a row of x holds nothing but negative numbers", "x holds a negative number"]),
        ([[3, 4, 3]], ["x holds a number twice"]),
        ([[NAN, 1]], ["x holds a NaN"]),
        ([[-INF, 1], [2, 3]], ["x holds -inf", "x holds a negative number"]),
        ([[-INF], [2]],
         ["a row of x holds nothing but -inf", "x holds -inf",
          "a row of x holds nothing but negative numbers", "x holds a negative number"]),
        ([-INF],
         ["x holds nothing but -inf", "a row of x holds nothing but -inf", "x holds -inf",
          "x holds nothing but negative numbers", "a row of x holds nothing but negative numbers",
          "x holds a negative number"]),
        ([[INF, NAN]], ["x holds a NaN", "x holds +inf"]),
        ([[1e-40, 1]], ["x holds a subnormal number"]),
        ([[3.4028235e38, 1]], ["x holds a number near the largest"]),
        ([[-0.0, 1]], ["x holds a zero of negative sign", "x holds a zero"]),
        ([], []),
    ],
    ids=str,
)  # fmt: skip
def test_special_values_are_named(values: list[list[float]], phrases: list[str]) -> None:
    assert [each.text() for each in find_special_inputs({"x": np.array(values, np.float32)})] == phrases


@pytest.mark.parametrize(
    ("mask", "phrases"),
    [
        ([[True, True]], []),
        ([[True, False]], ["mask holds False"]),
        ([[True, True], [False, False]], ["a row of mask holds nothing but False", "mask holds False"]),
        ([[False, False]],
         ["mask holds nothing but False", "a row of mask holds nothing but False", "mask holds False"]),
    ],
)  # fmt: skip
def test_masks_of_false_are_special(mask: list[list[bool]], phrases: list[str]) -> None:
    assert [each.text() for each in find_special_inputs({"mask": np.array(mask)})] == phrases


@pytest.mark.parametrize(
    ("length", "masked", "phrases"),
    [
        (8, slice(0, 4), ["the first block", "a block"]),
        (8, slice(4, 8), ["a block"]),
        (8, slice(2, 6), []),
        (6, slice(4, 6), []),  # a shorter block at the end
        (6, slice(0, 4), ["the first block", "a block"]),
        (3, slice(0, 3), ["a row", "the first block", "a block"]),
        (8, slice(0, 8), ["a row", "the first block", "a block"]),
    ],
    ids=str,
)
def test_blocks_of_false_are_special(length: int, masked: slice, phrases: list[str]) -> None:
    mask = np.ones((2, length), bool)
    mask[1, masked] = False
    told = [f"{each} of mask holds nothing but False" for each in phrases]
    assert [each.text() for each in find_special_inputs({"mask": mask}, {"mask": 4})] == [*told, "mask holds False"]


@pytest.mark.parametrize("dtype", ["int32", "int8", "int4"])
def test_integers_that_are_zero_negative_or_repeated_are_special(dtype: str) -> None:
    found = find_special_inputs({"x": np.array([0, -1, 5, 5]).astype(parse_dtype(dtype))})
    assert [each.text() for each in found] == ["x holds a zero", "x holds a negative number", "x holds a number twice"]
    assert find_special_inputs({"x": np.array([3, 4]).astype(parse_dtype(dtype))}) == ()
