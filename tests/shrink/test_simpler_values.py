"""Simpler values: each function leaves simple elements alone and returns only values that the argument may have."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.declare.domains import EVERYTHING, Interval
from kerneltest.plan.families import Slot
from kerneltest.shrink import shrinker

FLOATS = dict(dtype=np.dtype(np.float32))


@pytest.mark.parametrize(
    ("make", "given", "before", "after"),
    [
        (shrinker.to_zero, FLOATS, [0, 1, -0.0, 7.5, np.nan], [0, 1, -0.0, 0, 0]),
        (shrinker.to_one, FLOATS, [0, 1, -0.0, 7.5, np.nan], [0, 1, -0.0, 1, 1]),
        (shrinker.to_simplest, FLOATS, [0, 1, -0.0, 7.5, np.nan], [0, 0, 0, 0, 0]),
        (shrinker.to_two, FLOATS, [0, 1, -1, 2, 0.5, 7.5, np.inf], [0, 1, -1, 2, 0.5, 2, np.inf]),
        (shrinker.to_minus_one, FLOATS, [0.25, -7.5, 2, np.nan], [-1, -1, 2, np.nan]),
        (shrinker.to_power_of_two, FLOATS, [7.5, -77, 3, 0.3], [4, -64, 2, 0.25]),
        (shrinker.to_one_digit, FLOATS, [7.5, -77, 128, 1234, 0.3], [7, -70, 128, 1000, 0.3]),
        (shrinker.to_integer, FLOATS, [7.5, -77.2, 0.3], [8, -77, 0]),
        (shrinker.to_zero, dict(FLOATS, domain=Interval(2, 5)), [3, 5], [2, 2]),
        (shrinker.to_minus_one, dict(FLOATS, domain=Interval(0, 9)), [7.5], [7.5]),
        (
            shrinker.to_one_digit,
            dict(dtype=np.dtype(ml_dtypes.float8_e4m3fn)),
            [448],
            [448],
        ),  # 400 is not representable
        (shrinker.to_zero, dict(dtype=np.dtype(ml_dtypes.float8_e8m0fnu)), [8], [1]),
        (shrinker.to_minus_one, dict(dtype=np.dtype(np.uint8)), [200], [200]),
        (shrinker.to_power_of_two, dict(dtype=np.dtype(np.int64)), [2**40 + 1], [2**40]),
        (shrinker.to_simplest, dict(dtype=np.dtype(bool), role="mask"), [False, True], [True, True]),
        (shrinker.to_simplest, dict(dtype=np.dtype(bool)), [False, True], [False, False]),
        (shrinker.to_minus_one, dict(dtype=np.dtype(np.int32), role="index", end=5), [4], [4]),
        (shrinker.to_one, dict(dtype=np.dtype(np.int32), role="index", end=5), [4], [1]),
        (shrinker.to_two, dict(dtype=np.dtype(np.int32), role="length", end=5), [5], [2]),
    ],
)
def test_simpler_values(make: shrinker.Simplifier, given: dict[str, Any], before: list[Any], after: list[Any]) -> None:
    more: dict[str, Any] = dict(role="data", domain=EVERYTHING, order=0, end=0, limit=lambda: 1, blocks=(None,))
    slot = Slot(shape=(len(before),), **{**more, **given})
    made = make(slot, np.array(before).astype(slot.dtype))
    wanted = np.array(after).astype(slot.dtype)
    assert (made.dtype, made.tobytes()) == (wanted.dtype, wanted.tobytes())
