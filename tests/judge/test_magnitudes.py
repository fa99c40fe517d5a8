"""The binades of a case's inputs, by sign."""

import numpy as np
import pytest

from kerneltest.core.dtypes import parse_dtype
from kerneltest.judge.special_values import find_magnitudes
from kerneltest.records.evidence import LOWEST


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int8", "int4"])
def test_binades_are_kept_by_sign(dtype: str) -> None:
    (found,) = find_magnitudes({"x": np.array([0, 1, 4, 5, -2]).astype(parse_dtype(dtype)), "m": np.array([True])})
    assert (found.positive, found.negative) == (0b101 << -LOWEST, 0b10 << -LOWEST)


def test_numbers_beyond_the_last_binades_count_for_them_and_infinities_for_none() -> None:
    (found,) = find_magnitudes({"x": np.array([1e30, 1e-30, np.inf, -np.inf, np.nan])})
    assert (found.positive, found.negative) == (1 << 61 | 1, 0)
