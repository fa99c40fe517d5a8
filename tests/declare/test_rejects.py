"""What a kernel must refuse: declared, planned, and judged on each backend that takes the kernel."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.api import Result
from kerneltest.declare.outcomes import Rejection
from kerneltest.declare.pairing import Pairing
from tests.sample import whole


def scaled(x: jax.Array, *, scale: float = 1.0, ndim: int = 1) -> jax.Array:
    if scale < 0:
        try:
            raise KeyError("negative")
        except KeyError as error:
            raise ValueError("scale must be positive") from error
    if x.shape[0] % 4:
        raise ValueError(f"{x.shape[0]} rows are not whole blocks of 4")
    if x.dtype == jnp.int8:
        raise TypeError("no int8")

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * scale

    return pl.pallas_call(body, out_shape=x, interpret=False)(x)


def paired(*rejections: Rejection) -> Pairing:
    @kt.oracle_for(
        scaled,
        x=kt.array("m", ("float32", "bfloat16")),
        scale=kt.static(2.0),
        dims={"m": kt.dim(values=[8])},
        rejects=rejections,
    )
    def oracle(x: np.ndarray, scale: float) -> np.ndarray:
        return x * scale

    return oracle


NEGATIVE = kt.rejects("negative", scale=-1.0, raises=ValueError, match="must be positive")


def rejections_of(pairing: Pairing, backends: tuple[str, ...] = ("interpret",)) -> list[Any]:
    return [record for record in check(pairing, backends).records if record.group == "rejects"]


def check(pairing: Pairing, backends: tuple[str, ...]) -> Result:
    return kt.check(pairing, backends=backends, depth="quick")


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("rejection", "verdict", "words"),
    [
        (NEGATIVE, "pass", []),
        (kt.rejects("rows", dims={"m": 5}, raises=ValueError, match="whole blocks"), "pass", []),
        (kt.rejects("dtype", x=kt.array("m", "int8"), raises=TypeError, match="int8"), "pass", []),
        (kt.rejects("shape", x=kt.array("6", "float32"), raises=ValueError, match="6 rows"), "pass", []),
        (kt.rejects("cause", scale=-1.0, raises=KeyError, match="negative"), "pass", []),
        (
            kt.rejects("fine", scale=3.0, raises=ValueError, match="must be positive"),
            "xpass",
            ["expected ValueError matching 'must be positive'", "nothing was raised"],
        ),
        (
            kt.rejects("type", scale=-1.0, raises=TypeError, match="must be positive"),
            "runtime_error",
            ["expected TypeError", "got ValueError: scale must be positive"],
        ),
        (
            kt.rejects("words", scale=-1.0, raises=ValueError, match="must be even"),
            "runtime_error",
            ["matching 'must be even'", "got ValueError: scale must be positive"],
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Rejection) else "",
)
def test_what_must_raise_does_or_is_a_finding(rejection: Rejection, verdict: str, words: list[str]) -> None:
    result = check(paired(rejection), ("interpret",))
    (record,) = [record for record in result.records if record.group == "rejects"]
    assert (record.family, record.verdict) == (f"rejects_{rejection.name}", verdict)
    assert all(word in record.message for word in words), record.message
    assert result.ok == (verdict == "pass")


def test_every_backend_that_takes_the_kernel_is_asked_once() -> None:
    result = check(paired(NEGATIVE), ("interpret", "lower:gfx942", "simulate:sm_90", "interpret-mosaic-gpu"))
    asked = [record for record in result.records if record.group == "rejects"]
    assert [(record.backend, record.verdict, record.dtype) for record in asked] == [
        ("interpret", "pass", "float32"),
        ("lower:gfx942", "pass", "float32"),
        ("simulate:sm_90", "pass", "float32"),
    ]
    assert list(result.not_applicable) == ["interpret-mosaic-gpu"]


def test_what_only_the_backend_refuses_is_met_there() -> None:
    def odd(x: jax.Array, *, block: int = 4) -> jax.Array:
        return whole(lambda x_ref: jnp.sort(x_ref[...]), x, x)

    sorts = kt.rejects("sort", block=5, raises=Exception, match="[Uu]nimplemented|not implemented|No lowering")

    @kt.oracle_for(odd, x=kt.array("m", "float32"), block=kt.static(4), dims={"m": kt.dim(values=[8])}, rejects=[sorts])
    def oracle(x: np.ndarray) -> np.ndarray:
        return np.sort(x)

    verdicts = {record.backend: record.verdict for record in rejections_of(oracle, ("interpret", "lower:gfx942"))}
    assert verdicts == {"interpret": "xpass", "lower:gfx942": "pass"}


@pytest.mark.parametrize(
    ("rejections", "words"),
    [
        ([NEGATIVE, NEGATIVE], "another rejection has this name"),
        ([kt.rejects("a", dims={"q": 1}, raises=ValueError, match="x")], "no argument has the dim 'q'"),
        ([kt.rejects("a", q=1, raises=ValueError, match="x")], "'q' is neither an array nor a static argument"),
        ([kt.rejects("a", x=3, raises=ValueError, match="x")], "give kt.array"),
        ([kt.rejects("a", scale=kt.array("m"), raises=ValueError, match="x")], "give its value"),
    ],
)
def test_a_rejection_that_does_not_fit_the_pairing_is_refused(rejections: list[Rejection], words: str) -> None:
    with pytest.raises(kt.DeclarationError, match=words):
        paired(*rejections)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("two words", dict(raises=ValueError, match="x"), "identifier"),
        ("a", dict(raises="ValueError", match="x"), "type of an exception"),
        ("a", dict(raises=ValueError, match=""), "give a match"),
        ("a", dict(raises=ValueError, match="("), "not a regular expression"),
    ],
)
def test_a_rejection_that_says_nothing_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kt.rejects(name, **options)
