"""Integers that a kernel's own rounding decides, and constants that it rounds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kerneltest.core.precision import FLOAT32
from kerneltest.judge.compare import compare_outputs
from kerneltest.judge.formula import fit_parameters, own_rounding
from kerneltest.oracle.expectation import ExpectedOutputs
from kerneltest.trace.batched_interpreter.promoted_kernel import SampleArithmetic

EXACT, ROWS = 7, 17
X = np.linspace(-3, 3, 8)


@pytest.mark.parametrize(
    ("got", "samples", "admitted"),
    [
        (100, (100,), True),  # a sample has it
        (50, (100,), False),  # which is neither of two positions
        (EXACT, (100,), False),  # what is right needs no admission, and stays compared
        (9, (6, 8, 10), True),  # a count, as far away as samples are
        (60, (6, 8, 10), False),
    ],
)
def test_an_integer_is_admitted_if_rounding_decides_between_it_and_the_expected_one(
    got: int, samples: tuple[int, ...], admitted: bool
) -> None:
    found = compare_outputs(
        (np.array([1, got], np.int32),), ExpectedOutputs((np.array([1.0, EXACT]),), (np.zeros(2),)), signed_zeros=False
    )
    rows = np.array([(1, EXACT)] * (ROWS - len(samples)) + [(1, each) for each in samples], np.int32)
    own = own_rounding(
        lambda _: (rows,), SampleArithmetic(FLOAT32), found, (np.zeros(2),), coarse=lambda: [list(rows[1:])]
    )
    assert own is not None
    assert np.isinf(own.admitted[0]).tolist() == [False, admitted]


@pytest.mark.parametrize(
    ("function", "fitted"),
    [
        (lambda a, b: [a + X * b], [0.1, 1.7]),
        (lambda a, b: [a * b * X], [0.11, 1.8]),  # which has the wanted values for many numbers
        (lambda a, b: [0 * a + X * b], [0.11, 1.7]),
        (lambda a, b: [X * b > 5 * a], [0.11, 1.8]),
    ],
)
def test_only_parameters_that_the_values_determine_are_fitted(
    function: Callable[..., Any], fitted: list[float]
) -> None:
    found = fit_parameters(lambda numbers: function(*numbers), [0.11, 1.8], function(0.1, 1.7))
    np.testing.assert_allclose(found, fitted, rtol=1e-6)
