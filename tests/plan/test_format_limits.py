"""Lengths at which number formats run out: which are planned, what they cost, and the bugs that only they show."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.declare.dims import Dim
from kerneltest.execute.value_groups import affordable_long_signatures
from kerneltest.plan.format_limits import excessive_work, long_signatures
from kerneltest.plan.signatures import Signature
from suites import test_matmul, test_softmax
from tests.corpus.production import narrow, ramp
from tests.found import findings

BLOCK = 64


def counted(x: jax.Array, kept: Any) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = jnp.sum((x_ref[0, :] == 1).astype(kept), dtype=kept).astype(jnp.int32)

    row, one = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec((1,), lambda i: (i,))
    out = jax.ShapeDtypeStruct(x.shape[:1], jnp.int32)
    return pl.pallas_call(body, out_shape=out, grid=x.shape[:1], in_specs=[row], out_specs=one)(x)


ONE = dict(n=kt.dim(block=BLOCK))
ROWS = dict(m=kt.dim(values=(2, 1)), n=kt.dim(block=16))


def positions(kept: Any) -> kt.Pairing:
    pair = kt.oracle_for(lambda x: ramp(x, kept=kept, block=BLOCK), x=kt.array("n", "float32"), dims=ONE)
    return pair(lambda x: x + np.arange(len(x)))


def indices(index: Any) -> kt.Pairing:
    pair = kt.oracle_for(lambda x: narrow(x, kept=index, block=BLOCK), x=kt.array("n", "float32"), dims=ONE)
    return pair(lambda x: x)


def counts(kept: Any) -> kt.Pairing:
    pair = kt.oracle_for(lambda x: counted(x, kept), x=kt.array("m n", "int32"), dims=ROWS)
    return pair(lambda x: (x == 1).sum(axis=1))


def tokens(kept: Any) -> kt.Pairing:
    """Counts those of the first expert; no family of the long signatures fills indices."""
    dims = dict(experts=kt.dim(values=(1, 4)))
    pair = kt.oracle_for(lambda x: counted(x[None] + 1, kept), x=kt.indices("t", into="experts"), dims=dims)
    return pair(lambda x: np.array([(x == 0).sum()]))


@pytest.mark.parametrize(
    ("make", "broken", "right", "backends"),
    [
        (positions, jnp.float16, jnp.int32, ("interpret", "simulate:sm_90")),
        (positions, jnp.bfloat16, jnp.float32, ("interpret", "simulate:sm_90")),
        (indices, jnp.int16, jnp.int32, ("simulate:sm_90",)),
        (counts, jnp.int8, jnp.int32, ("interpret",)),
        (tokens, jnp.int8, jnp.int32, ("interpret",)),
    ],
)
def test_a_format_that_runs_out_is_found_at_quick(
    make: Callable[[Any], kt.Pairing], broken: Any, right: Any, backends: tuple[str, ...]
) -> None:
    for backend in backends:
        found = next(findings(make(broken), [backend]))
        assert found.verdict in ("mismatch", "out_of_bounds"), backend
        result = kt.check(make(right), backends=[backend], depth="quick")
        assert result.ok, result.findings[:1]


def lengths(planned: tuple[Signature, ...]) -> list[Mapping[str, int]]:
    return [{name: length for name, length in each.dims if length > 100} for each in planned]


def test_at_quick_each_dtype_has_one_long_signature() -> None:
    planned = long_signatures(test_matmul.tiled, "quick")
    assert [each.dtype for each in planned] == ["float32", "bfloat16", "float16"]
    assert lengths(planned) == [{"n": 65_537}, {"k": 65_537}, {"m": 65_537}]


def test_at_standard_each_dim_has_every_length_that_no_other_covers() -> None:
    found = [dict(each.dims)["n"] for each in long_signatures(test_softmax.fused, "standard")]
    assert found == [65_537, 32_769, 2_049]  # 129 and 257 lie under the length after four blocks of 64


@pytest.mark.parametrize(
    ("dim", "longest"),
    [
        (kt.dim(block=64), [65_537]),
        (kt.dim(block=64, maximum=40_000), [32_769]),
        (kt.dim(block=64, multiple_of=16), [65_552]),
        (kt.dim(), [2_049]),  # one program holds it all
        (kt.dim(maximum=70_000), [65_537]),
        (kt.dim(values=(3, 70_000)), []),
        (kt.dim(block=64, maximum=100), []),
    ],
)
def test_how_long_follows_from_the_declaration(dim: Dim, longest: list[int]) -> None:
    pairing = kt.oracle_for(lambda x: x, x=kt.array("n", "float32"), dims=dict(n=dim))(lambda x: x)
    assert [dict(each.dims)["n"] for each in long_signatures(pairing, "quick")] == longest


def test_what_grows_with_the_square_of_a_length_is_not_asked_of_long_ones() -> None:
    def oracle(q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return np.exp(q @ k.T).sum(axis=1)

    dims = dict(s=kt.dim(block=16), d=kt.dim(values=(4,)))
    pair = kt.oracle_for(lambda q, k: q, q=kt.array("s d", "float32"), k=kt.array("s d", "float32"), dims=dims)
    reasons = {
        dict(each.dims)["s"]: excessive_work(pair(oracle), each) for each in long_signatures(pair(oracle), "standard")
    }
    assert {length for length, reason in reasons.items() if not reason} == {129, 257}
    assert "the oracle computes about" in reasons[65_537]


def test_an_oracle_that_cannot_be_traced_may_grow_with_the_square_of_a_length() -> None:
    def oracle(x: np.ndarray) -> np.ndarray:
        return np.array([float(each) for each in x])

    pair = kt.oracle_for(lambda x: x, x=kt.array("n", "float32"), dims=dict(n=kt.dim(block=16)))
    longest = max(long_signatures(pair(oracle), "standard"), key=lambda each: each.dims)
    assert "could not be counted, and may grow with the square of n" in excessive_work(pair(oracle), longest)


def test_an_array_of_more_than_a_16_bit_index_holds_is_planned_where_no_dim_is_that_long() -> None:
    dims = dict(m=kt.dim(), n=kt.dim())
    pairing = kt.oracle_for(lambda x: x, x=kt.array("m n", "float32"), dims=dims)(lambda x: x)
    assert lengths(long_signatures(pairing, "quick")) == [{"m": 257, "n": 257}]


def test_a_relation_moves_the_other_lengths_and_not_the_long_one() -> None:
    dims = dict(m=kt.dim(block=16), n=kt.dim(block=16, maximum=300), p=kt.dim(block=16))
    pair = kt.oracle_for(
        lambda x, y: x,
        x=kt.array("m n", "float32"),
        y=kt.array("p", "float32"),
        dims=dims,
        where=lambda n, p: p == 2 * n,
    )
    assert lengths(long_signatures(pair(lambda x, y: x), "standard"))[-2:] == [
        {"n": 257, "p": 514},
        {"n": 129, "p": 258},
    ]


def test_a_kernel_that_takes_long_gets_shorter_ones() -> None:
    everything = long_signatures(test_matmul.tiled, "quick")
    affordable = affordable_long_signatures(test_matmul.tiled, "quick")
    assert [each.dtype for each in affordable] == [each.dtype for each in everything]
    assert max(max(each.values()) for each in lengths(affordable)) == 2_049
