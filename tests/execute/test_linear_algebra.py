"""Oracles by np.linalg: no right kernel is accused, LAPACK in float32 among them, and each wrong one is found.

`make test` runs those of a few oracles.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.linalg

import kerneltest as kt
from tests.found import findings, records
from tests.lapack import Lapack
from tests.sample import whole

S = kt.structure
Function = Callable[..., Any]

# Structures: each leaves arrays alone that have it.


def _svd(values: Any, change: Function, keep: Function) -> Any:
    """Matrices with other singular values; the same if theirs are kept."""
    u, s, v = np.linalg.svd(values, full_matrices=False)
    largest = np.where(s[..., :1] > 0, s[..., :1], 1.0)
    return values if np.all(keep(s / largest)) else (u * (largest * change(s / largest))[..., None, :]) @ v


def well(values: Any) -> Any:
    return _svd(values, lambda s: np.maximum(s, 0.1), lambda s: s >= 0.09)


def ill(values: Any) -> Any:
    """A condition of 1e4."""
    return _svd(values, _graded, lambda s: np.isclose(s, _graded(s), rtol=0.03, atol=0))


def _graded(s: Any) -> Any:
    return np.broadcast_to(np.logspace(0, -4, s.shape[-1]), s.shape)


def rank_2(values: Any) -> Any:
    return _svd(values, lambda s: s * (np.arange(s.shape[-1]) < 2), lambda s: s[..., 2:] < 1e-6)


def ill_definite(values: Any) -> Any:
    """Symmetric, with positive eigenvalues and a condition of 1e4."""
    mirrored = S.symmetric(values)
    size, q = np.linalg.eigh(mirrored)
    largest = np.abs(size).max(axis=-1, keepdims=True)
    wanted = np.where(largest > 0, largest, 1.0) * _graded(size)[..., ::-1]
    if np.allclose(values, mirrored) and np.allclose(size, wanted, rtol=0.03, atol=0):
        return values
    return S.symmetric((q * wanted[..., None, :]) @ np.swapaxes(q, -1, -2))


def small_pivot(values: Any) -> Any:
    return _with_corner(values, 2.0**-12)


def large_pivot(values: Any) -> Any:
    return _with_corner(values, 2.0**12)


def _with_corner(values: Any, size: float) -> Any:
    made = np.array(values)
    made[..., 0, 0] = size * np.abs(made[..., 1:, 0]).max(axis=-1)
    return made


# Algorithms, in JAX.


def _pivoted(m: Any, i: int, pivots: bool) -> tuple[Any, Any]:
    """Rows with the pivot of a column in its place, and the sign of the exchange."""
    if not pivots:
        return m, 1.0
    n = m.shape[0]
    p = jnp.argmax(jnp.where(jnp.arange(n) >= i, jnp.abs(m[:, i]), -1.0))
    return m.at[i].set(m[p]).at[p].set(m[i]), jnp.where(p == i, 1.0, -1.0)


def eliminate(a: Any, b: Any, pivots: bool = True) -> Any:
    n, right = a.shape[0], b[:, None] if b.ndim == 1 else b
    m = jnp.concatenate([a, right], 1)
    for i in range(n):
        m, _ = _pivoted(m, i, pivots)
        m = m - jnp.where(jnp.arange(n) > i, m[:, i] / m[i, i], 0.0)[:, None] * m[i][None]
    x = jnp.zeros_like(right)
    for i in reversed(range(n)):
        x = x.at[i].set((m[i, n:] - jnp.sum(m[i, :n][:, None] * x, 0)) / m[i, i])
    return x[:, 0] if b.ndim == 1 else x


def gauss_jordan(a: Any, pivots: bool = True) -> Any:
    n = a.shape[0]
    m = jnp.concatenate([a, jnp.eye(n, dtype=a.dtype)], 1)
    for i in range(n):
        m, _ = _pivoted(m, i, pivots)
        row = m[i] / m[i, i]
        m = (m - m[:, i][:, None] * row[None]).at[i].set(row)
    return m[:, n:]


def determinant(a: Any, pivots: bool = True) -> Any:
    n, sign = a.shape[0], 1.0
    for i in range(n):
        a, exchanged = _pivoted(a, i, pivots)
        factor = jnp.where(jnp.arange(n) > i, a[:, i] / jnp.where(a[i, i] == 0, 1.0, a[i, i]), 0.0)
        a, sign = a - factor[:, None] * a[i][None], sign * exchanged
    return (sign * jnp.prod(jnp.diagonal(a)))[None]


def cofactors(a: Any) -> Any:
    (a, b, c), (d, e, f), (g, h, i) = ([a[..., row, column] for column in range(3)] for row in range(3))
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def cholesky(a: Any, dtype: Any = None) -> Any:
    rows, factor = jnp.arange(a.shape[-1]), jnp.zeros_like(a)
    for j in range(a.shape[-1]):
        pivot = jnp.sqrt(a[..., j, j] - jnp.sum(factor[..., j, :] ** 2, -1))[..., None]
        column = (a[..., :, j] - jnp.sum(factor * factor[..., j : j + 1, :], -1)) / pivot
        column = column.astype(dtype or a.dtype).astype(a.dtype)
        factor = factor.at[..., :, j].set(jnp.where(rows > j, column, jnp.where(rows == j, pivot, 0.0)))
    return factor


def householder(a: Any, cancels: bool = False) -> Any:
    m, n = a.shape
    rows = jnp.arange(m)
    for j in range(min(m - 1, n)):
        x = jnp.where(rows >= j, a[:, j], 0.0)
        size = jnp.sqrt(jnp.sum(x * x)) * jnp.where(a[j, j] < 0, -1.0, 1.0)
        v = jnp.where(rows == j, x - size if cancels else x + size, x)
        square = jnp.sum(v * v)
        beta = jnp.where(square > 0, 2 / jnp.where(square > 0, square, 1.0), 0.0)
        a = a - beta * v[:, None] * jnp.sum(v[:, None] * a, axis=0)[None, :]
    r = jnp.triu(a[: min(m, n)])
    return jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)[:, None] * r


def gram_schmidt(a: Any, modified: bool = True) -> Any:
    m, n = a.shape
    q, r = jnp.zeros((m, n), a.dtype), jnp.zeros((n, n), a.dtype)
    for j in range(n):
        v = a[:, j]
        for i in range(j):
            r = r.at[i, j].set(jnp.sum(q[:, i] * (v if modified else a[:, j])))
            v = v - r[i, j] * q[:, i]
        r = r.at[j, j].set(jnp.sqrt(jnp.sum(v * v)))
        q = q.at[:, j].set(v / jnp.where(r[j, j] > 0, r[j, j], 1.0))
    return r


def _rotation(x: Any, y: Any, xy: Any) -> tuple[Any, Any]:
    """Cosine and sine of the rotation that makes the product of two rows vanish."""
    theta = (y - x) / jnp.where(xy == 0, 1.0, 2 * xy)
    large = jnp.abs(theta) > 1e10
    near = jnp.where(large, 1.0, theta)
    t = jnp.where(near < 0, -1.0, 1.0) / (jnp.abs(near) + jnp.sqrt(near * near + 1))
    t = jnp.where(xy == 0, 0.0, jnp.where(large, 0.5 / jnp.where(theta == 0, 1.0, theta), t))
    c = 1 / jnp.sqrt(t * t + 1)
    return c, t * c


def _sweeps(a: Any, rotate: Function, sweeps: int) -> Any:
    pairs = [(p, q) for p in range(a.shape[1]) for q in range(p + 1, a.shape[1])]

    def sweep(_: Any, a: Any) -> Any:
        for p, q in pairs:
            a = rotate(a, p, q)
        return a

    return jax.lax.fori_loop(0, sweeps, sweep, a)


def jacobi(a: Any, sweeps: int = 5) -> Any:
    def rotate(a: Any, p: int, q: int) -> Any:
        c, s = _rotation(a[p, p], a[q, q], a[p, q])
        a = a.at[p].set(c * a[p] - s * a[q]).at[q].set(s * a[p] + c * a[q])
        return a.at[:, p].set(c * a[:, p] - s * a[:, q]).at[:, q].set(s * a[:, p] + c * a[:, q])

    return jnp.sort(jnp.diagonal(_sweeps(a, rotate, sweeps)))


def one_sided_jacobi(a: Any, sweeps: int = 5) -> Any:
    def rotate(a: Any, p: int, q: int) -> Any:
        x, y = a[:, p], a[:, q]
        c, s = _rotation(jnp.sum(x * x), jnp.sum(y * y), jnp.sum(x * y))
        return a.at[:, p].set(c * x - s * y).at[:, q].set(s * x + c * y)

    return jnp.sort(jnp.sqrt(jnp.sum(_sweeps(a, rotate, sweeps) ** 2, 0)))[::-1]


# Oracles, by `linalg`.


def inv(a: Any, linalg: Any = np.linalg) -> Any:
    return linalg.inv(a)


def solve(a: Any, b: Any, linalg: Any = np.linalg) -> Any:
    return linalg.solve(a, b)


def det(a: Any, linalg: Any = np.linalg) -> Any:
    return linalg.det(a) if a.ndim > 2 else linalg.det(a)[None]


def logdet(a: Any, linalg: Any = np.linalg) -> Any:
    return linalg.slogdet(a)[1]


def lower(a: Any, linalg: Any = np.linalg) -> Any:
    return linalg.cholesky(a)


def _signs(r: Any) -> Any:
    return np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1, 1)


def qr_r(a: Any, linalg: Any = np.linalg) -> Any:
    r = linalg.qr(a)[1]
    return _signs(r)[..., None] * r


def qr_q(a: Any, linalg: Any = np.linalg) -> Any:
    q, r = linalg.qr(a)
    return q * _signs(r)[..., None, :]


def eigenvalues(a: Any, linalg: Any = np.linalg) -> Any:
    return linalg.eigvalsh(a)


def projector(a: Any, linalg: Any = np.linalg) -> Any:
    vector = linalg.eigh(a)[1][..., -1:]
    return vector * np.swapaxes(vector, -1, -2)


def exponential(a: Any, linalg: Any = np.linalg) -> Any:
    size, q = linalg.eigh(a / (1 + np.abs(a).max(axis=(-2, -1), keepdims=True)))
    return (q * np.exp(size)[..., None, :]) @ np.swapaxes(q, -1, -2)


def singular_values(a: Any, linalg: Any = np.linalg) -> Any:
    return linalg.svd(a, compute_uv=False)


def low_rank(a: Any, linalg: Any = np.linalg) -> Any:
    u, s, v = linalg.svd(a, full_matrices=False)
    return (u[..., :2] * s[..., None, :2]) @ v[..., :2, :]


def least_squares(a: Any, b: Any, linalg: Any = np.linalg) -> Any:
    return linalg.lstsq(a, b, rcond=1e-4)[0]


def pseudo_inverse(a: Any, linalg: Any = np.linalg) -> Any:
    return linalg.pinv(a, rcond=1e-4)


# Kernels: LAPACK on the host, or an algorithm on the device.


def _host(function: Function) -> Function:
    def kernel(*arrays: Any) -> Any:
        regular = [np.ones(x.shape) + 10 * np.eye(*x.shape[-2:]) if x.ndim > 1 else np.ones(x.shape) for x in arrays]
        out = jax.ShapeDtypeStruct(function(*regular).shape, arrays[0].dtype)
        found = jax.pure_callback(lambda *x: np.asarray(function(*map(np.asarray, x)), x[0].dtype), out, *arrays)
        return whole(lambda ref: ref[...], out, found)

    return kernel


def _lapack(oracle: Function) -> Function:
    return _host(lambda *arrays: oracle(*arrays, linalg=Lapack))


def _coarse(oracle: Function) -> Function:
    """LAPACK of what was stored in bfloat16."""

    def run(a: Any, *others: Any) -> Any:
        coarse = a.astype(ml_dtypes.bfloat16).astype(np.float32) if a.dtype == np.float32 else a
        return oracle(coarse, *others, linalg=Lapack)

    return _host(run)


def _sign(oracle: Function) -> Function:
    def run(*arrays: Any) -> Any:
        found = np.array(oracle(*arrays, linalg=Lapack))
        found[..., 0] *= -1
        return found

    return _host(run)


def _own(function: Function, **options: Any) -> Function:
    def kernel(*arrays: Any) -> Any:
        def run(*given: Any) -> Any:
            return function(*given, **options)

        return whole(lambda *refs: run(*(ref[...] for ref in refs)), jax.eval_shape(run, *arrays), *arrays)

    return kernel


def _a(shape: str, structure: Any = None) -> Any:
    return kt.array(shape, "float32", domain=(-10, 10), **({"structure": structure} if structure else {}))


SIGN, COARSE = {"sign": _sign}, {"coarse": _coarse}
PIVOTS, HALF = {"pivots": False}, {"dtype": jnp.bfloat16}

# By name: the oracle, its arguments, own algorithms, and twins: made of the oracle, or an algorithm with options.
TABLE: dict[str, tuple[Function, list[Any], list[Function], dict[str, Any]]] = {
    "inv": (inv, [_a("5 5", well)], [gauss_jordan], COARSE),
    "inv_free": (inv, [_a("4 4")], [gauss_jordan], SIGN),
    "inv_batch": (inv, [_a("4 3 3", well)], [], SIGN),
    "inv_ill": (inv, [_a("5 5", ill)], [gauss_jordan], COARSE | SIGN),
    "inv_lower": (inv, [_a("5 5", S.lower_triangular)], [gauss_jordan], COARSE),
    "inv_definite": (inv, [_a("3 4 4", S.positive_definite)], [], COARSE | SIGN),
    "inv_pivot": (inv, [_a("4 4", small_pivot)], [], {"pivot": (gauss_jordan, PIVOTS)}),
    "solve": (solve, [_a("5 5", well), _a("5")], [eliminate], COARSE),
    "solve_batch": (solve, [_a("3 4 4", well), _a("3 4 2")], [], SIGN),
    "solve_ill": (solve, [_a("5 5", ill), _a("5 2")], [eliminate], COARSE | SIGN),
    "solve_definite": (solve, [_a("4 4", ill_definite), _a("4 2")], [eliminate], COARSE),
    "solve_upper": (solve, [_a("5 5", S.upper_triangular), _a("5 2")], [eliminate], COARSE),
    "solve_pivot": (solve, [_a("4 4", small_pivot), _a("4")], [], {"pivot": (eliminate, PIVOTS)}),
    "det": (det, [_a("4 4")], [determinant], COARSE),
    "det_batch": (det, [_a("6 3 3")], [cofactors], SIGN),
    "det_ill": (det, [_a("3 4 4", ill)], [], COARSE),
    "det_pivot": (det, [_a("4 4", small_pivot)], [], {"pivot": (determinant, PIVOTS)}),
    "slogdet": (logdet, [_a("3 4 4", well)], [], COARSE),
    "cholesky": (lower, [_a("5 5", S.positive_definite)], [cholesky], {"step": (cholesky, HALF)}),
    "cholesky_batch": (lower, [_a("3 4 4", S.positive_definite)], [], COARSE | SIGN),
    "cholesky_ill": (lower, [_a("5 5", ill_definite)], [cholesky], {"step": (cholesky, HALF)} | COARSE),
    "qr": (qr_r, [_a("7 4")], [householder], COARSE),
    "qr_wide": (qr_r, [_a("3 6")], [householder], COARSE),
    "qr_ill": (qr_r, [_a("7 4", ill)], [householder, gram_schmidt], {"classical": (gram_schmidt, {"modified": False})}),
    "qr_cancels": (qr_r, [_a("7 4", large_pivot)], [], {"cancels": (householder, {"cancels": True})}),
    "qr_q": (qr_q, [_a("7 4", well)], [], COARSE | SIGN),
    "eigvalsh": (eigenvalues, [_a("4 4", S.symmetric)], [jacobi], {"sweep": (jacobi, {"sweeps": 2})}),
    "eigvalsh_batch": (eigenvalues, [_a("3 4 4", S.symmetric)], [], COARSE | SIGN),
    "eigvalsh_ill": (eigenvalues, [_a("4 4", ill_definite)], [jacobi], {"sweep": (jacobi, {"sweeps": 2})} | COARSE),
    "eigh": (exponential, [_a("4 4", S.symmetric)], [], COARSE | SIGN),
    "eigh_batch": (projector, [_a("3 4 4", S.symmetric)], [], COARSE),
    "svd": (singular_values, [_a("6 4")], [one_sided_jacobi], {"sweep": (one_sided_jacobi, {"sweeps": 2})} | COARSE),
    "svd_wide": (singular_values, [_a("2 3 6")], [], COARSE),
    "svd_rank": (singular_values, [_a("6 4", rank_2)], [one_sided_jacobi], COARSE),
    "low_rank": (low_rank, [_a("6 4")], [], COARSE | SIGN),
    "lstsq": (least_squares, [_a("7 3", well), _a("7 2")], [], COARSE | SIGN),
    "lstsq_wide": (least_squares, [_a("3 6", well), _a("3 2")], [], COARSE),
    "lstsq_rank": (least_squares, [_a("7 4", rank_2), _a("7 2")], [], COARSE | SIGN),
    "pinv": (pseudo_inverse, [_a("7 3", well)], [], COARSE | SIGN),
    "pinv_wide": (pseudo_inverse, [_a("2 3 6", well)], [], COARSE),
    "pinv_rank": (pseudo_inverse, [_a("6 4", rank_2)], [], COARSE | SIGN),
}
QUICK = "inv_lower det_batch cholesky_batch qr_wide eigvalsh_batch svd_wide lstsq_rank pinv_rank".split()


def _kernels(name: str) -> dict[str, tuple[Function, bool]]:
    oracle, _, own, twins = TABLE[name]
    rights = {"lapack": _lapack(oracle)} | {each.__name__: _own(each) for each in own}
    wrongs = {
        label: _own(made[0], **made[1]) if isinstance(made, tuple) else made(oracle) for label, made in twins.items()
    }
    return {k: (v, True) for k, v in rights.items()} | {k: (v, False) for k, v in wrongs.items()}


CASES = [
    pytest.param(name, kernel, right, id=f"{name}-{label}", marks=[] if name in QUICK else [pytest.mark.slow])
    for name in TABLE
    for label, (kernel, right) in _kernels(name).items()
]


@pytest.mark.parametrize(("name", "kernel", "right"), CASES)
def test_right_kernels_pass_and_twins_are_found(name: str, kernel: Function, right: bool) -> None:
    oracle, arguments, *_ = TABLE[name]
    pairing, compared = _pairing(oracle, kernel, arguments), 0
    for record in records(pairing, ["interpret"]):
        compared += record.compared
        if record.verdict.is_finding:
            assert not right, record.message
            return
    assert right
    assert compared > 15


@pytest.mark.parametrize(
    ("oracle", "driver"),
    [(eigenvalues, "evr"), (projector, "evr"), (exponential, "evd")],  # recomposed of "evr", it may lose more
)
def test_eigenvalues_and_vectors_may_lose_what_lapack_loses(oracle: Function, driver: str) -> None:
    class Driver:
        @staticmethod
        def eigh(a: Any) -> Any:
            return scipy.linalg.eigh(a, lower=False, driver=driver)

        @staticmethod
        def eigvalsh(a: Any) -> Any:
            return Driver.eigh(a)[0]

    matrix, kernel = _a("16 16", S.symmetric), _host(lambda a: oracle(a, Driver))
    result = kt.check(_pairing(oracle, kernel, [matrix]), backends=["interpret"], depth="quick", seed=2, minimize=0)
    assert result.findings == ()
    assert sum(each.compared for each in result.records) > 15


def test_the_logarithm_of_a_determinant_loses_what_those_of_its_pivots_do() -> None:
    class Elimination:
        @staticmethod
        def slogdet(a: Any) -> Any:
            logs = [np.log(np.abs(np.diagonal(scipy.linalg.lu_factor(each)[0]))) for each in a]
            return None, np.array([np.cumsum(each, dtype=a.dtype)[-1] for each in logs])

    matrix = _a("9 40 40", S.orthogonal)  # whose pivots are far from 1, and the determinant is not
    for seed in range(3):
        pairing = _pairing(logdet, _host(lambda a: logdet(a, Elimination)), [matrix])
        result = kt.check(pairing, backends=["interpret"], depth="quick", seed=seed, minimize=0)
        assert result.findings == ()
    coarse = _pairing(logdet, _host(lambda a: logdet(a, Elimination) + np.float32(3e-5)), [matrix])
    assert next(findings(coarse, ["interpret"]), None)


def lapack_pairing(name: str) -> Any:
    """An oracle of the table, paired with LAPACK."""
    oracle, arguments, *_ = TABLE[name]
    return _pairing(oracle, _lapack(oracle), arguments)


def _pairing(oracle: Function, kernel: Function, arguments: list[Any]) -> Any:
    if len(arguments) == 1:
        return kt.oracle_for(lambda a: kernel(a), a=arguments[0])(lambda a: oracle(a))
    return kt.oracle_for(lambda a, b: kernel(a, b), a=arguments[0], b=arguments[1])(lambda a, b: oracle(a, b))
