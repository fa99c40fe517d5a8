"""Oracles by np.linalg: LAPACK in float32 is within their bounds, and what loses or mistakes more is not."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.core.dtypes import Array
from kerneltest.core.precision import FLOAT32
from kerneltest.declare.array_structure import lower_triangular
from kerneltest.numerics.bounds import OracleCase
from kerneltest.numerics.rounding_bounds import RoundingLimit, rounding_bounds
from kerneltest.numerics.tracked import calls_linear_algebra, instrument
from tests.lapack import Lapack
from tests.numerics.tracking import PLAIN, samples_of, silent

L: Any = np.linalg
SIZE = 8


def _inputs() -> dict[str, Array]:
    rng = np.random.default_rng(3)
    one, batch = rng.standard_normal((SIZE, SIZE)), rng.standard_normal((5, SIZE, SIZE))
    q, spread = L.qr(one)[0], np.logspace(0, -4, SIZE)
    tall = rng.standard_normal((13, SIZE))
    return {
        "one": one,
        "batch": batch,
        "ill": q * spread @ L.qr(batch[0])[0],  # condition 1e4
        "definite": batch @ batch.swapaxes(-1, -2) + np.eye(SIZE),
        "graded": (q * spread) @ q.T,
        "symmetric": batch + batch.swapaxes(-1, -2),
        "tall": tall,
        "rank": tall @ np.outer(np.arange(SIZE) % 3, np.ones(SIZE)) + tall[:, :1],  # rank 2
        "wide": tall.T * np.exp2(np.arange(SIZE) * 2)[:, None],
        "lower": lower_triangular(one) * np.exp2(np.arange(SIZE) * 5)[:, None],
        "right": rng.standard_normal((SIZE, 2)),
        "vectors": rng.standard_normal((6, 3)),
    }


INPUTS = {name: value.astype(np.float32) for name, value in _inputs().items()}


def _positive_r(a: Any) -> Any:
    r = L.qr(a)[1]
    return np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1)[..., None] * r


def _projector(a: Any) -> Any:
    vectors = L.eigh(a)[1][..., -1:]
    return vectors * np.swapaxes(vectors, -1, -2)


def _kalman(z: Any) -> Any:
    f, h, q = np.array([[1, 0.5], [0, 1]]), np.array([[1.0, 0]]), np.array([[4e-4, 1e-3], [1e-3, 5e-3]])
    x, p, found = np.zeros((2, z.shape[1])), 10 * np.eye(2), []
    for i in range(z.shape[0]):
        x, p = f @ x, f @ p @ f.T + q
        k = p @ h.T @ L.inv(h @ p @ h.T + 0.25)
        x, p = x + k @ (z[i][None] - h @ x), (np.eye(2) - k @ h) @ p
        found.append(x[0])
    return np.stack(found)


# By name: the oracle, and its inputs.
ORACLES: dict[str, tuple[Callable[..., Any], str]] = {
    "inv": (lambda a: L.inv(a), "one"),
    "inv_batch": (lambda a: L.inv(a), "batch"),
    "inv_ill": (lambda a: L.inv(a), "ill"),
    "inv_lower": (lambda a: L.inv(a), "lower"),
    "solve": (lambda a, b: L.solve(a, b), "one right"),
    "solve_ill": (lambda a, b: L.solve(a, b), "ill right"),
    "solve_batch": (lambda a, b: L.solve(a, b), "batch right"),
    "solve_lower": (lambda a, b: L.solve(a, b), "lower right"),
    "det": (lambda a: L.det(a), "batch"),
    "det_ill": (lambda a: L.det(a), "ill"),
    "slogdet": (lambda a: L.slogdet(a)[1], "batch"),
    "cholesky": (lambda a: L.cholesky(a), "definite"),
    "cholesky_graded": (lambda a: L.cholesky(a), "graded"),
    "qr": (_positive_r, "tall"),
    "qr_batch": (_positive_r, "batch"),
    "qr_wide": (lambda a: _positive_r(np.swapaxes(a, -1, -2)), "wide"),
    "qr_q": (lambda a: L.qr(a)[0], "tall"),
    "eigvalsh": (lambda a: L.eigvalsh(a), "symmetric"),
    "eigvalsh_graded": (lambda a: L.eigvalsh(a), "graded"),
    "eigh": (_projector, "symmetric"),
    "svdvals": (lambda a: L.svd(a, compute_uv=False), "tall"),
    "svdvals_ill": (lambda a: L.svdvals(a), "ill"),
    "low_rank": (lambda a: (L.svd(a, full_matrices=False)[0] ** 2)[..., :3], "tall"),
    "pinv": (L.pinv, "tall"),
    "pinv_rank": (lambda a: L.pinv(a, rcond=1e-4), "rank"),
    "lstsq": (lambda a, b: L.lstsq(a[:, :4], b, rcond=1e-4)[0], "one right"),
    "norm_2": (lambda a: L.norm(a, 2, axis=(-2, -1)), "batch"),
    "norm_nuc": (lambda a: L.norm(a, "nuc"), "tall"),
    "norm_1": (lambda a: L.norm(a, 1), "tall"),
    "norm_p": (lambda a: L.norm(a, 3, axis=-1), "tall"),
    "power": (lambda a: L.matrix_power(a, 5), "batch"),
    "power_inverse": (lambda a: L.matrix_power(a, -2), "batch"),
    "cross": (lambda v: np.cross(v, v[::-1] + 1), "vectors"),
    "kalman": (_kalman, "wide"),
}
each_oracle = pytest.mark.parametrize("name", ORACLES)


def _of(name: str) -> tuple[Callable[..., Array], list[Array]]:
    oracle, names = ORACLES[name]
    return oracle, [INPUTS[each] for each in names.split()]


def _limit(oracle: Callable[..., Any], inputs: list[Array]) -> tuple[Array, RoundingLimit]:
    leaves = {str(i): each.astype(np.float64) for i, each in enumerate(inputs)}
    copied = instrument(oracle)

    def evaluate(given: Mapping[str, Any]) -> tuple[Any, ...]:
        return (copied(*given.values()),)

    case = OracleCase(evaluate, leaves, evaluate(leaves), dict.fromkeys(leaves, FLOAT32), evaluate, oracle)
    return case.values[0], rounding_bounds(case, FLOAT32, exact_dots=False)[0]


@each_oracle
def test_lapack_in_float32_is_within_the_bound_and_a_step_in_bfloat16_is_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle, inputs = _of(name)
    value, limit = _limit(oracle, inputs)
    bound = limit.at(PLAIN)
    assert limit.note(PLAIN) == ""
    assert limit.is_sampled(PLAIN)
    assert np.isfinite(bound).all()
    allowed = bound + np.spacing(np.abs(value).astype(np.float32)) / 2
    monkeypatch.setitem(globals(), "L", Lapack)
    with np.errstate(all="ignore"):
        assert (np.abs(np.asarray(oracle(*inputs), np.float64) - value) <= allowed).all()
        coarse = [each.astype(ml_dtypes.bfloat16).astype(np.float32) for each in inputs]
        assert (np.abs(np.asarray(oracle(*coarse), np.float64) - value) > allowed).any()
        assert (np.abs(-value - value) > allowed).any()  # a sign


@each_oracle
def test_the_row_without_rounding_is_that_of_numpy(name: str) -> None:
    oracle, inputs = _of(name)
    leaves = {f"x{i}": each.astype(np.float64) for i, each in enumerate(inputs)}
    found = samples_of(lambda **given: oracle(*given.values()), leaves, silent(3))
    np.testing.assert_allclose(found, np.broadcast_to(oracle(*leaves.values()), found.shape), rtol=1e-9, atol=1e-12)


def _without_pivots(a: Array, b: Array) -> Array:
    a, b = a.copy(), b.copy()
    for i in range(len(a)):
        for j in range(i + 1, len(a)):
            factor = a[j, i] / a[i, i]
            a[j], b[j] = a[j] - factor * a[i], b[j] - factor * b[i]
    for i in reversed(range(len(a))):
        b[i] = (b[i] - a[i, i + 1 :] @ b[i + 1 :]) / a[i, i]
    return b


def test_elimination_without_pivots_loses_more() -> None:
    a, b = INPUTS["one"].copy(), INPUTS["right"]
    a[0, 0] = 1e-5
    value, limit = _limit(lambda a, b: L.solve(a, b), [a, b])
    assert (np.abs(_without_pivots(a, b) - value) > limit.at(PLAIN)).any()


def test_a_triangular_matrix_is_as_sharp_as_substitution() -> None:
    """Each element counts by itself: rows of other sizes do not widen the bound."""
    value, limit = _limit(lambda a, b: L.solve(a, b), [INPUTS["lower"], INPUTS["right"]])
    assert np.max(limit.at(PLAIN) / np.abs(value).max(axis=1, keepdims=True)) < 2e-4


def _by_helper(a: Any) -> Any:
    return _positive_r(a)


@pytest.mark.parametrize(
    ("oracle", "calls"),
    [(_positive_r, True), (_by_helper, True), (lambda a: np.linalg.eig(a)[0].real, True), (lambda a: a @ a, False)],
)
def test_an_oracle_that_cannot_be_sampled_is_known_to_call_linear_algebra(oracle: Any, calls: bool) -> None:
    assert calls_linear_algebra(oracle) is calls


def test_the_inputs_of_untracked_linear_algebra_are_moved_by_their_columns() -> None:
    """The small eigenvalue of a graded matrix is as uncertain as a rounding of the largest element."""
    matrix = INPUTS["graded"]
    value, limit = _limit(lambda a: np.sort(np.linalg.eig(a)[0].real), [matrix])
    bound = limit.at(PLAIN)
    assert not limit.is_sampled(PLAIN)
    assert (np.abs(L.eigvalsh(matrix) - value) <= bound).all()
    assert bound.max() < 2e-4
    assert bound[0] > 2.0**-24 * np.abs(matrix).max()
