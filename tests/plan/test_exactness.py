"""How large exact integers are: what the oracle sums, with nothing declared of it."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.plan.signatures import Signature
from kerneltest.plan.slots import exact_limit
from tests.sample import whole

M, K, N = 3, 50, 7


def _limit(oracle: Callable[..., Any], dtype: str = "float32", k: int = K, **arguments: Any) -> int:
    arguments = arguments or {"x": kt.array("m k", dtype), "y": kt.array("k n", dtype)}
    pairing = kt.oracle_for(lambda **_: None, arguments=arguments)(oracle)
    dims = tuple({"m": M, "k": k, "n": N}.items())
    return exact_limit(pairing, Signature(dims, tuple((path, dtype) for path in pairing.leaves), (), dtype))


def _of(terms: int) -> int:
    return math.isqrt(2**24 // terms)


def _block_by_block(x: Any, y: Any) -> Any:
    total = np.zeros((x.shape[0], y.shape[1]))
    for start in range(0, x.shape[1], 10):
        total = total + x[:, start : start + 10] @ y[start : start + 10]
    return total


@pytest.mark.parametrize(
    ("oracle", "terms"),
    [
        (lambda x, y: x @ y, K),
        (lambda x, y: np.einsum("mk,kn->mn", x, y), K),
        (_block_by_block, K),
        (lambda x, y: np.where(np.arange(N) > 2, x @ y, -np.inf), K),
        (lambda x, y: 4 * (x @ y), 4 * K),
        (lambda x, y: (x @ y).sum(axis=0), M * K),
        (lambda x, y: np.tanh(x @ y), K),
        (lambda x, y: x.sum(), K * N),  # no product of matrices: the size of the largest argument
        (lambda x, y: [[float(each) for each in row] for row in x] @ y, K * N),  # not followed
    ],
)
def test_it_counts_what_the_oracle_sums(oracle: Callable[..., Any], terms: int) -> None:
    assert _limit(oracle) == _of(terms)


def test_operands_fit_their_format() -> None:
    assert _limit(lambda x, y: x @ y, "bfloat16") == 2**8 // 2
    assert _limit(lambda x, y: x @ y, "float16") == math.isqrt(2**15 // K)
    assert _limit(lambda x, y: x @ y, k=0) == 2**11 // 2


def test_lengths_make_sums_the_longest() -> None:
    def oracle(x: Any, y: Any, size: Any) -> Any:
        return np.where(np.arange(x.shape[1]) < size[:, None], x, 0) @ y

    size = kt.lengths("m", up_to="k")
    assert _limit(oracle, x=kt.array("m k", "float32"), y=kt.array("k n", "float32"), size=size) == _of(K)


@pytest.mark.parametrize(("low", "is_bitwise"), [(0.25, True), (0.1, False)])
def test_numbers_that_a_domain_makes_long_are_judged_by_a_bound(low: float, is_bitwise: bool) -> None:
    def summed(x: Any, s: Any) -> Any:
        return whole(lambda x, s: jnp.sum(x[...] * s[...])[None], jax.ShapeDtypeStruct((1,), x.dtype), x, s)

    arguments = {"x": kt.array("n", "float32", domain=(-99, 99)), "s": kt.array("1", "float32", domain=(low, 4))}
    pairing = kt.oracle_for(summed, arguments=arguments)(lambda x, s: np.sum(x * s)[None])
    result = kt.check(pairing, backends=["interpret"], depth="quick")
    assert not result.findings
    assert is_bitwise == all(r.tolerance == "bit for bit" for r in result.records if r.group == "structural")
