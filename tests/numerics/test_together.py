"""Several cases sampled at once: each gets the samples that it gets by itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kerneltest.core.dtypes import Array, FloatFormat, float_format, parse_dtype
from kerneltest.core.precision import FLOAT32, SIMULATED, XLA_CPU
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import sample_cases, sample_outputs
from kerneltest.numerics.tracked import instrument

BFLOAT16 = float_format(parse_dtype("bfloat16"))


def attended(x: Any, y: Any) -> Any:
    scores = x @ y.T * 0.35
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)) @ y


def normalised(x: Any, y: Any) -> Any:
    off = x - np.mean(x, axis=-1, keepdims=True)
    return off / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5) * y


def masked(x: Any, y: Any) -> Any:
    seen = np.arange(x.shape[1])[None, :] <= np.arange(x.shape[0])[:, None]
    return np.where(seen, x, -np.inf).max(axis=1) + np.where(y > 0, y, 0.0).sum(axis=0)[: x.shape[0]]


def rotated(x: Any, y: Any) -> Any:
    angles = np.arange(x.shape[0])[:, None] * np.power(10000.0, -np.arange(x.shape[1]) / 8)
    made = np.zeros_like(x)
    made[:, ::2] = (x * np.cos(angles))[:, ::2]
    made[:, 1::2] = (y * np.sin(angles))[:, 1::2]
    return made


ORACLES: dict[str, Callable[[Any, Any], Any]] = {
    "attended": attended,
    "normalised": normalised,
    "masked": masked,
    "rotated": rotated,
    "product": lambda x, y: x @ y.T,
    "contracted": lambda x, y: np.einsum("ij,kj->ik", x, y),
    "narrowed": lambda x, y: ((x / 3).astype(np.float16) @ y.T).astype(np.float32) ** 1.5,
    "quotients": lambda x, y: x / y + x / 4.0 + 1 / (1 + np.exp(-y)),
    "total": lambda x, y: np.sum(x * y),
    "totals": lambda x, y: np.sum(x, axis=0) + np.prod(y, axis=0),
    "running": lambda x, y: np.cumsum(x, axis=1) + np.cumprod(y, axis=0),
    "logarithms": lambda x, y: np.log1p(np.abs(x)) + np.logaddexp.reduce(y, axis=1, keepdims=True),
    "sorted": lambda x, y: np.sort(x, axis=1) + np.take_along_axis(y, np.argsort(x, axis=1), axis=1),
    "indices": lambda x, y: np.argmax(x + y, axis=1),
    "pieces": lambda x, y: np.concatenate([x[:2], np.flip(y, 1)[2:]]) + np.pad(x, ((0, 0), (1, 0)))[:, :-1],
    "constants": lambda x, y: np.ones((3, 3)) / 3,
    "as_it_is": lambda x, y: x,
}


def cases() -> list[dict[str, Array]]:
    """Yields values for which an operation inspects all elements first, by themselves and among others."""
    rng = np.random.default_rng(3)
    shape = (6, 8)
    wide = [rng.normal(size=shape) for _ in range(2)]
    of = {
        "normal": wide,
        "integers": [np.rint(8 * each) for each in wide],
        "zeros": [np.zeros(shape), np.zeros(shape)],
        "subnormal": [wide[0], 1e-39 * wide[1]],
        "tiny": [1e-30 * wide[0], 1e-12 * wide[1]],
        "large": [1e30 * wide[0], 1e20 * wide[1]],
        "equal": [np.full(shape, 1.1), np.full(shape, 0.3)],
        "infinite": [np.where(wide[0] > 1, np.inf, wide[0]), wide[1]],
        "nan": [wide[0], np.where(wide[1] > 1, np.nan, wide[1])],
    }
    narrow = {name: [each.astype(np.float32).astype(np.float64) for each in both] for name, both in of.items()}
    return [dict(zip("xy", both, strict=True)) for both in narrow.values()]


PRECISIONS = (XLA_CPU, SIMULATED, replace(SIMULATED, name="flushing", flushes=True, truncates=True))


@pytest.mark.parametrize("precision", PRECISIONS, ids=lambda precision: precision.name)
@pytest.mark.parametrize("fmt", [FLOAT32, BFLOAT16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ORACLES)
def test_each_case_gets_the_samples_that_it_gets_alone(name: str, fmt: FloatFormat, precision: Any) -> None:
    oracle = instrument(ORACLES[name])
    formats = {"x": fmt, "y": fmt}

    def evaluate(given: Any) -> Any:
        with np.errstate(all="ignore"):
            return (oracle(**given),)

    given = cases()
    together = sample_cases(evaluate, given, formats, RoundingModel(precision))
    for case, (beside,) in zip(given, together, strict=True):
        (alone,) = sample_outputs(evaluate, case, formats, RoundingModel(precision))
        assert alone.shape[1:] == beside.shape[1:]
        assert np.array_equal(*np.broadcast_arrays(alone, beside), equal_nan=alone.dtype.kind == "f")
    alike = [samples.tobytes() for (samples,) in together]
    assert len(set(alike)) > 1 or name == "constants"


@pytest.mark.parametrize(
    "branching",
    [lambda x, y: x if x[0, 0] > 0 else y, lambda x, y: x * float(y.sum()), lambda x, y: x[x > 0]],
    ids=["branches", "leaves", "shapes"],
)
def test_an_oracle_that_tells_cases_apart_is_not_followed_for_several(branching: Callable[[Any, Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        sample_cases(lambda given: (branching(**given),), cases(), {"x": FLOAT32, "y": FLOAT32}, RoundingModel(XLA_CPU))
