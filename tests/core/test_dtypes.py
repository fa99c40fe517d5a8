"""Formats of floats, and casts that round once."""

import ml_dtypes
import numpy as np
import pytest

from kerneltest.core.dtypes import TF32, cast, dtype_named, float_format


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float8_e5m2"])
def test_float_formats_agree_with_the_dtypes_themselves(name: str) -> None:
    fmt, native = float_format(dtype_named(name)), dtype_named(name)
    one = np.array(1.0, native)
    following = np.array(1 + 2.0 ** (1 - fmt.precision), native)
    assert float(following) > float(one)
    assert float(fmt.ulp(np.array(1.5))) == float(following) - 1
    assert float(np.array(fmt.smallest_subnormal, native)) == fmt.smallest_subnormal
    assert float(cast(np.array(fmt.smallest_subnormal / 4), native)) == 0
    assert float(fmt.ulp(np.array(0.0))) == fmt.smallest_subnormal
    largest = float(ml_dtypes.finfo(native).max)
    assert float(cast(np.array(np.nextafter(fmt.overflow, 0)), native)) == largest
    assert np.isinf(float(cast(np.array(fmt.overflow), native)))


def test_a_cast_rounds_once() -> None:
    # Just above the midpoint of two bfloat16 numbers, by less than float32 can tell.
    above = 1 + 2.0**-8 + 2.0**-40
    assert float(cast(np.array(above), dtype_named("bfloat16"))) == 1 + 2.0**-7
    assert float(cast(np.array(1 + 2.0**-8), dtype_named("bfloat16"))) == 1.0


def test_tf32_has_the_range_of_float32_and_ten_stored_bits() -> None:
    assert TF32.unit_roundoff == 2.0**-11
    assert TF32.overflow < float(np.finfo(np.float32).max)
