"""A right kernel with a wrong oracle: that both differ everywhere is said, and by what, where that has a name."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.report.text.suspect_text import describe_suspect
from tests.sample import whole

X = kt.array("m n", "float32", domain=(0.5, 4))
Y = kt.array("n m", "float32", domain=(0.5, 4))
DIMS = {"m": kt.dim(values=(9, 8)), "n": kt.dim(values=(9, 12))}


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
        "each is the expected value 1 place of m further back",
    ),
    "the other way round": (lambda x: x, lambda x: x[:, ::-1], "it is the expected output reversed along n"),
    "a missing total": (lambda x: x / x.sum(1, keepdims=True), lambda x: x, ""),
    "another function": (lambda x: jnp.tanh(x), lambda x: np.sin(x), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLES)
def test_the_oracle_and_every_backend_differ(name: str) -> None:
    function, oracle, relation = ORACLES[name]
    pairing = kt.oracle_for(of_whole(function), x=X, dims=DIMS)(oracle)
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=2)
    (suspect,) = result.suspects
    assert suspect.title == "wrong values: the oracle and every backend differ"
    text = describe_suspect(suspect).texts
    assert any(line.startswith("is the oracle right?") for line in text)
    assert suspect.diagnosis.partition(" (explains")[0] == relation


def test_a_kernel_that_is_wrong_in_some_cases_says_nothing_of_its_oracle() -> None:
    pairing = kt.oracle_for(of_whole(lambda x: x + (x.shape[1] == 12)), x=X, dims=DIMS)(lambda x: x)
    (suspect,) = kt.check(pairing, backends=["interpret"], depth="quick", minimize=2).suspects
    assert "oracle" not in suspect.title
    assert not any(line.startswith("is the oracle right?") for line in describe_suspect(suspect).texts)
