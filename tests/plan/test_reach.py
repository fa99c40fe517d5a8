"""What numeric families reach: bugs that show when one argument is disturbed alone, or is the same all over."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.plan.cases import Case, value_cases
from kerneltest.plan.signatures import signatures
from tests.found import findings, records


def averaged(scores: jax.Array, v: jax.Array, kept: Any) -> jax.Array:
    """The mean of v weighted by a softmax, whose unnormalised sum is kept in a dtype before it is divided."""

    def body(s_ref: Any, v_ref: Any, o_ref: Any) -> None:
        weights = jnp.exp(s_ref[...] - jnp.max(s_ref[...], axis=-1, keepdims=True))
        total = jnp.dot(weights, v_ref[...].astype(jnp.float32)).astype(kept).astype(jnp.float32)
        o_ref[...] = (total / jnp.sum(weights, axis=-1, keepdims=True)).astype(o_ref.dtype)

    shape = jax.ShapeDtypeStruct((scores.shape[0], v.shape[1]), v.dtype)
    made: jax.Array = pl.pallas_call(body, out_shape=shape)(scores, v)
    return made


def mean(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights @ v / weights.sum(axis=-1, keepdims=True)


def _averaging(kept: Any) -> kt.Pairing:
    return kt.oracle_for(
        lambda scores, v: averaged(scores, v, kept),
        scores=kt.array("m n", "float32", domain=(-np.inf, np.inf)),
        v=kt.array("n d", "float16"),
        dims=dict(m=kt.dim(values=(3,)), n=kt.dim(values=(48, 33)), d=kt.dim(values=(4,))),
        tolerance=kt.tolerance.conditioned(over="n", compute="float16"),  # its rounding is no fault, its range is
    )(mean)


def _numeric_findings(pairing: kt.Pairing) -> set[tuple[str, str]]:
    asked = records(pairing, ["interpret"], group="numeric")
    return {(record.family, record.target) for record in asked if record.verdict.is_finding}


def test_an_unnormalised_mean_that_overflows_shows_only_where_one_argument_is_large_by_itself() -> None:
    assert _numeric_findings(_averaging(jnp.float32)) == set()
    found = _numeric_findings(_averaging(jnp.float16))
    assert ("nearly_largest", "v") in found
    assert {target for _, target in found} == {"v"}  # no family that disturbs all arguments at once


def variance(x: jax.Array, compensated: bool) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        centre = jnp.mean(x, axis=-1, keepdims=True)
        squares = jnp.mean((x - centre) ** 2 if compensated else x * x, axis=-1, keepdims=True)
        o_ref[...] = squares if compensated else squares - centre**2

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((x.shape[0], 1), x.dtype))(x)


def summed(x: jax.Array, wide: bool) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        dtype = jnp.float32 if wide else jnp.bfloat16
        total = jnp.zeros((x_ref.shape[0],), dtype)
        for i in range(x_ref.shape[1]):
            total = (total + x_ref[:, i].astype(dtype)).astype(dtype)
        o_ref[...] = total.astype(jnp.float32)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape[:1], jnp.float32))(x)


ROWS = dict(m=kt.dim(values=(3,)), n=kt.dim(values=(40,)))


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("family", "kernel", "oracle"),
    [
        ("nearly_constant", variance, lambda x: np.var(x, axis=-1, keepdims=True)),
        ("constant", summed, lambda x: x.sum(axis=-1)),
    ],
)
def test_what_is_the_same_all_over_shows_what_is_lost(family: str, kernel: Any, oracle: Any, right: bool) -> None:
    reals = kt.array("m n", "float32", domain=(-np.inf, np.inf))
    tolerance = kt.tolerance.conditioned(over="n")
    made = kt.oracle_for(lambda x: kernel(x, right), x=reals, dims=ROWS, tolerance=tolerance)(oracle)
    assert any(found.family == family for found in findings(made, ["interpret"])) != right


def test_every_argument_is_disturbed_alone_on_some_signature_and_once_on_each() -> None:
    dims = dict(m=kt.dim(minimum=2), n=kt.dim(minimum=2))
    made = kt.oracle_for(
        lambda a, b: a, a=kt.array("m n", "float32"), b=kt.array("n", "float32"), dims=dims
    )(lambda a, b: a)  # fmt: skip
    cases = list(value_cases(made, "p", "float32", "numeric", 0, "standard"))
    alone: dict[str, list[Case]] = {}
    for case in cases:
        if case.target and not case.family.each:
            alone.setdefault(case.family.name, []).append(case)
    everywhere = {case.family.name for case in cases if not case.target}
    assert alone.keys() == everywhere - {"normal"}
    count = len(signatures(made, "standard"))
    for mine in alone.values():
        assert {case.target for case in mine} == {"a", "b"}
        assert len({case.signature for case in mine}) == len(mine)
        assert len(mine) == count


def test_the_others_hold_ordinary_values_meanwhile() -> None:
    made = kt.oracle_for(lambda a, b: a, a=kt.array("n", "float32"), b=kt.array("n", "float32"))(lambda a, b: a)
    cases = value_cases(made, "p", "float32", "numeric", 0, "standard")
    case = next(case for case in cases if (case.family.name, case.target) == ("far_above_zero", "b"))
    values = case.fill(made)
    assert np.abs(values["a"]).max() < 10
    assert values["b"].min() > 190


def test_a_kernel_of_one_float_argument_is_not_asked_the_same_twice() -> None:
    made = kt.oracle_for(lambda a, i: a, a=kt.array("n", "float32"), i=kt.array("n", "int32"))(lambda a, i: a)
    cases = list(value_cases(made, "p", "float32", "numeric", 0, "standard"))
    assert {case.family.name for case in cases if case.target} == {"nearly_largest"}
