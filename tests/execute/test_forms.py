"""Several forms of one oracle: the rounding of each is allowed, and nothing else."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from tests.localize.fault_cases import make_case

pytestmark = pytest.mark.usefixtures("values_alone")

FAR = kt.array("m n", "float32", domain=(30, 31))
DIMS = {"m": kt.dim(values=(4,)), "n": kt.dim(values=(64,))}


def two_pass(x: Any) -> Any:
    return np.square(x - x.mean(1, keepdims=True)).mean(1)


def one_pass(x: Any) -> Any:
    return np.square(x).mean(1) - np.square(x.mean(1))


def sample_variance(x: Any) -> Any:
    return np.square(x - x.mean(1, keepdims=True)).sum(1) / (x.shape[1] - 1)


def transposed(x: Any) -> Any:
    return two_pass(x)[None]


def kernel(scale: float = 1.0) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        o_ref[...] = scale * (jnp.mean(x * x, 1) - jnp.square(jnp.mean(x, 1)))

    return lambda x: pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape[:1], x.dtype))(x)


# The kernel's scale and the other forms, with the verdicts of findings and what their first message says.
DECLARED = {
    "one form": (1, (), {"mismatch"}, "loses"),
    "its own": (1, (one_pass,), set(), ""),
    "its own, of a wrong kernel": (1.001, (one_pass,), {"mismatch"}, "even without rounding"),
    "another function": (
        1,
        (sample_variance,),
        {"oracle_error"},
        "sample_variance, a form of oracle two_pass, returned ",
    ),
    "another shape": (
        1,
        (transposed,),
        {"oracle_error"},
        "transposed, a form of oracle two_pass, returned other shapes",
    ),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", DECLARED)
def test_a_kernel_may_round_as_any_form_of_its_oracle(name: str) -> None:
    scale, forms, verdicts, words = DECLARED[name]
    pairing = kt.oracle_for(kernel(scale), x=FAR, dims=DIMS, tolerance=kt.tolerance.rounding(forms=forms))(two_pass)
    result = kt.check(pairing, depth="quick", minimize=0)
    assert {str(each.verdict) for each in result.findings} == verdicts
    assert all(words in each.message for each in result.findings[:1])
    assert result.ok is not bool(verdicts)


def test_the_forms_of_an_oracle_are_named() -> None:
    assert str(kt.tolerance.rounding(forms=[one_pass])) == "rounding(forms=one_pass)"


def nearest(x: Any, c: Any) -> Any:
    return np.square(x[:, None] - c).sum(-1).argmin(1)


def nearest_expanded(x: Any, c: Any) -> Any:
    return (np.square(c).sum(-1) - 2 * (x @ c.T)).argmin(1)


def nearest_kernel(dtype: Any = jnp.float32) -> Any:
    def body(x_ref: Any, c_ref: Any, o_ref: Any) -> None:
        x, c = x_ref[...], c_ref[...]
        products = jnp.sum(x[:, None] * c[None], -1).astype(dtype).astype(x.dtype)
        o_ref[...] = jnp.argmin(jnp.sum(c * c, -1) - 2 * products, 1).astype(jnp.int32)

    return lambda x, c: pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape[:1], jnp.int32))(x, c)


@pytest.mark.parametrize(
    ("dtype", "forms", "words"),
    [
        (jnp.float32, (), "far more to rounding than the oracle's; if it is meant, declare it with forms="),
        (jnp.float32, (nearest_expanded,), ""),
        (jnp.bfloat16, (nearest_expanded,), "times as far as it may"),
    ],
)
def test_an_integer_may_be_either_side_of_a_tie_in_the_forms_that_are_declared(
    dtype: Any, forms: tuple[Any, ...], words: str
) -> None:
    far = {"x": kt.array("24 4", "float32", domain=(100, 101)), "c": kt.array("8 4", "float32", domain=(100, 101))}
    pairing = kt.oracle_for(nearest_kernel(dtype), **far, tolerance=kt.tolerance.rounding(forms=forms))(nearest)
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    assert bool(result.findings) is bool(words)
    assert all(words in each.message for each in result.findings if each.family in ("normal", "small_rows"))


def test_forms_may_choose_differently_where_rounding_decides() -> None:
    """In float64, 0.5 + 1e-45 is 0.5, so that both centres are as near; the expanded form prefers the second one."""
    arrays = {"x": kt.array("5 1", "float32", domain=(-9, 9)), "c": kt.array("2 1", "float32", domain=(-9, 9))}
    tolerance = kt.tolerance.rounding(forms=[nearest_expanded])
    pairing = kt.oracle_for(nearest_kernel(), **arrays, tolerance=tolerance)(nearest)
    kt.assert_conforms(pairing, make_case(pairing, {}, x=0.5, c=[[0.0], [1.5e-45]]))
