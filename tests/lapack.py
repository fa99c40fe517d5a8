"""LAPACK in the dtype of its arguments, by the names of `np.linalg`: NumPy computes float32 in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

Array = np.ndarray[Any, Any]


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Applies a function of matrices to stacks of them. Results are NaN where it fails."""

    def of_stacks(a: Array, *others: Array) -> Any:
        stacks = [np.reshape(each, (-1, *each.shape[-2:])) for each in (a, *others)]
        found = [_safely(function, *(stack[i % len(stack)] for stack in stacks)) for i in range(len(stacks[0]))]
        if isinstance(found[0], tuple):
            return tuple(_stacked(part, a) for part in zip(*found, strict=True))
        return _stacked(found, a)

    return of_stacks


def _stacked(found: Any, like: Array) -> Array:
    made = np.stack(found).astype(like.dtype)
    return np.reshape(made, (*like.shape[:-2], *made.shape[1:]))


def _safely(function: Callable[..., Any], a: Array, *others: Array) -> Any:
    try:
        return function(a, *others)
    except np.linalg.LinAlgError:
        return np.full_like(others[0] if others else a, np.nan)


def _solve(a: Array, b: Array) -> Any:
    """By substitution if the matrix is triangular, else by elimination."""
    for lower, beyond in ((True, np.triu(a, 1)), (False, np.tril(a, -1))):
        if not beyond.any():
            return scipy.linalg.solve_triangular(a, b, lower=lower)
    return scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b)


def _logabsdet(a: Array) -> tuple[Any, Any]:
    factors = scipy.linalg.lu_factor(a)[0]
    return np.ones(()), np.sum(np.log(np.abs(np.diagonal(factors))), dtype=a.dtype)


def _eigh(a: Array) -> Any:
    return scipy.linalg.eigh(a, driver="evd")  # as NumPy: the vectors of SciPy's own choice are orthogonal to 1e-5


class Lapack:
    """What the oracles of the tests call."""

    inv = staticmethod(_each(lambda a: _solve(a, np.eye(len(a), dtype=a.dtype))))
    det = staticmethod(_each(scipy.linalg.det))
    slogdet = staticmethod(_each(_logabsdet))
    cholesky = staticmethod(_each(lambda a: scipy.linalg.cholesky(a, lower=True)))
    eigh = staticmethod(_each(_eigh))
    eigvalsh = staticmethod(_each(scipy.linalg.eigvalsh))
    svdvals = staticmethod(_each(scipy.linalg.svdvals))
    norm = staticmethod(np.linalg.norm)

    @staticmethod
    def solve(a: Array, b: Array) -> Any:
        return _each(_solve)(a, b[:, None])[..., 0] if b.ndim == 1 else _each(_solve)(a, b)

    @staticmethod
    def qr(a: Array) -> Any:
        return _each(lambda one: scipy.linalg.qr(one, mode="economic"))(a)

    @staticmethod
    def svd(a: Array, full_matrices: bool = True, compute_uv: bool = True) -> Any:
        if not compute_uv:
            return Lapack.svdvals(a)
        return _each(lambda one: scipy.linalg.svd(one, full_matrices=full_matrices))(a)

    @staticmethod
    def lstsq(a: Array, b: Array, rcond: float) -> Any:
        return (scipy.linalg.lstsq(a, b, cond=rcond)[0],)

    @staticmethod
    def pinv(a: Array, rcond: float) -> Any:
        return _each(lambda one: scipy.linalg.pinv(one, rtol=rcond))(a)

    @staticmethod
    def matrix_power(a: Array, n: int) -> Any:
        return np.linalg.matrix_power(Lapack.inv(a) if n < 0 else a, abs(n))
