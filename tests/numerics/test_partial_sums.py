"""Sums of float32 in the orders of kernels, against bounds that follow from how large partial sums are."""

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.core.dtypes import Array, float_format
from kerneltest.core.precision import FLOAT32, XLA_CPU
from kerneltest.numerics.rounding_bounds import bound_from_spread
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import spread_of
from tests.numerics.tracking import samples_of

_SUMS = 48
LENGTHS = [7, 17, 64, 300, 1024, 4096]


def _in_sequence(terms: Array) -> Array:
    return np.add.accumulate(terms, axis=-1, dtype=np.float32)[..., -1]


def _in_blocks(terms: Array, block: int) -> Array:
    whole = -(-terms.shape[-1] // block) * block
    padded = np.zeros((*terms.shape[:-1], whole), np.float32)
    padded[..., : terms.shape[-1]] = terms
    return _in_sequence(_in_sequence(padded.reshape(*terms.shape[:-1], -1, block)))


def _in_lanes(terms: Array, lanes: int) -> Array:
    whole = -(-terms.shape[-1] // lanes) * lanes
    padded = np.zeros((*terms.shape[:-1], whole), np.float32)
    padded[..., : terms.shape[-1]] = terms
    return _in_sequence(_in_sequence(np.moveaxis(padded.reshape(*terms.shape[:-1], -1, lanes), -1, -2)))


def _in_a_tree(terms: Array) -> Array:
    while terms.shape[-1] > 1:
        half = terms.shape[-1] // 2
        rest = terms[..., 2 * half :]
        terms = np.concatenate([terms[..., :half] + terms[..., half : 2 * half], rest], axis=-1)
    return terms[..., 0]


ORDERS: dict[str, Callable[[Array], Array]] = {
    "in sequence": _in_sequence,
    "backwards": lambda terms: _in_sequence(terms[..., ::-1]),
    "in blocks": partial(_in_blocks, block=32),
    "in two lanes": partial(_in_lanes, lanes=2),
    "in four lanes": partial(_in_lanes, lanes=4),
    "in eight lanes": partial(_in_lanes, lanes=8),
    "in a tree": _in_a_tree,
}


def _terms(kind: str, n: int) -> Array:
    rng = np.random.default_rng(n)
    x, at = rng.normal(size=(_SUMS, n)), np.arange(n)
    shapes = {
        "random": x,
        "of many sizes": x * 10 ** rng.uniform(-3, 3, x.shape),
        "positive": np.abs(x),
        "nearly equal": 1 + x / 1000,
        "alternating": (1 + x / 100) * (-1.0) ** at,
        "alternating in pairs": (1 + x / 100) * np.where(at % 4 < 2, 1, -1),
        "positive, then negative": (1 + x / 100) * np.where(at < n // 2, 1, -1),
        "ascending": np.linspace(-1, 1, n) + x / 1000,
        "with two large ones": np.where(at == n // 3, 1e4, np.where(at == 2 * n // 3, -1e4, x)),
    }
    return shapes[kind].astype(np.float32)


KINDS = [
    "random",
    "of many sizes",
    "positive",
    "nearly equal",
    "alternating",
    "alternating in pairs",
    "positive, then negative",
    "ascending",
    "with two large ones",
]


def _bound(oracle: Callable[..., Array], **leaves: Array) -> tuple[Array, Array]:
    wide = {name: value.astype(np.float64) for name, value in leaves.items()}
    samples = samples_of(oracle, wide, RoundingModel(XLA_CPU))
    return samples[0], bound_from_spread(samples[0], spread_of(samples), FLOAT32.unit_roundoff)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_order_of_a_kernel_exceeds_the_bound(kind: str, n: int) -> None:
    x = _terms(kind, n)
    total, bound = _bound(lambda x: x.sum(axis=1), x=x)
    product, of_product = _bound(lambda x, y: x[:16] @ y, x=x, y=np.ones((n, 2), np.float32))
    running, of_running = _bound(lambda x: np.cumsum(x, axis=1), x=x)
    for name, order in ORDERS.items():
        assert (np.abs(order(x) - total) <= bound).all(), name
        assert (np.abs(order(x[:16])[:, None] - product) <= of_product).all(), name
        prefix = n // 2 + 1
        if name in ("in sequence", "backwards", "in blocks"):  # a scan adds neighbours
            assert (np.abs(order(x[:, :prefix]) - running[:, prefix - 1]) <= of_running[:, prefix - 1]).all()


@pytest.mark.parametrize("n", [64, 256, 4096])
def test_the_bound_of_random_terms_grows_like_the_root_of_their_number(n: int) -> None:
    """If a partial sum were taken to be as large as all terms together, it would grow like the number."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((16, n), (n, 16)))
    for oracle, leaves in ((lambda x: x.sum(axis=1), {"x": x}), (lambda x, y: x @ y, {"x": x, "y": y})):
        total, bound = _bound(oracle, **leaves)
        assert np.median(bound) / np.sqrt(np.mean(total**2)) < 2.0**-19.5 * np.sqrt(n)


def test_a_prefix_does_not_depend_on_what_follows() -> None:
    x = np.abs(_terms("random", 1024))
    _, whole = _bound(lambda x: np.cumsum(x, axis=1), x=x)
    _, short = _bound(lambda x: np.cumsum(x, axis=1), x=x[:, :16])
    assert 0.5 < np.median(whole[:, 1:16] / short[:, 1:]) < 2
    assert np.median(whole[:, -1] / x.sum(axis=1)) > 4 * np.median(whole[:, 1] / x[:, :2].sum(axis=1))


# three terms, what the oracle computes, how far another order may be off: at least, at most
CHAINS = [
    ((2.0**20, -(2.0**20), 0.1), lambda a, b, c: (a + b) + c, 2.0**-6, 2.0**-1),  # 0.1 + 2^20 rounds
    ((2.0**20, 2.0**20, 0.1), lambda a, b, c: (a - b) + c, 2.0**-6, 2.0**-1),
    ((0.1, -(2.0**20), 2.0**20), lambda a, b, c: a + (b + c), 2.0**-6, 2.0**-1),
    ((2.0**20, -(2.0**20), 0.1), lambda a, b, c: sum([a, b, c]), 2.0**-6, 2.0**-1),
    ((2.0**20, -(2.0**20), 3.0), lambda a, b, c: (a + b) + c, 0.0, 0.0),  # all orders are exact
    ((0.5, 0.25, -0.125), lambda a, b, c: (a - b) + c, 0.0, 0.0),
    ((2.0**20, -(2.0**20), 0.1), lambda a, b, c: a + b, 0.0, 0.0),  # a single order
    ((0.1, 0.2, 0.3), lambda a, b, c: a + b + c, 2.0**-28, 2.0**-22),
    ((2.0**20, -(2.0**20), 0.1), lambda a, b, c: (a + b) * c, 0.0, 0.0),
]


@pytest.mark.parametrize(("terms", "oracle", "least", "most"), CHAINS)
def test_a_chain_of_sums_may_be_added_in_another_order(
    terms: tuple[float, ...], oracle: Callable[..., Array], least: float, most: float
) -> None:
    leaves = {name: np.full(5, np.float32(term), np.float64) for name, term in zip("abc", terms, strict=True)}
    samples = samples_of(oracle, leaves, RoundingModel(XLA_CPU))
    assert (samples[0] == oracle(**leaves)).all()
    deviation = spread_of(samples).deviation
    assert (deviation >= least).all()
    assert (deviation <= most).all()


def test_a_chain_of_arrays_of_several_cases_is_aligned() -> None:
    rng = np.random.default_rng(0)
    leaves = {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=4), "c": rng.normal(size=(2, 1, 1))}
    samples = samples_of(lambda a, b, c: 1.5 - (a - b) + c - 0.25, leaves, RoundingModel(XLA_CPU))
    assert samples.shape == (17, 2, 3, 4)
    assert np.allclose(samples[0], 1.25 - leaves["a"] + leaves["b"] + leaves["c"], rtol=1e-14)
    assert (spread_of(samples).deviation < 2.0**-20).all()


def _added_at(x: Array) -> Array:
    total = np.zeros(4)
    np.add.at(total, [0, 0, 1, 2, 2, 2], x)
    return total


def test_each_element_that_is_added_at_has_the_bound_of_its_own_terms() -> None:
    _, bound = _bound(_added_at, x=np.array([0.1, 0.2, 0.3, 1.0, 1.0, 1.0], np.float32))
    assert np.isfinite(bound).all()
    assert bound[2] > bound[0] > 4 * bound[1] > bound[3] == 0
    assert (_bound(lambda x: _added_at(x)[:0] + x[:0], x=np.ones(6, np.float32))[1] == 0).all()


def test_numbers_that_are_added_at_are_added_in_their_format() -> None:
    x = np.random.default_rng(0).uniform(1, 2, 6).astype(np.float32)
    spread, bfloat16 = {}, float_format(np.dtype(ml_dtypes.bfloat16))
    for name, oracle in (("at", _added_at), ("sum", lambda x: np.stack([x[:2].sum(), x[2], x[3:].sum()]))):
        samples = samples_of(oracle, {"x": x.astype(np.float64)}, RoundingModel(XLA_CPU, None), bfloat16)
        spread[name] = samples.std(axis=0).max()
    assert spread["at"] > spread["sum"] / 4 > 0


@pytest.mark.parametrize("assign", [lambda t, y: t.__setitem__(..., y), lambda t, y: np.negative(-y, out=t)])
def test_what_is_overwritten_has_no_terms_of_before(assign: Callable[[Any, Any], Any]) -> None:
    """A sum of four terms; those of a sum and the product that stood in its place before are not among them."""

    def oracle(x: Any, y: Any, *, before: bool) -> Any:
        t = (x + 1000 * y - x) if before else 0 * y
        assign(t, y)
        return t + x + y

    given = {"x": _terms("random", 16), "y": _terms("positive", 16)}
    bounds = [_bound(lambda x, y, before=before: oracle(x, y, before=before), **given)[1] for before in (False, True)]
    assert bounds[1].max() < 2 * bounds[0].max()
