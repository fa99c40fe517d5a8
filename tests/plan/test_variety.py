"""Signatures of invariants: each of two dims is the longer one, and dims have several blocks."""

import itertools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.declare.dims import Dim
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.plan.signatures import order_by_variety, signatures
from tests.sample import whole


def _declared(**dims: Dim) -> kt.Pairing:
    return kt.oracle_for(lambda x, causal: x, x=kt.array(" ".join(dims), "float32"), causal=kt.static(False, True),
                         dims=dims)(lambda x, causal: x)  # fmt: skip


FREE, TWO, BLOCKED = kt.dim(), kt.dim(values=(16, 32)), kt.dim(block=8)


@pytest.mark.parametrize("dims", [dict(m=TWO, n=TWO, d=TWO, e=TWO), dict(m=BLOCKED, n=kt.dim(block=16), d=FREE)])
def test_a_few_signatures_have_each_order_of_two_dims_several_blocks_and_each_option(dims: dict[str, Dim]) -> None:
    pairing = _declared(**dims)
    planned = signatures(pairing, "quick")
    telling, others = order_by_variety(pairing, planned)
    assert sorted(map(str, [*telling, *others])) == sorted(map(str, planned))
    assert len(telling) <= 6
    rows = [{**dict(each.dims), **dict(each.statics)} for each in telling]
    for one, other in itertools.permutations(dims, 2):
        assert any(row[one] > row[other] for row in rows), (one, other)
    for name, dim in dims.items():
        assert any(row[name] > (dim.block or 0) for row in rows), name
    assert {row["causal"] for row in rows} == {"False", "True"}


def _product(wrong: bool) -> Any:
    """The product of a matrix and a vector, whose gradient is wrong past as many elements as there are rows."""

    @jax.custom_vjp
    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct(x.shape[:1], x.dtype)
        return whole(lambda x, y: jnp.sum(x[...] * y[...][None, :], axis=1), out, x, y)

    def backward(saved: tuple[jax.Array, jax.Array], weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, y = saved
        by_y = (weights[:, None] * x).sum(axis=0)
        return weights[:, None] * y, jnp.where(wrong & (jnp.arange(len(y)) >= len(x)), 0, by_y)

    product.defvjp(lambda x, y: (product(x, y), (x, y)), backward)
    return lambda x, y: product(x, y)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("wrong", [False, True])
def test_a_gradient_that_is_wrong_where_one_length_exceeds_another_is_found_twice(wrong: bool) -> None:
    reals = (-np.inf, np.inf)
    pairing = kt.oracle_for(
        _product(wrong),
        x=kt.array("m n", "float32", domain=reals),
        y=kt.array("n", "float32", domain=reals),
        dims=dict(m=TWO, n=TWO),
        grad=True,
    )(lambda x, y: x @ y)
    for seed in range(3 if wrong else 1):
        found = kt.check(pairing, depth="quick", seed=seed).findings
        assert all(finding.family == "gradient" for finding in found)
        assert bool(found) == wrong


def test_each_of_two_dims_is_twice_the_longer_one_where_a_gradient_is_asked() -> None:
    axes, reals = ("m d", "n d", "n e"), (-np.inf, np.inf)
    arrays = {name: kt.array(each, "float32", domain=reals) for name, each in zip("qkv", axes, strict=True)}

    def kernel(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct((len(q), v.shape[1]), q.dtype)
        return whole(lambda q, k, v: q[...] @ k[...].T @ v[...], out, q, k, v)

    declare = kt.oracle_for(kernel, **arrays, dims=dict.fromkeys("mdne", TWO), grad=True)
    planned = plan_pairing(
        declare(lambda q, k, v: q @ k.T @ v), "p", resolve(["interpret"]), RunSettings(depth="quick")
    )
    asked = [
        dict(case.signature.dims) for item in planned.items for case in item.cases() if case.family.name == "gradient"
    ]
    longer = Counter(
        pair for dims in asked for pair in itertools.permutations(dims, 2) if dims[pair[0]] > dims[pair[1]]
    )
    assert {pair: longer[pair] for pair in itertools.permutations("mdne", 2) if longer[pair] < 2} == {}
