"""A right kernel with a wrong oracle: that both differ everywhere is said, and by what, where that has a name."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.backends import registry
from kerneltest.backends.interpret import Interpret
from kerneltest.report.text.suspect_text import describe_suspect
from kerneltest.triage.suspects import Suspect
from tests.sample import whole

X = kt.array("m n", "float32", domain=(0.5, 4))
Y = kt.array("n m", "float32", domain=(0.5, 4))
DIMS = {"m": kt.dim(values=(9,)), "n": kt.dim(values=(12,))}


def of_whole(function: Any) -> Any:
    return lambda x: whole(lambda x: function(x[...]), jax.eval_shape(function, x), x)


# A kernel, an oracle with a mistake, and what is said of the two.
ORACLES = {
    "a missing scale": (lambda x: x / 3, lambda x: x, "each is 0.3333 times the expected value"),
    "a sign": (lambda x: -x, lambda x: x, "each has the opposite sign"),
    "a missing root": (lambda x: jnp.sqrt(x), lambda x: x, "each is the square root of the expected value"),
    "a square": (lambda x: x, lambda x: np.square(x), "each is the square root of the expected value"),
    "an inverse": (lambda x: 1 / x, lambda x: x, "each is the reciprocal of the expected value"),
    "a missing logarithm": (
        lambda x: jnp.log(x), lambda x: x, "each is the logarithm of the expected value",
    ),
    "one too much": (lambda x: x, lambda x: x + 1, "each is 1 too small"),
    "off by a column": (
        lambda x: jnp.cumsum(x, 1), lambda x: np.cumsum(x, 1) - x,
        "each is the expected value 1 place of n further on",
    ),
    "off by a row": (
        lambda x: jnp.roll(jnp.cumsum(x, 0), 1, 0), lambda x: np.cumsum(x, 0),
        "each is the expected value 1 place of m further back, around its end",
    ),
    "the other way round": (lambda x: x, lambda x: x[:, ::-1], "it is the expected output reversed along n"),
    "a missing total": (lambda x: x / x.sum(1, keepdims=True), lambda x: x, ""),
    "another function": (lambda x: jnp.tanh(x), lambda x: np.sin(x), ""),
}  # fmt: skip


class _Second(Interpret):
    def __init__(self) -> None: ...


@pytest.fixture(autouse=True)
def second_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    kt.backend("second")(_Second)


def suspect_of(pairing: Any) -> tuple[Suspect, str]:
    (suspect,) = kt.check(pairing, backends=["interpret", "second"], depth="quick", minimize=0).suspects
    return suspect, "\n".join(describe_suspect(suspect).texts)


@pytest.mark.parametrize("name", ORACLES)
def test_the_oracle_and_every_backend_differ(name: str) -> None:
    function, oracle, relation = ORACLES[name]
    suspect, text = suspect_of(kt.oracle_for(of_whole(function), x=X, dims=DIMS)(oracle))
    some_agree = "reversed" in relation  # with rows of equal values
    assert suspect.title == "wrong values" + ": the oracle and every backend differ" * (not some_agree)
    assert suspect.diagnosis.partition(" (explains")[0] == relation
    counts = "25 of 25 cases on interpret and 25 of 25 cases on second"
    assert (f"check the oracle, too: it differs from the kernel in {counts}" in text) is (not relation)


def of_two(function: Any) -> Any:
    return lambda x, y: whole(lambda x, y: function(x[...], y[...]), jax.eval_shape(function, x, y), x, y)


def two_outputs(x: Any) -> Any:
    def body(x: Any, one: Any, other: Any) -> None:
        one[...], other[...] = x[...] * x[...], jnp.exp(x[...])

    return pl.pallas_call(body, out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype)] * 2)(x)


CALLS: list[int] = []


def with_state(x: Any) -> Any:
    CALLS.append(1)
    return of_whole(lambda x: jnp.sin(x * len(CALLS)))(x)


# A kernel of one or two arguments and its oracle, of which no case agrees, and what explains that.
RELATED = {
    "outputs": (two_outputs, lambda x: (np.exp(x), np.square(x)), "it is the expected output 1"),
    "exchanged": (of_two(lambda x, y: x - y * y), lambda x, y: y - x * x,
                  "as if x and y were exchanged"),
    "another argument": (of_two(lambda x, y: x + jnp.sin(x)), lambda x, y: x + np.sin(y),
                         "as if y were x"),
    "state": (with_state, lambda x: np.cos(x), "the kernel keeps state: it is another one each time that it is traced"),
}  # fmt: skip


@pytest.mark.parametrize("name", RELATED)
def test_a_relation_to_the_oracle_leaves_no_doubt_of_it(name: str) -> None:
    kernel, oracle, relation = RELATED[name]
    arguments = {"x": X} if oracle.__code__.co_argcount == 1 else {"x": X, "y": X}
    suspect, text = suspect_of(kt.oracle_for(kernel, dims=DIMS, **arguments)(oracle))
    assert suspect.diagnosis.partition(" (explains")[0] == relation
    assert "check the oracle" not in text


@pytest.mark.parametrize(
    ("kernel", "backends"),
    [
        (jnp.tanh, ["interpret"]),  # no second backend that compares values
        (jnp.tanh, ["interpret", "compile:sm_90"]),
        (lambda x: jnp.where(x[0, 0] == x[0, 1], x, jnp.tanh(x)), ["interpret", "second"]),
    ],
)
def test_an_oracle_with_which_cases_agree_is_not_doubted(kernel: Any, backends: list[str]) -> None:
    dims = {"m": kt.dim(values=(8,)), "n": kt.dim(values=(16,))}
    pairing = kt.oracle_for(of_whole(kernel), x=X, dims=dims)(lambda x: x)
    for suspect in kt.check(pairing, backends=backends, depth="quick", minimize=0).suspects:
        assert "oracle" not in "\n".join(describe_suspect(suspect).texts)
