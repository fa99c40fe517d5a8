"""The error model of inner products in chains, and of sums of them."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import Array
from kerneltest.declare.error_models import Measured
from tests.declare.measured import FLUSHING, ON_TENSOR_CORES, PLAIN, measured

LENGTHS = dict(m=9, k=60, n=50, p=7)
CHAIN = {"x": kt.array("m k"), "y": kt.array("k n"), "z": kt.array("n p")}
SUM = {"x": kt.array("m k"), "y": kt.array("k p"), "v": kt.array("m n"), "w": kt.array("n p")}
ORACLES: dict[str, tuple[dict[str, Any], Callable[..., Array]]] = {
    "chain": (CHAIN, lambda x, y, z: x @ y @ z),
    "sum": (SUM, lambda x, y, v, w: x @ y + v @ w),
}
MODEL = kt.tolerance.dot("k n")


def _case(name: str, scale: float = 1.0, seed: int = 0) -> Measured:
    declared, oracle = ORACLES[name]
    rng = np.random.default_rng(seed)
    shapes = {path: [LENGTHS[str(axis)] for axis in leaf.shape] for path, leaf in declared.items()}
    leaves = {path: (scale * rng.normal(size=shape)).astype(np.float32) for path, shape in shapes.items()}
    return measured(oracle, leaves, declared, LENGTHS)


def _summed(a: Array, b: Array, dtype: Any, backwards: bool) -> Array:
    """Returns a product whose sums are rounded to a dtype after each term."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype)
    for i in range(a.shape[1])[:: -1 if backwards else 1]:
        total = (total + a[:, i, None].astype(dtype) * b[None, i].astype(dtype)).astype(dtype)
    return total


def _computed(name: str, case: Measured, dtype: Any, *, backwards: bool = False, right_first: bool = False) -> Array:
    a, b, *rest = case.leaves.values()
    if name == "sum":
        v, w = rest
        return (_summed(a, b, dtype, backwards) + _summed(v, w, dtype, backwards)).astype(np.float64)
    if right_first:
        return _summed(a, _summed(b, rest[0], dtype, backwards), dtype, backwards).astype(np.float64)
    return _summed(_summed(a, b, dtype, backwards), rest[0], dtype, backwards).astype(np.float64)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("right_first", [False, True])
def test_float32_sums_in_any_order_are_within(name: str, backwards: bool, right_first: bool) -> None:
    case = _case(name)
    (bound,) = MODEL.bounds(case)
    result = _computed(name, case, np.float32, backwards=backwards, right_first=right_first)
    assert bound.fixed.shape == (9, 7)
    assert (np.abs(result - case.values[0]) <= bound.at(PLAIN)).all()


@pytest.mark.parametrize("name", ORACLES)
def test_sums_in_bfloat16_are_found_and_admitted_where_declared(name: str) -> None:
    case = _case(name)
    error = np.abs(_computed(name, case, ml_dtypes.bfloat16) - case.values[0])
    assert (error > MODEL.bounds(case)[0].at(PLAIN)).any()
    (loose,) = kt.tolerance.dot("k n", accumulate="bfloat16").bounds(case)
    assert (error <= loose.at(PLAIN)).all()


def _to_tf32(x: Array) -> Array:
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2**11) / 2**11, exponent)


@pytest.mark.parametrize("seed", range(4))
def test_each_product_of_a_chain_may_round_its_operands(seed: int) -> None:
    case = _case("chain", seed=seed)
    x, y, z = (_to_tf32(value) for value in case.leaves.values())
    (bound,) = MODEL.bounds(case)
    for result in (_to_tf32(x @ y) @ z, x @ _to_tf32(y @ z)):
        error = np.abs(result - case.values[0])
        assert (error <= bound.at(ON_TENSOR_CORES)).all()
        assert (error > bound.at(PLAIN)).any()


def test_each_rounding_of_a_worst_case_counts() -> None:
    up = np.full((1, 1), 1 + 2.0**-11, np.float32)  # as far from TF32 as a number can be, and so is its product
    case = measured(CHAIN_ORACLE, {"x": up, "y": up, "z": up}, CHAIN, dict(m=1, k=1, n=1, p=1))
    (bound,) = MODEL.bounds(case)
    assert abs(1.0 - case.values[0]) <= bound.at(ON_TENSOR_CORES)
    assert bound.at(ON_TENSOR_CORES) - bound.at(PLAIN) >= 4 * 2.0**-11


CHAIN_ORACLE = ORACLES["chain"][1]


def test_a_product_that_may_overflow_on_the_way_leaves_nothing_to_say() -> None:
    x, y, z = (np.full((1, 1), value, np.float32) for value in (1e30, 1e30, 1e-30))
    (bound,) = MODEL.bounds(measured(CHAIN_ORACLE, {"x": x, "y": y, "z": z}, CHAIN, dict(m=1, k=1, n=1, p=1)))
    assert np.isinf(bound.fixed).all()


def test_what_underflows_on_the_way_may_grow_in_the_next_product() -> None:
    x, y, z = (np.full((1, 1), value, np.float32) for value in (1e-20, 1e-20, 1e30))
    case = measured(CHAIN_ORACLE, {"x": x, "y": y, "z": z}, CHAIN, dict(m=1, k=1, n=1, p=1))
    (bound,) = MODEL.bounds(case)
    assert (np.abs(0.0 - case.values[0]) <= bound.at(FLUSHING)).all()


def test_two_dims_of_one_product_are_one_long_sum() -> None:
    leaves = {"x": np.ones((2, 30, 40), np.float32), "y": np.ones((30, 40, 3), np.float32)}
    declared = {"x": kt.array("m k n"), "y": kt.array("k n p")}
    case = measured(lambda x, y: np.einsum("mkn,knp->mp", x, y), leaves, declared, dict(m=2, k=30, n=40, p=3))
    (bound,) = MODEL.bounds(case)
    terms = 30 * 40 + 8
    assert np.allclose(bound.fixed, 1200 * terms * 2.0**-24, rtol=1e-3)


def test_a_summand_that_lacks_a_dim_is_the_same_along_it() -> None:
    declared = {"x": kt.array("m k"), "y": kt.array("k"), "v": kt.array("n"), "w": kt.array("n")}
    leaves = {path: np.ones([LENGTHS[str(axis)] for axis in leaf.shape], np.float32) for path, leaf in declared.items()}
    case = measured(lambda x, y, v, w: x @ y + v @ w, leaves, declared, LENGTHS)
    (bound,) = MODEL.bounds(case)
    assert bound.fixed.shape == (9,)
    assert np.allclose(bound.fixed, (60 + 50) * (60 + 1 + 8) * 2.0**-24, rtol=1e-3)


def test_a_dim_ties_two_operands() -> None:
    three = {**CHAIN, "s": kt.array("k")}
    assert "needs exactly two array arguments with dim k, but 3 have it (x, y, s)" in MODEL.misfit(three, {})
    assert MODEL.misfit(CHAIN, {}) == ""
