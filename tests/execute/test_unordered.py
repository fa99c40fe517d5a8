"""Outputs whose order along an axis is free."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from tests.found import records


def taken(column: Callable[[Any, int], Any], x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 3

    (m, n), out = x.shape, jax.ShapeDtypeStruct(x.shape, x.dtype)
    into, of = pl.BlockSpec((m, 1), lambda i: (0, i)), pl.BlockSpec((m, 1), lambda i: (0, column(i, n)))
    return pl.pallas_call(body, grid=(n,), in_specs=[of], out_specs=into, out_shape=out)(x)


def right(x: jax.Array) -> jax.Array:
    return taken(lambda i, n: n - 1 - i, x)


def repeated(x: jax.Array) -> jax.Array:
    return taken(lambda i, n: jnp.maximum(i, 1), x)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("backend", ["interpret", "simulate:gfx942"])
@pytest.mark.parametrize(("kernel", "is_right"), [(right, True), (repeated, False)])
def test_only_the_order_along_the_axis_is_free(kernel: Callable[..., Any], is_right: bool, backend: str) -> None:
    dims = {"m": kt.dim(values=(2, 1)), "n": kt.dim(values=(16, 4))}
    oracle = kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=dims, unordered=kt.unordered(-1))
    asked = records(oracle(lambda x: 3 * x), [backend], group="numeric")
    compared = (record for record in asked if record.compared)
    if is_right:
        assert {record.verdict for record in compared} == {"pass"}
    else:
        assert any(record.verdict.is_finding for record in compared)


TWO = np.ones(2)
# The axis, outputs that cannot be arranged along it, and words of the message.
REFUSED: list[tuple[int, Any, str]] = [
    (0, (TWO, np.ones(3)), r"outputs 0, 1 of 2 have shapes \(2,\), \(3,\); they need one shape"),
    (1, TWO, r"have shapes \(2,\); they need one shape, with an axis 1"),
    (0, kt.defined(TWO, where=TWO > 1), r"output 0 is made by kt.defined.*return one value there"),
    (0, (TWO, kt.ignored), r"output 1 is kt.ignored, .*, as in kt.unordered\(0, outputs=\(0,\)\)"),
    (0, kt.ignored, r"output 0 is kt.ignored, .*; leave out unordered="),
]


@pytest.mark.parametrize(("axis", "outputs", "message"), REFUSED)
def test_outputs_without_one_order_are_refused(axis: int, outputs: Any, message: str) -> None:
    with pytest.raises(kt.DeclarationError, match=message):
        kt.unordered(axis).arrange(outputs, np)


def test_an_ignored_output_that_is_not_named_stays() -> None:
    arranged = kt.unordered(0, outputs=(0,)).arrange((np.array([2.0, 1.0]), kt.ignored), np)
    assert arranged[0].tolist() == [1, 2]
    assert arranged[1] is kt.ignored


def test_integers_decide_the_order_and_other_outputs_keep_theirs() -> None:
    values, at, count = np.array([0.5, 0.25, 0.125]), np.array([2, 0, 0]), np.array([3, 1])
    arranged = kt.unordered(0, outputs=(0, 1)).arrange({"a": values, "b": at, "c": count}, np)
    assert [arranged[name].tolist() for name in "abc"] == [[0.125, 0.25, 0.5], [0, 0, 2], [3, 1]]


def smallest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def body(x_ref: Any, values_ref: Any, at_ref: Any) -> None:
        at = jnp.argsort(x_ref[...], axis=1)[:, 1::-1]
        at_ref[...] = at.astype(x.dtype)
        values_ref[...] = jnp.take_along_axis(x_ref[...], at, axis=1)

    like = [jax.ShapeDtypeStruct((len(x), 2), x.dtype)] * 2
    found: tuple[jax.Array, jax.Array] = pl.pallas_call(body, out_shape=like)(x)
    return found


def test_the_kernels_dtypes_decide_the_order_of_an_oracle_with_other_dtypes() -> None:
    def oracle(x: Any) -> Any:
        at = np.argsort(x, axis=1, kind="stable")[:, :2]
        return np.take_along_axis(x, at, axis=1), at

    x, dims = kt.array("m n", "float32", domain=(-9, 9)), {"m": kt.dim(values=(2,)), "n": kt.dim(values=(8,))}
    pairing = kt.oracle_for(smallest, x=x, dims=dims, unordered=kt.unordered(-1))(oracle)
    result = kt.check(pairing, backends=["interpret"], depth="quick")
    assert not result.findings
    assert any(record.compared for record in result.records)


def _same(result: Any) -> list[list[str]]:
    return [[str(float(value)) for value in each] for each in jax.tree.leaves(result)]


NAN = np.nan
# Outputs whose elements belong together, in which several elements are equal.
TIES: dict[str, tuple[list[float], ...]] = {
    "zeros of both signs": ([0.0, -0.0, 0.0],),
    "zeros with a payload": ([0.0, -0.0], [1.0, 2.0]),
    "zeros with a payload, in the other order": ([-0.0, 0.0], [2.0, 1.0]),
    "a payload of zeros": ([1.0, 1.0, 0.5], [0.0, -0.0, 1.0]),
    "two zeros": ([0.0, -0.0, -0.0], [-0.0, 0.0, -0.0]),
    "NaN of both signs": ([NAN, -NAN, 1.0], [2.0, 1.0, -0.0]),
    "infinities": ([np.inf, NAN, -np.inf, -0.0, 0.0], [0.0, 1.0, -0.0, 3.0, 2.0]),
}


@pytest.mark.parametrize("outputs", TIES.values(), ids=TIES.keys())
def test_kernel_and_oracle_have_one_order(outputs: tuple[list[float], ...]) -> None:
    of_kernel = kt.unordered(0).arrange([jnp.array(each, jnp.float32) for each in outputs], jnp)
    of_oracle = kt.unordered(0).arrange([np.array(each) for each in outputs], np)
    reversed_ = kt.unordered(0).arrange([np.array(each[::-1]) for each in outputs], np)
    assert _same(of_kernel) == _same(of_oracle) == _same(reversed_)
