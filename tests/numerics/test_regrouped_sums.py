"""A sum of the products with a matrix product is itself a matrix product, which a kernel may compute instead."""

from typing import Any

import numpy as np
import pytest

from kerneltest.core.dtypes import Array, FloatFormat, float_format, parse_dtype
from kerneltest.core.precision import FLOAT32, XLA_CPU
from kerneltest.numerics.rounding_bounds import bound_from_spread
from kerneltest.numerics.rounding_model import RoundingModel, round_to_nearest
from kerneltest.numerics.spread import spread_of
from tests.numerics.tracking import samples_of

BFLOAT16 = float_format(parse_dtype("bfloat16"))
FORMATS = pytest.mark.parametrize("fmt", [FLOAT32, BFLOAT16], ids=["float32", "bfloat16"])


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _gradient_of_scores(x: Any, g: Any, v: Any) -> Any:
    p, dp = _softmax(x), g @ v.T
    return p * (dp - (p * dp).sum(axis=-1, keepdims=True))


def _leaves(fmt: FloatFormat, scale: float) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"x": (17, 39), "g": (17, 16), "v": (39, 16)}
    sizes = {"x": scale, "g": 100.0, "v": 100.0}
    leaves = {name: sizes[name] * rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    return {name: np.asarray(round_to_nearest(value, fmt), np.float64) for name, value in leaves.items()}


def _kernel(leaves: dict[str, Array], fmt: FloatFormat) -> Array:
    """Returns the gradient with the sum from the output, as attention's kernels have it."""
    x, g, v = (leaves[name].astype(np.float32) for name in "xgv")
    p = _softmax(x)
    o = np.asarray(round_to_nearest(p.astype(np.float64), fmt), np.float32) @ v
    return np.asarray(p * (g @ v.T - (o * g).sum(axis=-1, keepdims=True)), np.float64)


@FORMATS
@pytest.mark.parametrize("scale", [1.0, 300.0])  # the second leaves one probability of nearly 1
def test_a_kernel_may_sum_over_the_output_instead(fmt: FloatFormat, scale: float) -> None:
    leaves = _leaves(fmt, scale)
    samples = samples_of(_gradient_of_scores, leaves, RoundingModel(XLA_CPU), fmt)
    bound = bound_from_spread(samples[0], spread_of(samples), FLOAT32.unit_roundoff)
    assert (np.abs(_kernel(leaves, fmt) - samples[0]) <= bound + FLOAT32.smallest_normal).all()
    largest = np.abs(leaves["g"]) @ np.abs(leaves["v"]).T
    assert (bound <= (30 * fmt.unit_roundoff + 300 * FLOAT32.unit_roundoff) * largest.max(1, keepdims=True)).all()


def test_only_a_sum_over_an_axis_of_one_operand_is_regrouped() -> None:
    leaves = _leaves(BFLOAT16, 1.0)

    def weighted(axis: int) -> Any:
        return lambda x, g, v: (np.exp(x[:, :16]) * np.einsum("mk,mk->m", g, g)[:, None]).sum(axis=axis)

    def batched(x: Any, g: Any, v: Any) -> Any:
        return (np.exp(x[:, :1]) * (g[:, None, :] @ g[:, :, None])[:, :, 0]).sum(axis=0)

    for oracle in (weighted(0), weighted(1), batched):
        samples = samples_of(oracle, leaves, RoundingModel(XLA_CPU), BFLOAT16)
        assert (spread_of(samples).deviation < 2.0**-14 * np.abs(samples[0])).all()
