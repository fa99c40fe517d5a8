"""The special values among inputs, in words."""

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import parse_dtype
from kerneltest.judge.special_values import find_special_inputs
from kerneltest.plan.signatures import signatures
from kerneltest.plan.slots import CountedAxis, counted_axes

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


@pytest.mark.parametrize(
    ("axis", "values", "phrases"),
    [
        (CountedAxis("length", "t", 32, 16, "16 (the block of t)"), [32, 16], ["x holds a number below t"]),
        (CountedAxis("length", "t", 32, 16, "16 (the block of t)"), [32, 32], ["x holds a number twice"]),
        (
            CountedAxis("length", "p*size", 32, 16, "size"),
            [3, 32],
            ["x holds a number below p*size", "x holds a number that is not a multiple of size"],
        ),
        (
            CountedAxis("offsets", "n", 5, 4, "4 (the block of n)"),
            [1, 1, 5],
            ["x holds a number twice", "x holds an empty part"],
        ),
        (
            CountedAxis("offsets", "n", 5, 4, "4 (the block of n)"),
            [1, 4, 5],
            ["x holds a part whose length is not a multiple of 4 (the block of n)"],
        ),
        (
            CountedAxis("partition", "n", 5, 4, "4 (the block of n)"),
            [1, 4],
            ["x holds a number that is not a multiple of 4 (the block of n)"],
        ),
        (CountedAxis("partition", "n", 5, 0, ""), [1, 4], []),
    ],
)
def test_numbers_of_elements_are_compared_with_their_axis(
    axis: CountedAxis, values: list[int], phrases: list[str]
) -> None:
    found = find_special_inputs({"x": np.array(values, np.int32)}, None, {"x": axis})
    assert [each.text() for each in found] == phrases


def test_the_axes_that_integers_count_are_declared() -> None:
    pairing = kt.oracle_for(
        lambda pages, lengths, table, starts, sizes: pages,
        pages=kt.array("pages size", "float32"),
        lengths=kt.lengths("b", up_to="p*size"),
        table=kt.permutation("b p", into="pages"),
        starts=kt.offsets("b+1", of="t"),
        sizes=kt.partition("b", of="r"),
        dims=dict(t=kt.dim(block=8), size=kt.dim(values=(4,)), p=kt.dim(values=(2,)), r=kt.dim(values=(5,))),
        where=lambda b, p, pages: b * p <= pages,
    )(lambda pages, lengths, table, starts, sizes: pages)
    signature = next(iter(signatures(pairing, "quick")))
    t = dict(signature.dims)["t"]
    assert counted_axes(pairing, signature) == {
        "lengths": CountedAxis("length", "p*size", 8, 4, "size"),
        "starts": CountedAxis("offsets", "t", t, 8, "8 (the block of t)"),
        "sizes": CountedAxis("partition", "r", 5, 0, ""),
    }
