"""NumPy's functions on tracked arrays, compared with NumPy and with float32."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.core.precision import FLOAT32, SIMULATED, XLA_CPU
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import sample_outputs, spread_of


def _samples(function: Any, *arrays: Any, precision: Any = SIMULATED) -> np.ndarray:
    leaves = {str(i): np.asarray(each, np.float64) for i, each in enumerate(arrays)}
    machine = RoundingModel(precision)
    (found,) = sample_outputs(
        lambda given: [function(*given.values())], leaves, dict.fromkeys(leaves, FLOAT32), machine
    )
    return found


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("n", "taps"), [(7, 3), (3, 7), (4, 4), (6, 1)])
def test_a_convolution_is_followed(mode: str, n: int, taps: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(n), rng.standard_normal(taps)
    found = _samples(lambda a, b: np.convolve(a, b, mode=mode), x, w)
    np.testing.assert_allclose(found[0], np.convolve(x, w, mode=mode))
    assert (spread_of(found).deviation > 0).any()


@pytest.mark.parametrize("product", [np.prod, lambda x: np.cumprod(x)[-1], np.multiply.reduce])
def test_a_product_may_overflow_or_vanish_on_the_way(product: Any) -> None:
    assert spread_of(_samples(product, [1e30, 1e30, 0.0])).lost
    assert spread_of(_samples(product, [1e30, 1e30, 1e-30])).lost
    assert not spread_of(_samples(product, [1e30, 1e-30, 3.0])).lost
    assert spread_of(_samples(product, [1e-30, 1e-30, 1e36])).deviation > 1e-25
    assert spread_of(_samples(product, [0.5, 2.0, 0.0])).deviation == 0
    assert spread_of(_samples(product, [3.0, 5.0, 7.0])).deviation < 105 * 2.0**-22


def test_a_scale_may_go_into_an_operand_before_it_is_rounded() -> None:
    whole = np.arange(1.0, 17).reshape(4, 4)
    assert spread_of(_samples(lambda q, k: q @ k / 3, whole, whole)).deviation.min() > 2.0**-14
    assert spread_of(_samples(lambda q, k: q @ k, whole, whole, precision=XLA_CPU)).deviation.max() < 1e-4


def test_the_terms_of_an_exponent_may_be_scaled_before_they_cancel() -> None:
    x = np.float32(3000) + np.linspace(0, 1, 50, dtype=np.float32)
    scaled = x * np.float32(np.log2(np.e))
    by_powers_of_two = np.exp2(scaled - scaled.max())
    samples = _samples(lambda x: np.exp(x - x.max()), x)
    off = np.abs(by_powers_of_two - samples[0])
    assert off.max() > 1e-4
    assert (off <= 7 * spread_of(samples).deviation + 1e-6).all()
    assert spread_of(_samples(lambda x: np.exp(x), x - 3000)).deviation.max() < 1e-6


@pytest.mark.parametrize(("dtype", "least"), [(np.float16, 2.0**-24), (ml_dtypes.bfloat16, 2.0**-133)])
def test_a_subnormal_number_of_a_narrow_format_may_be_off_by_half_of_its_spacing(dtype: Any, least: float) -> None:
    values = _samples(lambda x: x.astype(dtype), np.full(500, 1.1 * least))
    assert set(np.unique(values[3:] / least)) == {0.0, 1.0, 2.0}
    exact = [least, 0.0, np.inf, -np.inf]
    assert (_samples(lambda x: x.astype(dtype), exact)[3:] == exact).all()


def test_a_subnormal_operand_keeps_few_bits_in_tf32() -> None:
    tiny = np.full((1, 400), 2.5 * 2.0**-136)
    found = _samples(lambda x: x @ np.ones((400, 1)) * 2.0**40, tiny)
    assert spread_of(found).deviation[0, 0] > 0.3 * np.sqrt(400) * 2.0**-96
