"""Outputs of rank 0 to 5, of no and of one element, and pytrees of these: right ones pass, wrong ones are told."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.verdicts import Verdict
from tests.sample import whole

BACKENDS = ["interpret", "interpret-tpu", "simulate:sm_90"]
WRONG = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH)


def scaled(x: jax.Array, factor: float) -> jax.Array:
    return whole(lambda x_ref: x_ref[...] * factor, x, x)


def total(x: jax.Array, factor: float) -> jax.Array:
    return whole(lambda x_ref: x_ref[...].sum(keepdims=True) * factor, jax.ShapeDtypeStruct((1,), x.dtype), x)[0]


def nested(x: jax.Array, factor: float) -> dict[str, Any]:
    doubled = scaled(x, factor)
    return {"scalar": doubled[0], "parts": [doubled, (jnp.zeros((0, 3)), doubled.astype(jnp.int32))], "none": None}


def is_double(x: jax.Array, factor: float) -> jax.Array:
    return (scaled(x, factor) == 2 * x).all()


def _of_rank(rank: int, length: int) -> dict[str, Any]:
    names = [f"d{i}" for i in range(rank)]
    dims = {name: kt.dim(values=(length,)) for name in names}
    return {"x": kt.array(" ".join(names), "float32") if rank else kt.scalar("float32"), "dims": dims}


VECTOR = {"x": kt.array("n", "float32", domain=(-8, 8)), "dims": {"n": kt.dim(values=(16,))}}
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    **{f"rank {rank}": (scaled, lambda x: 2 * x, _of_rank(rank, 2)) for rank in range(6)},
    **{f"one element of rank {rank}": (scaled, lambda x: 2 * x, _of_rank(rank, 1)) for rank in range(1, 4)},
    "a sum": (total, lambda x: 2 * x.sum(), VECTOR),
    "a boolean": (is_double, lambda x: np.ones((), bool), VECTOR),
    "a pytree": (
        nested,
        lambda x: {"scalar": 2 * x[0], "parts": [2 * x, (np.zeros((0, 3)), np.trunc(2 * x))], "none": None},
        {**VECTOR, "x": kt.array("n", "int32", domain=(-8, 8))},
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_a_right_output_passes_and_a_wrong_one_is_told(name: str, backend: str) -> None:
    function, oracle, declared = CASES[name]
    for factor in (2, 3):
        pairing = kt.oracle_for(lambda x, factor=factor: function(x, factor), **declared)(oracle)
        result = kt.check(pairing, backends=[backend], depth="quick")
        assert not result.internal_errors, result.internal_errors[0].message
        assert result.ok is (factor == 2), result.findings[:1]
        assert {finding.verdict for finding in result.findings} <= set(WRONG)
        assert len(result.suspects) == (factor == 3)


def test_the_message_about_a_scalar_has_no_index() -> None:
    pairing = kt.oracle_for(lambda x: total(x, 3), **VECTOR)(lambda x: 2 * x.sum())
    message = kt.check(pairing, depth="quick").findings[0].message
    assert message.startswith("wrong value: got ")
