"""What a finding says of a common mistake: in at most six lines, with the place and with the cure."""

import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.core.verdicts import Verdict
from kerneltest.report.text.suspect_text import describe_suspect
from tests.sample import whole


def double(x: jax.Array) -> jax.Array:
    return whole(lambda x_ref: 2 * x_ref[...], x, x)


def bare_assert(x: jax.Array) -> jax.Array:
    assert x.shape[0] % 128 == 0
    return double(x)


def without_text(x: jax.Array) -> jax.Array:
    if x.shape[0] % 128:
        raise ValueError
    return double(x)


def assert_by_name(x: jax.Array, block: int = 128) -> jax.Array:
    n = len(x)
    assert n % block == 0, "a bad length"
    return double(x)


def raises_by_condition(x: jax.Array) -> jax.Array:
    n = x.shape[-1]
    if n % 128:
        raise ValueError(f"n must be a multiple of 128, got {n}")
    return double(x)


def checked_by_a_helper(x: jax.Array) -> jax.Array:
    _require(len(x), 128)
    return double(x)


def _require(length: int, multiple: int) -> None:
    if length % multiple != 0:
        raise RuntimeError("refused")


def not_too_long(x: jax.Array) -> jax.Array:
    assert x.size <= 16
    return double(x)


def not_too_short(x: jax.Array) -> jax.Array:
    if len(x) < 32:
        raise ValueError("too short")
    return double(x)


def some_lengths(x: jax.Array) -> jax.Array:
    assert len(x) in (64, 128)
    return double(x)


def returns_nothing(x: jax.Array) -> None:
    double(x)


def named_outputs(x: jax.Array) -> dict[str, jax.Array]:
    return {"a": double(x), "b": double(x)}


class Pair(NamedTuple):
    first: Any
    second: Any


def tuple_outputs(x: jax.Array) -> Pair:
    return Pair(double(x), double(x))


def body(x: Any, out: Any) -> None:
    out[...] = 2 * x[...]


def body_by_program(x: Any, out: Any) -> None:
    i = pl.program_id(0)
    out[i] = 2 * x[i]


def raises(x: np.ndarray) -> np.ndarray:
    return {"right": 2 * x}["wrong"]


def raises_in_numpy(x: np.ndarray) -> np.ndarray:
    return np.reshape(x, (7, 9))


def forgets(x: np.ndarray) -> None:
    2 * x


X, DIMS = kt.array("n", "float32"), {"n": kt.dim(values=(17,))}

# The kernel, the oracle, and words of the finding.
MESSAGES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[str]]] = {
    "a bare assertion": (
        bare_assert, lambda x: 2 * x,
        ["AssertionError", "% 128", "test_messages.py:", "dims=dict(n=kt.dim(multiple_of=128))"],
    ),
    "an exception without text": (
        without_text, lambda x: 2 * x, ["ValueError", "raise ValueError (", "dims=dict(n=kt.dim(multiple_of=128))"],
    ),
    "an assertion by name": (assert_by_name, lambda x: 2 * x, ["a bad length", "dims=dict(n=kt.dim(multiple_of=128))"]),
    "a condition": (
        raises_by_condition, lambda x: 2 * x, ["must be a multiple of 128", "dims=dict(n=kt.dim(multiple_of=128))"],
    ),
    "a helper": (checked_by_a_helper, lambda x: 2 * x, ["refused", "dims=dict(n=kt.dim(multiple_of=128))"]),
    "a greatest length": (not_too_long, lambda x: 2 * x, ["dims=dict(n=kt.dim(maximum=16))"]),
    "a least length": (not_too_short, lambda x: 2 * x, ["too short", "dims=dict(n=kt.dim(minimum=32))"]),
    "a choice of lengths": (some_lengths, lambda x: 2 * x, ["dims=dict(n=kt.dim(values=(64, 128)))"]),
    "a kernel without return": (returns_nothing, lambda x: 2 * x, ["the kernel returned nothing (no `return`?)"]),
    "a Pallas body": (body, lambda x, out: 2 * x, ["immutable", "pair the function that calls pallas_call"]),
    "a Pallas body that asks for its program": (
        body_by_program, lambda x, out: 2 * x, ["pair the function that calls pallas_call"],
    ),
    "an oracle without return": (double, forgets, ["oracle forgets returned nothing (no `return`?)"]),
    "an oracle that raises": (double, raises, ["oracle raises raised KeyError: 'wrong' (", "test_messages.py:"]),
    "an oracle that raises in NumPy": (double, raises_in_numpy, ["raised ValueError: cannot reshape", "_messages.py:"]),
    "an oracle of a list": (
        double, lambda x: [2 * float(value) for value in x], ["returned a list", "np.array"],
    ),
    "an oracle of rows": (
        lambda x: double(x.reshape(1, -1)), lambda x: [2 * x], ["returned a list", "np.array"],
    ),
    "an oracle of other names": (
        named_outputs, lambda x: {"a": 2 * x, "c": 2 * x}, ["outputs are named a, c", "the kernel's a, b"],
    ),
    "an oracle of other fields": (
        tuple_outputs, lambda x: {"one": 2 * x, "two": 2 * x}, ["named one, two", "the kernel's first, second"],
    ),
    "an oracle of too few outputs": (named_outputs, lambda x: {"a": 2 * x}, ["returned 1 output, the kernel 2"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MESSAGES, ids=lambda name: name.replace(" ", "-"))
def test_a_finding_names_the_cure(mistake: str) -> None:
    kernel, oracle, words = MESSAGES[mistake]
    extra = {"out": X} if "body" in kernel.__name__ else {}
    pairing = kt.oracle_for(kernel, x=X, dims=DIMS, **extra)(oracle)
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    message = result.findings[0].message
    assert [word for word in words if word not in message] == []
    assert sum(len(textwrap.wrap(line, 120)) for line in message.splitlines()) <= 6
    assert {finding.verdict for finding in result.findings} <= {Verdict.RUNTIME_ERROR, Verdict.ORACLE_ERROR}
    assert len(result.suspects) == 1


def sorts(x: jax.Array) -> jax.Array:
    return whole(lambda x_ref: jnp.sort(x_ref[...]), x, x)


# The kernel, its length, the backend, and words of the suspect. JAX's own are among them, as people search for these.
BUILDS: dict[str, tuple[Callable[..., Any], int, str, list[str]]] = {
    "a length for GPUs": (
        double, 17, "lower:sm_90", ["pl.next_power_of_2", 'backends=("interpret", "tpu")', "size is a power of 2"],
    ),
    "a primitive for GPUs": (
        sorts, 32, "lower:sm_90",
        ["a sort outside the kernel", 'backends=("interpret", "tpu")', "Unimplemented primitive in Pallas"],
    ),
    "a primitive for TPUs": (
        sorts, 128, "lower:tpu-v5e",
        ["a sort outside the kernel", 'backends=("interpret", "gpu")', "nimplemented primitive in Pallas"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("limit", BUILDS, ids=lambda name: name.replace(" ", "-"))
def test_what_does_not_lower_is_explained_and_quoted(limit: str) -> None:
    kernel, n, backend, words = BUILDS[limit]
    pairing = kt.oracle_for(kernel, x=X, dims={"n": kt.dim(values=(n,))})(lambda x: x)
    (suspect,) = kt.check(pairing, backends=[backend], depth="quick", minimize=0).suspects
    texts = describe_suspect(suspect).texts
    assert [word for word in words if word not in "\n".join(texts)] == []
    assert sum(len(textwrap.wrap(line, 130)) for line in texts) <= 6


RIGHT: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "the same names in another order": (named_outputs, lambda x: {"b": 2 * x, "a": 2 * x}),
    "no names": (tuple_outputs, lambda x: (2 * x, 2 * x)),
    "a list of outputs": (tuple_outputs, lambda x: [2 * x, 2 * x]),
    "names for a tuple": (lambda x: (double(x), double(x)), lambda x: {"a": 2 * x, "b": 2 * x}),
    "a list of one output": (double, lambda x: [2 * x]),
    "None among the outputs": (lambda x: (double(x), None), lambda x: (2 * x, None)),
}


@pytest.mark.parametrize("shape", RIGHT)
def test_outputs_may_be_nested_otherwise(shape: str) -> None:
    kernel, oracle = RIGHT[shape]
    result = kt.check(kt.oracle_for(kernel, x=X, dims=DIMS)(oracle), backends=["interpret"], depth="quick")
    assert result.ok, result.findings[0].message
