"""Slices along a batch dim: anywhere among the dims that make up an axis, and of any admitted length."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.records.schema import Record
from tests.found import records
from tests.sample import elementwise


def _doubled(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: v * 2, x)


def _invariants(pairing: kt.Pairing) -> list[Record]:
    return list(records(pairing, ["interpret"], group="invariants"))


SHAPES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a dim": ("h d", {}, "h"),
    "the outer factor": ("h*g d", {}, "h"),
    "the inner factor": ("d h*g", {}, "g"),
    "half of an axis": ("m 2*h", dict(h=kt.dim(block=8)), "h"),
    "one of two parts": ("m+n d", {}, "n"),
    "whole blocks": ("m d", dict(m=kt.dim(multiple_of=8)), "m"),
    "lengths one by one": ("m d", dict(m=kt.dim(values=(32, 64))), "m"),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("what", SHAPES)
def test_slices_give_the_same_by_themselves_as_in_the_batch(what: str) -> None:
    shape, dims, name = SHAPES[what]
    pairing = kt.oracle_for(_doubled, x=kt.array(shape, "float32"), dims=dims, batch_dims=name)(lambda x: 2 * x)
    alone = [r for r in _invariants(pairing) if r.family == "alone"]
    assert alone
    assert {record.verdict for record in alone} == {"pass"}
    assert all(record.compared for record in alone)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "what", [what for what in SHAPES if what != "one of two parts"]
)  # its first element is in every slice
def test_a_leak_from_another_slice_is_found_and_said_of_the_oracle(what: str) -> None:
    """The oracle leaks in the same way, so only a slice by itself shows it."""
    shape, dims, name = SHAPES[what]

    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: v * 2 + v.reshape(-1)[0], x)

    def oracle(x: np.ndarray) -> np.ndarray:
        return 2 * x + x.reshape(-1)[0] if x.size else x

    x = kt.array(shape, "float32", domain=(1, 9))
    for leaking in (oracle, lambda x: 2 * x):
        told = _invariants(kt.oracle_for(kernel, x=x, dims=dims, batch_dims=name)(leaking))
        wrong = {record.family: record.message for record in told if record.verdict.is_finding}
        assert wrong.keys() == {"alone"} or leaking is not oracle
        is_said = f"differ for the slice alone, too: leave {name!r} out" in wrong["alone"]
        assert is_said is (leaking is oracle)


def test_an_output_in_another_order_is_not_a_finding() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: v * 2, jnp.concatenate([x[:, ::2], x[:, 1::2]], axis=1))

    def oracle(x: np.ndarray) -> np.ndarray:
        return 2 * np.concatenate([x[:, ::2], x[:, 1::2]], axis=1)

    declared = dict(x=kt.array("m h*2", "float32"), dims=dict(h=kt.dim(values=(1, 4))), batch_dims="h")
    asked = _invariants(kt.oracle_for(kernel, **declared)(oracle))
    assert {r.verdict for r in asked if r.family != "alone"} == {"pass"}
    (told,) = {r.message for r in asked if r.family == "alone"}
    assert "an output orders the elements of an axis differently" in told


def test_a_slice_that_a_relation_forbids_is_not_run() -> None:
    declared = dict(x=kt.array("m d", "float32"), batch_dims="m", where=lambda m: m % 3 == 0)
    pairing = kt.oracle_for(_doubled, **declared)(lambda x: 2 * x)
    assert {r.verdict for r in _invariants(pairing)} == {"pass"}


def test_an_output_that_no_declared_shape_explains_is_reported() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return elementwise(lambda v: v, jnp.concatenate([x, x], axis=0))

    pairing = kt.oracle_for(kernel, x=kt.array("m d", "float32"), batch_dims="m")(
        lambda x: np.concatenate([x, x], axis=0)
    )
    (record,) = {r.message: r for r in _invariants(pairing) if r.verdict == "unavailable"}.values()
    assert record.family == "alone"
    assert "no declared shape tells which elements belong to the slice" in record.message
