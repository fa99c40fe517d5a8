"""Relations between a wrong output and the expected one: they say as much of a wrong oracle as of a wrong kernel."""

from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.judge.compare import OutputAxis, compare
from kerneltest.judge.relations import MismatchContext, first_relation, relations_of_output
from kerneltest.plan.signatures import signatures

EXPECTED = np.random.default_rng(0).uniform(0.5, 4, (6, 8))
SQUARE = np.random.default_rng(1).uniform(0.5, 4, (7, 7))

# The kernel's output, the oracle's, and the relation.
RELATIONS = {
    "offset": (EXPECTED + 0.25, EXPECTED, "each is 0.25 too large"),
    "negative offset": (EXPECTED - 3, EXPECTED, "each is 3 too small"),
    "transposed": (SQUARE.T, SQUARE, "it is the expected output with its axes in the order 1, 0"),
    "reversed": (EXPECTED[:, ::-1], EXPECTED, "it is the expected output reversed along n"),
    "rolled on": (
        np.roll(EXPECTED, -1, 0), EXPECTED, "each is the expected value 1 place of m further on, around its end",
    ),
    "rolled back": (
        np.roll(EXPECTED, 2, 1), EXPECTED, "each is the expected value 2 places of n further back, around its end",
    ),
    "shifted": (
        np.append(EXPECTED[1:], EXPECTED[:1] + 9, 0), EXPECTED, "each is the expected value 1 place of m further on",
    ),
    "halves": (np.roll(EXPECTED, 4, 1), EXPECTED, "each is the expected value in the other half of n"),
    "pairs": (
        EXPECTED[:, np.arange(8) ^ 1], EXPECTED, "each is the expected value of the other element of each pair along n",
    ),
    "the first": (np.repeat(EXPECTED[:1], 6, 0), EXPECTED, "each is the expected value at index 0 of m"),
    "squared": (np.square(EXPECTED), EXPECTED, "each is the square of the expected value"),
    "root": (np.sqrt(EXPECTED), EXPECTED, "each is the square root of the expected value"),
    "reciprocal": (1 / EXPECTED, EXPECTED, "each is the reciprocal of the expected value"),
    "logarithm": (np.log(EXPECTED), EXPECTED, "each is the logarithm of the expected value"),
    "a factor a row": (
        EXPECTED * np.arange(1, 7)[:, None], EXPECTED, "along n, each is the expected value times one factor",
    ),
    "nearly a factor a row": (
        EXPECTED * (1 + 1e-4 * np.arange(1, 7)[:, None] * np.linspace(1, 1.002, 8)), EXPECTED, "",
    ),
    "rounding": (EXPECTED * (1 + 2e-7), EXPECTED, ""),
    "none": (np.sin(EXPECTED), EXPECTED, ""),
    "a column": (np.where(np.arange(8) == 3, EXPECTED + 1, EXPECTED), EXPECTED, "each is 1 too large"),
    "few wrong": (np.where(np.arange(48).reshape(6, 8) < 5, EXPECTED + 1, EXPECTED), EXPECTED, ""),
    "one number": (np.full((6, 8), 2.0), np.full((6, 8), 4.0), ""),
}  # fmt: skip


def found(got: Any, expected: Any) -> str:
    pairing = kt.oracle_for(lambda x: x, x=kt.array("m n", "float32"))(lambda x: x)
    comparison = compare(got.astype(np.float32), expected, np.full(got.shape, 1e-6), signed_zeros=False)
    axes = [OutputAxis(name, length, None) for name, length in zip("mn", got.shape, strict=True)]
    context = MismatchContext(pairing, signatures(pairing, "quick")[0], {}, 0, comparison, axes)
    relation = first_relation(context, relations_of_output(context))
    return relation.text() if relation is not None else ""


@pytest.mark.parametrize("name", RELATIONS)
def test_a_relation_holds_everywhere_or_is_not_told(name: str) -> None:
    got, expected, relation = RELATIONS[name]
    assert found(got, expected) == relation
