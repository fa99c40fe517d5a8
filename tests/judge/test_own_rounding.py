"""Integers that a kernel's own rounding decides."""

import numpy as np
import pytest

from kerneltest.core.precision import FLOAT32
from kerneltest.judge.compare import compare_outputs
from kerneltest.judge.formula import own_rounding
from kerneltest.oracle.expectation import ExpectedOutputs
from kerneltest.trace.batched_interpreter.promoted_kernel import SampleArithmetic

EXACT, ROWS = 7, 17


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
