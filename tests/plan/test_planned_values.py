"""Values that every plan has, shown by kernels that go wrong on nothing else."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.plan.cases import value_cases
from kerneltest.plan.families import GROUPS
from tests.found import found_twice
from tests.sample import elementwise, whole

Function = Callable[..., Any]

VECTOR = kt.array("n", "float32", domain=(-9, 9))
WIDE = kt.array("n", "float32", domain=(-1e15, 1e15))
BLOCK = 16
BLOCKS = dict(n=kt.dim(block=BLOCK, maximum=99))
FEW = dict(n=kt.dim(values=(5, 17)))


def _whole(function: Function) -> Function:
    @functools.wraps(function)
    def kernel(*arrays: jax.Array) -> jax.Array:
        return elementwise(function, *arrays)

    return kernel


def _blocks(first: float, later: float, n: Any) -> jax.Array:
    """An array that holds one number in its first two blocks and another in later ones."""

    def body(o_ref: Any) -> None:
        o_ref[...] = jnp.where(pl.program_id(0) > 1, later, first) + jnp.zeros(BLOCK, jnp.float32)

    shape = jax.ShapeDtypeStruct((n,), jnp.float32)
    made = pl.pallas_call(body, out_shape=shape, grid=(pl.cdiv(n, BLOCK),), out_specs=pl.BlockSpec((BLOCK,), _number))
    result: jax.Array = made()
    return result


def _number(i: Any) -> tuple[Any]:
    return (i,)


def _scaled(factor: float) -> Function:
    return lambda x: _blocks(1, factor, x.shape[0]) * x


def _column_sums(narrow: Any) -> Function:
    def kernel(x: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct(x.shape[1:], jnp.int32)
        return whole(lambda x: x[...].astype(jnp.int32).sum(axis=0).astype(narrow).astype(jnp.int32), out, x)

    return kernel


def _largest(canonical: bool) -> Function:
    """The largest element of each row, found among integers that sort as floats do."""

    def function(x: jax.Array) -> jax.Array:
        bits = jax.lax.bitcast_convert_type(jnp.where(canonical & (x != x), jnp.nan, x), jnp.int32)
        key = jnp.max(bits ^ ((bits >> 31) & 0x7FFFFFFF), axis=1, keepdims=True) + jnp.zeros_like(bits)
        return jax.lax.bitcast_convert_type(key ^ ((key >> 31) & 0x7FFFFFFF), jnp.float32)

    return _whole(function)


# By what is planned: declarations, an oracle, a right kernel and a wrong one.
PLANNED: dict[str, tuple[dict[str, Any], Function, Function, Function]] = {
    "an index other than the first": (
        dict(x=VECTOR, at=kt.indices("1", into="n"), dims=FEW),
        lambda x, at: x + x[at],
        _whole(lambda x, at: x + x[at]),
        _whole(lambda x, at: x + x[:1]),
    ),
    "two lengths that are neither 0 nor all": (
        dict(x=kt.array("2 n", "float32", domain=(-9, 9)), count=kt.lengths("2", up_to="n"), dims=FEW),
        lambda x, count: np.where(np.arange(x.shape[1]) < count[:, None], x, 0),
        _whole(lambda x, count: jnp.where(jnp.arange(x.shape[1]) < count[:, None], x, 0)),
        _whole(lambda x, count: jnp.where(count[:, None] > 0, x, 0)),
    ),
    "a flag that is not set": (
        dict(x=VECTOR, add=kt.array("1", "bool"), dims=FEW),
        lambda x, add: np.where(add, x + 1, x),
        _whole(lambda x, add: jnp.where(add, x + 1, x)),
        _whole(lambda x, add: x + 1),
    ),
    "flags of a mask without blocks": (
        dict(
            x=kt.array("b n", "float32", domain=(-9, 9)), live=kt.mask("b"), dims=dict(b=kt.dim(values=(3, 1)), **FEW)
        ),
        lambda x, live: np.where(live[:, None], x, 0),
        _whole(lambda x, live: jnp.where(live[:, None], x, 0)),
        _whole(lambda x, live: jnp.where(live[:1, None], x, 0)),
    ),
    "integers that do not cancel": (
        dict(x=kt.array("k n", "int8"), dims=dict(k=kt.dim(values=(300, 1)), **FEW)),
        lambda x: x.sum(axis=0),
        _column_sums(jnp.int32),
        _column_sums(jnp.int16),
    ),
    "halves between integers": (
        dict(x=kt.array("n", "float32", domain=(-1e4, 1e4)), dims=FEW, tolerance=kt.tolerance.exact()),
        np.rint,
        _whole(lambda x: jnp.round(x)),
        _whole(lambda x: jnp.floor(x + 0.5)),
    ),
    "values as small as a number that is added": (
        dict(x=VECTOR, y=kt.array("n", "float32", domain=(0, 100)), dims=FEW),
        lambda x, y: x / (np.sqrt(y) + 1e-8),
        _whole(lambda x, y: x / (jnp.sqrt(y) + 1e-8)),
        _whole(lambda x, y: x / jnp.sqrt(y + 1e-16)),
    ),
    "the largest numbers of a narrow format": (
        dict(x=kt.array("n", "float32", domain=(-1e6, 1e6)), tolerance=kt.tolerance.exact()),
        lambda x: np.clip(x, -448, 448),
        _whole(lambda x: jnp.clip(x, -448, 448)),
        _whole(lambda x: jnp.where(jnp.abs(x) >= 256, 448 * jnp.sign(x), x)),
    ),
    "the ends of a wide domain in all arguments": (
        dict(x=WIDE, y=WIDE, dims=FEW),
        lambda x, y: np.sign(x) * np.sign(y),
        _whole(lambda x, y: jnp.sign(x) * jnp.sign(y)),
        _whole(lambda x, y: jnp.where(jnp.isinf((x * x) * (y * y)), 0, jnp.sign(x) * jnp.sign(y))),
    ),
    "a NaN whose sign bit is set": (
        dict(
            x=kt.array("m n", "float32", domain=(-np.inf, np.inf)),  # JAX's interpreter flushes subnormal numbers
            dims=dict(m=kt.dim(values=(3,)), **FEW),
        ),
        lambda x: np.broadcast_to(x.max(axis=1, keepdims=True), x.shape),
        _largest(True),
        _largest(False),
    ),
    "lengths of several blocks where all arrays follow from others": (
        dict(x=kt.derived("n", lambda rng, n: rng.uniform(1, 2, n), dtypes="float32"), dims=BLOCKS),
        lambda x: x,
        _scaled(1.0),
        _scaled(0.5),
    ),
    "lengths of several blocks where all arrays are keys": (
        dict(key=kt.key(), n=kt.dim_size("n"), dims=BLOCKS),
        lambda key, n: np.ones(n),
        lambda key, n: _blocks(1, 1, n),
        lambda key, n: _blocks(1, 2, n),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANNED)
def test_wrong_kernels_are_found_by_two_families_or_signatures_and_right_ones_by_none(what: str) -> None:
    declared, oracle, right, wrong = PLANNED[what]
    assert not kt.check(kt.oracle_for(right, **declared)(oracle), depth="quick").findings
    for seed in (0, 1, 2):
        assert found_twice(kt.oracle_for(wrong, **declared)(oracle), seed)


def test_derived_floats_are_not_judged_bit_for_bit() -> None:
    weights = kt.derived("n", lambda rng, n: rng.uniform(1, 2, n), dtypes="float32")

    def dot(x: jax.Array, w: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct(x.shape[:1], x.dtype)
        return whole(lambda x, w: jnp.sum(x[...] * w[...], axis=1), out, x, w)

    made = kt.oracle_for(dot, x=kt.array("m n", "float32"), w=weights)(lambda x, w: (x * w).sum(axis=1))
    assert not kt.check(made, depth="quick").findings


def test_backends_that_run_few_cases_get_lengths_other_than_zero() -> None:
    kernel = _whole(lambda x, count: jnp.where(jnp.arange(x.shape[0]) < count, x, 0))
    made = kt.oracle_for(kernel, x=VECTOR, count=kt.lengths("1", up_to="n"))(
        lambda x, count: np.where(np.arange(x.shape[0]) < count, x, 0)
    )
    seen: set[str] = set()
    for group in GROUPS:
        covered: set[str] = set()
        for case in value_cases(made, "p", "float32", group, 0, "quick"):
            if case.family.name not in covered:  # as costly backends choose
                covered.add(case.family.name)
                count, n = int(case.fill(made)["count"][0]), dict(case.signature.dims)["n"]
                seen.add("none" if count == 0 else "all" if count == n else "some")
    assert seen == {"none", "some", "all"}
