"""The gradient of an oracle: its analytic one, however the oracle is written, and silence at a kink."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kerneltest.declare.bounds import Precision
from kerneltest.oracle.gradient import gradients

SLOPES: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "analytic": (lambda x: np.exp(x), np.exp),
    "dropping the imaginary part": (lambda x: np.exp(x.real), np.exp),
    "complex in another sense": (lambda x: np.abs(x), np.sign),
    "raising for complex numbers": (lambda x: np.array([float(v) ** 2 for v in x]), lambda x: 2 * x),
    "maximum": (lambda x: np.maximum(x, 0.5), lambda x: (x > 0.5).astype(float)),
    "constant": (lambda x: np.ones_like(x.real), np.zeros_like),
}


@pytest.mark.parametrize("name", SLOPES)
def test_an_oracles_gradient_is_its_analytic_one(name: str) -> None:
    function, slope = SLOPES[name]
    x = np.linspace(-2, 2, 12).astype(np.float32)
    weight = np.where(np.arange(12) % 2, 0.5, -1.0).astype(np.float32)
    found = gradients(lambda leaves: (function(leaves["x"]),), {"x": x}, [weight], np.random.default_rng(0))
    bound = found.bound(0, np.dtype(np.float32), Precision())
    assert np.isfinite(bound).all()
    assert np.abs(found.values[0] - weight * slope(x.astype(np.float64))).max() < 1e-9
    assert bound.max() < 1e-4


def test_nothing_is_asked_at_a_kink() -> None:
    x = np.array([-1.0, 0.0, 2.0], np.float32)
    found = gradients(lambda leaves: (np.abs(leaves["x"].real),), {"x": x}, [np.ones(3, np.float32)],
                      np.random.default_rng(0))  # fmt: skip
    assert list(np.isinf(found.bound(0, np.dtype(np.float32), Precision()))) == [False, True, False]
