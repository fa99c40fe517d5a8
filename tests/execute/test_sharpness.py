"""Sharpness: which errors the bounds of a pairing would show, and what is said where they are blunt."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.records.sharpness import measure_sharpness, sharpness_remarks

SHORT = {"n": kt.dim(values=(8,))}


def by_kernel(function: Any) -> Any:
    """Returns a function of one array, computed in a kernel."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = function(x_ref[...])

    return lambda x: pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


class Share:
    """An error model that admits a share of each value; ten times as much of every other value."""

    def __init__(self, share: float, *, coarser: bool = False) -> None:
        self.share, self.coarser = share, coarser

    def misfit(self, leaves: object, dims: object) -> str:
        return ""

    def bounds(self, measured: Any) -> tuple[kt.Bound, ...]:
        parts = [np.where(np.arange(value.size) % 2 * self.coarser, 10, 1) for value in measured.values]
        return tuple(kt.Bound(self.share * part * np.abs(v)) for v, part in zip(measured.values, parts, strict=True))


def check(tolerance: Any, dtype: str = "float32") -> kt.Result:
    pairing = kt.oracle_for(by_kernel(lambda x: x * x), x=kt.array("n", dtype), tolerance=tolerance, dims=SHORT)
    return kt.check(pairing(lambda x: x * x), depth="quick")


# Error model and dtype, the share that is found, and the remark.
REMARKS = {
    "sharp": (Share(0.001), "float32", 0.001, ""),
    "blunt": (Share(0.02), "float32", 0.02, "errors of 2% pass as rounding in the typical float32 case on interpret"),
    "blunt in 16 bits": (Share(0.02), "bfloat16", 0.02, ""),
    "useless": (Share(0.15), "bfloat16", 0.15, "its tolerance admits errors of 15% in every numeric case; give a"),
}


@pytest.mark.parametrize("name", REMARKS)
def test_bounds_that_admit_much_are_told(name: str) -> None:
    tolerance, dtype, share, remark = REMARKS[name]
    result = check(tolerance, dtype)
    (found,) = measure_sharpness(result.records)
    assert result.ok
    assert (found.best, found.typical) == pytest.approx((share, share), rel=0.15)  # with the rounding of the output
    remarks = sharpness_remarks(result.records)
    assert len(remarks) == bool(remark)
    assert all(remark in each for each in remarks)


def test_the_share_of_coarse_elements_and_the_cases_without_rounding_are_counted() -> None:
    (found,) = measure_sharpness(check(Share(0.02, coarser=True)).records)
    assert (found.coarse, found.formulas) == (0.5, 0)  # a model of one's own asks only whether its bounds hold
    (found,) = measure_sharpness(check(kt.tolerance.rounding()).records)
    assert found.coarse == 0
    assert found.formulas == found.cases > 0
    assert 2**-25 <= found.best <= found.typical < 2**-20


def test_a_blunt_bound_names_its_largest_part() -> None:
    near_one = kt.array("n", "float32", domain=(1, 1.00001))

    @kt.oracle_for(by_kernel(lambda x: x * x - 1), x=near_one, dims=SHORT)
    def pairing(x: Any) -> Any:
        return x * x - 1

    (remark,) = sharpness_remarks(kt.check(pairing, depth="quick").records)
    assert "pass as rounding in the typical float32 case on interpret: the bound is " in remark
    assert "`x * x`" in remark
