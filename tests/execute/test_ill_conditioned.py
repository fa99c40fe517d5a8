"""Oracles that are singular or lose their digits in float64: right kernels pass, wrong ones are found."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.details import ErrorCause
from kerneltest.core.verdicts import Verdict
from tests.found import findings
from tests.sample import whole

N = 10


def _substituted(sign: float) -> Any:
    def kernel(matrix: jax.Array, right: jax.Array) -> jax.Array:
        def body(m_ref: Any, b_ref: Any) -> jax.Array:
            m, b = m_ref[...], b_ref[...]
            found = jnp.zeros(N)
            for i in range(N):
                found = found.at[i].set((b[i] - sign * jnp.sum(m[i] * found)) / m[i, i])
            return found

        return whole(body, right, matrix, right)

    return kernel


def _graded(values: Any) -> Any:
    """Lower triangular, with a condition far above 1e16."""
    lower = np.tril(values, -1)
    sizes = np.abs(lower).sum(axis=-1)
    return lower + np.diag(np.where(sizes > 0, np.float32(sizes) * 2.0**-11, 1.0))


@pytest.mark.parametrize(("sign", "right"), [(1.0, True), (-1.0, False)])
def test_an_oracle_without_digits_accuses_nobody(sign: float, right: bool) -> None:
    pairing = kt.oracle_for(
        _substituted(sign),
        matrix=kt.array(f"{N} {N}", "float32", structure=_graded, domain=(-10, 10)),
        right=kt.array(f"{N}", "float32", domain=(-10, 10)),
    )(lambda matrix, right: np.linalg.solve(matrix, right))
    if not right:
        assert next(findings(pairing, ["interpret"]), None)
    else:
        result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
        assert not result.findings
        count = sum(each.doubted for each in result.records)
        assert count
        assert f"{count:,} elements of " in repr(result)
        assert "cases are not compared: the oracle loses its digits there, in float64" in repr(result)


def _inverse(swap: bool) -> Any:
    def kernel(x: jax.Array) -> jax.Array:
        def body(ref: Any) -> jax.Array:
            a, b, c, d = (ref[..., i, j] for i in range(2) for j in range(2))
            rows = jnp.stack([jnp.stack([d, b if swap else -b], -1), jnp.stack([-c, a], -1)], -2)
            return rows / (a * d - b * c)[..., None, None]

        return whole(body, x, x)

    return kernel


@pytest.mark.parametrize(("swap", "right"), [(False, True), (True, False)])
def test_singular_inputs_are_no_mistake_of_the_oracle(swap: bool, right: bool) -> None:
    pairing = kt.oracle_for(_inverse(swap), x=kt.array("4 2 2", "float32", domain=(-10, 10)))(
        lambda x: np.linalg.inv(x)
    )
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    assert Verdict.ORACLE_ERROR not in {each.verdict for each in result.findings}
    assert (not result.findings) is right, result.findings[:1]
    assert sum(each.compared for each in result.records) > 100


def test_a_mistake_of_the_oracle_is_still_one() -> None:
    pairing = kt.oracle_for(_inverse(False), x=kt.array("4 2 2", "float32"))(lambda x: np.linalg.inv(x[0, 0]))
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    assert {each.verdict for each in result.findings} == {Verdict.ORACLE_ERROR}


def _variance(x: Any) -> Any:
    return (x * x).mean(axis=-1) - x.mean(axis=-1) ** 2


def _untracked(x: Any) -> Any:
    return np.apply_along_axis(np.var, -1, x)


def test_no_formula_is_unstable_beside_an_oracle_whose_rounding_is_unknown() -> None:
    def kernel(x: jax.Array) -> jax.Array:
        return whole(lambda ref: _variance(ref[...]), jax.ShapeDtypeStruct((4,), x.dtype), x)

    pairing = kt.oracle_for(kernel, x=kt.array("4 32", "float32", domain=(-10, 10)))(_untracked)
    result = kt.check(pairing, backends=["interpret"], depth="quick", minimize=0)
    causes = {getattr(getattr(each.record.detail, "cause", None), "what", None) for each in result.findings}
    assert ErrorCause.UNSTABLE not in causes
