"""Integers, tables and constants: they are exact, but not what a kernel computes from them in floats."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Origin, origin_of
from kerneltest.core.precision import FLOAT32, XLA_CPU
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.samples import KeptArrayError
from kerneltest.numerics.spread import sample_outputs, spread_of
from kerneltest.numerics.tracked import TrackedArray, instrument

PIXELS = np.arange(12).reshape(3, 4) * 23 + np.arange(4) ** 3
ANGLES = np.arange(4) / 7
FACES = np.arange(1, 5)
TWIDDLES = [math.cos(2 * math.pi * i / 7) for i in range(4)]


def _closed(table: Array) -> Callable[..., Any]:
    return lambda i: table * 2.0 + i


def _seen(i: Any) -> Any:
    counts: dict[Any, int] = {}
    for each in i[0]:
        counts[each] = counts.get(each, 0) + 1
    return np.array([counts[each] for each in i[0]]) / 3


# oracles of integers whose results a kernel rounds
ROUNDED: list[Callable[..., Any]] = [
    lambda i: i / 255,
    lambda i: (i / 255 - 0.485) / 0.229,
    lambda i: i * 0.1,
    lambda i: np.sqrt(i + 1),
    lambda i: np.exp(-i.astype(np.float64)),
    lambda i: (i * i)[:, 1:3].mean(axis=1) / 7,
    lambda i: (i[:, :1] % 2 == np.arange(3) % 2).mean(axis=1),
    lambda i: i @ np.full(4, 0.1),
    lambda i: (i * 2 + 2**25 + 1).astype(np.float64),
    lambda i: i + 0.5 + 2**24,
    lambda i: np.bincount(i.ravel()) / 7,
    lambda i: np.hanning(len(i) + 4),
    lambda i: np.ones(i[0, 1]) / 3,
    lambda i: np.arange(i[0, 1]) / 3,
    lambda i: np.cos(ANGLES) + i,
    lambda i: ANGLES + 0 * i,
    lambda i: 1 / FACES,
    lambda i: np.array(TWIDDLES) + 0 * i,
    lambda i: np.linspace(0, 1, 7),
    lambda i: i - math.pi,
    _closed(ANGLES),
    _seen,
]
# those that it does not round
EXACT: list[Callable[..., Any]] = [
    lambda i: i * 2 + 1,
    lambda i: i / 4,
    lambda i: i @ i.T,
    lambda i: i.sum(axis=0),
    lambda i: i * 0.5,
    lambda i: i.astype(np.float64),
    lambda i: FACES * i,
    lambda i: np.bitwise_and(i, 15) << 4,
    lambda i: np.where(i > 3, 1.0, -np.inf),
    lambda i: np.eye(5)[i % 5],
    lambda i: np.unique(i % 5),
    lambda i: i.view(np.uint64) % 5,
    lambda i: np.array(i.tolist()),
    lambda i: np.zeros((i[0, 1], 2)),
    lambda i: np.asarray([0.5, 0.25])[i % 2],
    lambda i: np.maximum(i, -1e300),
]


@pytest.mark.parametrize("oracle", ROUNDED)
def test_what_floats_make_of_integers_and_constants_is_rounded(oracle: Callable[..., Any]) -> None:
    _check(oracle, moves=True)


@pytest.mark.parametrize("oracle", EXACT)
def test_integers_stay_exact(oracle: Callable[..., Any]) -> None:
    _check(oracle, moves=False)


def _check(oracle: Callable[..., Any], *, moves: bool) -> None:
    copied = instrument(oracle)
    (samples,) = sample_outputs(lambda given: [copied(given["i"])], {"i": PIXELS}, {}, RoundingModel(XLA_CPU))
    value = np.asarray(oracle(PIXELS))
    assert samples.shape[1:] == value.shape
    assert (samples[0] == value).all()
    assert samples.dtype.kind == value.dtype.kind
    found = spread_of(samples)
    assert not found.lost.any()
    assert bool((found.deviation > 0).any()) == moves
    assert (found.deviation <= 4 * FLOAT32.unit_roundoff * np.maximum(np.abs(value), 10)).all()


_KEPT: dict[Any, Any] = {}


def _keeping_in_a_dict(i: Any) -> Any:
    kept = _KEPT.setdefault(i.shape, np.empty(i.shape))
    kept[...] = i
    return kept * 1.0


def _keeping_in_a_default(i: Any, kept: dict[Any, Any] = {}) -> Any:  # noqa: B006
    return kept.setdefault(i.shape, np.zeros(i.shape)) + i


class _Kept:
    array: Any = None


def _keeping_in_a_class(i: Any) -> Any:
    if _Kept.array is None:
        _Kept.array = np.zeros(i.shape)
    _Kept.array[...] = i
    return _Kept.array * 1.0


@pytest.mark.parametrize("oracle", [_keeping_in_a_dict, _keeping_in_a_default])
def test_a_container_that_an_oracle_keeps_holds_no_tracked_array_in_the_next_call(oracle: Callable[..., Any]) -> None:
    for _ in range(2):
        copied = instrument(oracle)
        sample_outputs(lambda given, copied=copied: [copied(given["i"])], {"i": PIXELS}, {}, RoundingModel(XLA_CPU))
        sample_outputs(lambda given, copied=copied: [copied(given["i"])], {"i": PIXELS}, {}, RoundingModel(XLA_CPU))
        assert type(oracle(PIXELS)) is np.ndarray


def test_an_array_that_an_oracle_keeps_elsewhere_is_the_oracles_mistake() -> None:
    copied = instrument(_keeping_in_a_class)
    sample_outputs(lambda given: [copied(given["i"])], {"i": PIXELS}, {}, RoundingModel(XLA_CPU))
    for use in (lambda: _keeping_in_a_class(PIXELS), lambda: np.sin(_Kept.array), lambda: _Kept.array[0], bool):
        with pytest.raises(KeptArrayError, match="earlier call: make arrays anew") as caught:
            use() if use is not bool else bool(_Kept.array)
        assert origin_of(caught.value) is Origin.USER


def test_a_table_of_the_oracle_is_not_changed() -> None:
    oracle = instrument(lambda i: ANGLES + i)
    before = ANGLES.copy()
    (out,) = sample_outputs(lambda given: [oracle(given["i"])], {"i": np.arange(4)}, {}, RoundingModel(XLA_CPU))
    assert len(out) > 1
    assert (before == ANGLES).all()
    assert type(ANGLES) is np.ndarray
    assert not isinstance(oracle(np.arange(4)), TrackedArray)
