"""The gradient of an oracle, as a backward pass over its own operations."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.core.precision import NVIDIA, XLA_CPU
from kerneltest.oracle.gradient import BackwardPass, expect_gradients

Oracle = Callable[[Any], Any]

ELEMENTWISE: dict[str, Oracle] = {
    "arithmetic": lambda x: (x * x - 3) / (x + 2) + -x,
    "exponentials": lambda x: np.exp(-x) + np.exp2(x) + np.expm1(x / 2),
    "logarithms": lambda x: np.log(x) + np.log2(x + 1) + np.log10(x + 2) + np.log1p(x),
    "roots and powers": lambda x: np.sqrt(x) + np.square(x) + x**3 + x**-0.5 + 2.0**x + np.reciprocal(x),
    "circular": lambda x: (
        np.sin(x) * np.cos(2 * x) + np.tan(x / 4) + np.arctan(x) + np.arcsin(x / 9) + np.arccos(x / 9)
    ),
    "hyperbolic": lambda x: np.tanh(x) + np.sinh(x / 2) * np.cosh(x / 3),
    "chosen": lambda x: np.maximum(x, 1.1) * np.minimum(x, 2.1) + np.where(x > 1.5, x, 2 * x) + np.clip(x, 0.6, 1.9),
    "magnitudes": lambda x: np.abs(x - 1.05) + np.hypot(x, 2.0) + np.logaddexp(x, 1.0),
    "flat": lambda x: x * np.floor(x) + np.sign(x),
}
WHOLE: dict[str, Oracle] = {
    "sums": lambda x: x.sum(0) * x.mean() + x.var(axis=1).sum() + np.std(x, axis=0),
    "extremes": lambda x: x.max(axis=1, keepdims=True) * x - x.min(axis=0),
    "running": lambda x: np.cumsum(x, axis=1) * np.prod(x, axis=0),
    "moved": lambda x: np.concatenate([x[:, 2:], -x[:, :2]], 1).T.reshape(-1)[::2] * np.flip(x).ravel()[:10],
    "padded": lambda x: np.pad(x, 1, constant_values=7.0)[1:, :3] * np.tril(np.ones((5, 3))),
    "repeated": lambda x: np.repeat(x, 3, axis=0) * np.tile(x, (3, 1)) + np.roll(np.broadcast_to(x[0], (12, 5)), 1, 0),
    "picked": lambda x: np.take(x, [0, 0, 2], axis=1) + x[[1, 1, 3, 0]][:, :3],
    "products": lambda x: (x @ x.T) @ x + np.einsum("ij,kj->k", x, x)[:, None] * np.tensordot(x, x.T @ x, 1),
    "stacked": lambda x: np.stack([x, x * x], axis=-1).swapaxes(0, 1).squeeze() * np.expand_dims(x.T, -1),
    "softmax": lambda x: (
        np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
    ),
    "made by the oracle": lambda x: x * np.cos(np.arange(5) * 10.0 ** -np.linspace(0, 1, 5)) + np.eye(4, 5),
}


def _way_back(oracle: Oracle, *, dtype: Any = np.float32) -> BackwardPass:
    x = np.random.default_rng(1).uniform(0.5, 2.5, (4, 5)).astype(dtype)
    weight = np.random.default_rng(2).choice((-1.0, 0.5, 1.0), np.shape(oracle(x.astype(np.float64)))).astype(dtype)
    return BackwardPass(lambda leaves: (oracle(leaves["x"]),), {"x": x}, [weight], [np.dtype(dtype)])


def _by_differences(way: BackwardPass) -> np.ndarray:
    x = way.leaves["x"].astype(np.float64)
    weight = np.asarray(way.cotangents[0], np.float64)
    found = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        high, low = x.copy(), x.copy()
        high[at], low[at] = x[at] + 2.0**-18, x[at] - 2.0**-18
        difference = np.asarray(way.oracle({"x": high})[0]) - np.asarray(way.oracle({"x": low})[0])
        found[at] = float(np.sum(weight * difference)) / 2.0**-17
    return found


@pytest.mark.parametrize("name", [*ELEMENTWISE, *WHOLE])
def test_a_gradient_is_what_differences_say(name: str) -> None:
    way = _way_back((ELEMENTWISE | WHOLE)[name])
    (found,) = way.exact()
    np.testing.assert_allclose(found, _by_differences(way), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in [*ELEMENTWISE, *WHOLE] if name not in ("flat", "padded")])
def test_its_roundings_are_those_of_float32(name: str) -> None:
    way = _way_back((ELEMENTWISE | WHOLE)[name])
    (found,) = way.exact()
    (spread,) = way.at(XLA_CPU).spreads
    assert not spread.lost.any()
    assert spread.deviation.max() < 1e-4 * max(np.abs(found).max(), 1)
    assert (spread.deviation > 0).any()


def test_a_backward_product_rounds_its_operands_as_the_device_does() -> None:
    way = _way_back(lambda x: x @ np.cos(x.T))
    assert np.median(way.at(NVIDIA).spreads[0].deviation) > 100 * np.median(way.at(XLA_CPU).spreads[0].deviation)


def test_of_equal_elements_any_may_be_the_largest() -> None:
    leaves = {"x": np.array([1.0, 3.0, 3.0, 2.0], np.float32)}
    way = BackwardPass(lambda given: (given["x"].max(),), leaves, [np.float32(1)], [np.dtype(np.float32)])
    assert way.exact()[0].tolist() == [0, 0.5, 0.5, 0]
    assert (way.at(XLA_CPU).spreads[0].deviation > 0.05).tolist() == [False, True, True, False]


def test_a_row_of_one_element_is_as_uncertain_as_what_cancels() -> None:
    def normalised(leaves: Mapping[str, Any]) -> tuple[Any]:
        x = leaves["x"]
        return (x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 2.0**-20),)

    leaves = {"x": np.array([[3.0], [0.7]], np.float32)}
    found = expect_gradients(lambda given: normalised(given), leaves, [np.ones((2, 1), np.float32)],
    np.random.default_rng(0), normalised, [np.dtype(np.float32)])  # fmt: skip
    bound = found.bound(0, np.dtype(np.float32), XLA_CPU)
    assert np.abs(found.values[0]).max() < 1e-5
    assert (bound > 1e-8).all()
    assert (bound < 1e-5).all()


def test_two_percent_are_too_much_in_bfloat16() -> None:
    dtype = np.dtype(ml_dtypes.bfloat16)
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(dtype)

    def normalised(leaves: Mapping[str, Any]) -> tuple[Any]:
        x = leaves["x"]
        return (x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5),)

    found = expect_gradients(lambda given: normalised(given), {"x": x}, [np.ones((4, 16), dtype)],
    np.random.default_rng(0), normalised, [dtype])  # fmt: skip
    value, bound = found.values[0], found.bound(0, dtype, XLA_CPU)
    assert (0.02 * np.abs(value) > bound).mean() > 0.9


def _by_items(x: Any) -> Any:
    return np.array([[float(v) for v in row] for row in x])


@pytest.mark.parametrize("oracle", [lambda x: np.sort(x, axis=1), _by_items])
def test_what_cannot_be_gone_back_over_is_told_by_slopes(oracle: Oracle) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    weight = np.ones((2, 3), np.float32)
    plain, watched = lambda given: (np.asarray(oracle(given["x"].real)),), lambda given: (oracle(given["x"]),)
    found = expect_gradients(plain, {"x": x}, [weight], np.random.default_rng(0), watched, [np.dtype(np.float32)])
    np.testing.assert_allclose(found.values[0], np.ones((2, 3)), atol=1e-9)
    assert isinstance(found.bounds, tuple)
    assert not hasattr(found.bounds[0], "back")


SCALE, LONG = 0.25, 24


def _softmax_of(scores: Any) -> Any:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _by_total_of_exponentials(scores: Any) -> Any:
    top = scores.max(axis=-1, keepdims=True)
    return np.exp(scores - (np.log(np.exp(scores - top).sum(axis=-1, keepdims=True)) + top))


def _attended(weights: Any) -> Callable[[Mapping[str, Any]], tuple[Any]]:
    return lambda leaves: (np.einsum("qk,kd->qd", weights(leaves["q"] @ leaves["k"].T * SCALE), leaves["v"]),)


def _divided_last(leaves: Mapping[str, Any]) -> tuple[Any]:
    scores = leaves["q"] @ leaves["k"].T * SCALE
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return ((e @ leaves["v"]) / e.sum(axis=-1, keepdims=True),)


@pytest.mark.parametrize("oracle", [_attended(_softmax_of), _attended(_by_total_of_exponentials), _divided_last])
def test_a_way_back_may_sum_its_output_as_it_was_stored(oracle: Any) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16)
    rng = np.random.default_rng(5)
    leaves = {n: (f * rng.standard_normal((LONG, 16))).astype(dtype) for n, f in (("q", 3.0), ("k", 3.0), ("v", 1.0))}
    cotangent = rng.choice((-1.0, 1.0), (LONG, 16)).astype(dtype)
    bounds = BackwardPass(oracle, leaves, [cotangent], [dtype]).at(XLA_CPU).spreads[0].deviation
    q, k, v, do = (x.astype(np.float64) for x in (*leaves.values(), cotangent))
    p = _softmax_of(q @ k.T * SCALE)

    def by_q(stored: np.ndarray) -> np.ndarray:
        return SCALE * (p * (do @ v.T - np.sum(do * stored, axis=-1, keepdims=True))) @ k

    exact, out = by_q(p @ v), p @ v
    assert (np.abs(by_q(out.astype(dtype).astype(np.float64)) - exact) <= 7 * bounds + 1e-12).all()
    assert (np.abs(by_q(out * (1 + 2.0**-4)) - exact) > 7 * bounds).mean() > 0.2
