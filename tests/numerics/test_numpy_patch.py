"""Arrays that an oracle creates are tracked, however it refers to NumPy, and the oracle does not change."""

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import numpy
import numpy as np
import pytest
from numpy import arange, float64
from numpy import linspace as between

from kerneltest.core.dtypes import Array
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.tracked import TrackedArray, instrument
from tests.numerics.tracking import PLAIN, samples_of

X = np.linspace(0.1, 1.2, 12).reshape(3, 4)
TENTH = 0.1


def _frequencies(n: int) -> Array:
    return 10000.0 ** (-np.arange(n) / n)


def _rotary(x: Any) -> Any:
    return x * np.cos(np.arange(3)[:, None] * _frequencies(4))


def _imported(x: Any) -> Any:
    return x * arange(4) / 3 + between(0.0, 1.0, 4, dtype=float64)


def _whole_name(x: Any) -> Any:
    return x + numpy.ones(4) / 3


def _closed(scale: float) -> Callable[..., Any]:
    def angles() -> Array:
        return np.arange(4) / 7 * scale

    return lambda x: x * angles()


def _inner(x: Any) -> Any:
    def helper(y: Any) -> Any:
        return y * np.full(4, TENTH)

    return helper(x)


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapped(*args: Any, **given: Any) -> Any:
        return function(*args, **given)

    return wrapped


@_called
def _decorated(x: Any) -> Any:
    return x + np.arange(4) / 3


def _filled(x: Any) -> Any:
    out = np.zeros(x.shape)
    for i in range(len(x)):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] / 3
    return out


def _summed_up(x: Any) -> Any:
    total = np.zeros(x.shape[:1])
    for j in range(x.shape[1]):
        total += x[:, j] * TENTH
    return total


def _listed(x: Any) -> Any:
    return np.array([[v / 3 for v in row] for row in x])


def _stacked(x: Any) -> Any:
    return np.asarray([row / 3 for row in x], dtype=np.float64)


def _taken(x: Any) -> Any:
    return np.asarray(x) / 3


def _recursive(x: Any, depth: int = 2) -> Any:
    return x / 3 + np.ones(4) / 3 if not depth else _recursive(x, depth - 1)


def _with_defaults(x: Any, *, scale: float = 0.3) -> Any:
    return x * scale * np.ones(4)


def _constant(x: Any) -> Any:
    return x * np.float64(TENTH) + np.finfo(np.float32).eps + np.pi


def _masked(x: Any) -> Any:
    return np.where(np.tri(3, 4, dtype=bool), x / 3, -np.inf)


def _identity(x: Any) -> Any:
    return x / 3 + np.eye(3, 4) + np.linspace(0.0, 1.0, 4)


def _several(x: Any) -> Any:
    angles, _ = np.meshgrid(np.arange(4) / 3, np.arange(3))
    return x * angles


ORACLES = [_rotary, _imported, _whole_name, _closed(0.3), _inner, _decorated, _filled, _summed_up, _listed, _stacked,
           _taken, _recursive, _with_defaults, _constant, _masked, _identity, _several]  # fmt: skip


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.__name__.strip("_"))
def test_an_oracle_is_followed_and_what_it_makes_moves_too(oracle: Callable[..., Any]) -> None:
    machine = RoundingModel(PLAIN, rows=17)
    out = samples_of(oracle, {"x": X}, machine)
    assert np.allclose(out[0], oracle(X), rtol=1e-13, atol=0)
    assert len(out) == 17
    assert (out[3:] != out[0]).any()
    assert not machine.escape


def _positions(x: Any) -> Any:
    return x * 0 + np.arange(4.0) * TENTH


def test_positions_and_frequencies_are_rounded_though_no_argument_is_part_of_them() -> None:
    out = samples_of(_positions, {"x": np.ones((1, 4))}, RoundingModel(PLAIN, rows=17))
    assert (out[1:, 0, 1:] != out[0, 0, 1:]).any(0).all()


def test_outside_of_an_evaluation_the_copy_makes_ordinary_arrays() -> None:
    copied = instrument(_rotary)
    assert type(copied(X)) is np.ndarray
    assert (copied(X) == _rotary(X)).all()


def test_the_oracle_and_its_module_stay_as_they_were() -> None:
    before = dict(globals())
    samples_of(_rotary, {"x": X}, RoundingModel(PLAIN, rows=17))
    samples_of(_imported, {"x": X}, RoundingModel(PLAIN, rows=17))
    assert globals() == before
    assert type(_frequencies(4)) is np.ndarray
    assert _rotary.__globals__["np"] is np


def test_a_copy_keeps_its_name_its_defaults_and_its_closure() -> None:
    copied = instrument(_with_defaults)
    assert (copied.__name__, copied.__qualname__, copied.__module__) == ("_with_defaults", "_with_defaults", __name__)
    assert copied.__kwdefaults__ == {"scale": 0.3}
    assert copied.__code__ is _with_defaults.__code__


@pytest.mark.parametrize(
    "oracle", [np.exp, partial(_with_defaults, scale=2.0), math.sqrt], ids=["ufunc", "partial", "builtin"]
)
def test_what_is_no_python_function_is_taken_as_it_is(oracle: Callable[..., Any]) -> None:
    assert instrument(oracle) is oracle


def _about_types(x: Any) -> Any:
    assert x.dtype == np.float64
    assert np.issubdtype(x.dtype, np.floating)
    assert isinstance(np.float64(1), np.float64)
    assert isinstance(np.ones(2), TrackedArray)
    assert np.dtype(float64).itemsize == 8
    return x / 3


def test_types_stay_types() -> None:
    assert len(samples_of(_about_types, {"x": X}, RoundingModel(PLAIN, rows=5))) == 5


def test_another_thread_makes_ordinary_arrays_meanwhile() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def elsewhere(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: type(np.ones(2))).result() is np.ndarray
        return x / 3

    samples_of(elsewhere, {"x": X}, RoundingModel(PLAIN, rows=5))
