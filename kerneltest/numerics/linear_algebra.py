"""NumPy's linear algebra on tracked arrays: LAPACK in each sample, on operands moved as backward stability says.

What a stable algorithm returns is exact for operands that are a few roundings off, not relative to each element but to
the norm of a column or of the matrix (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002):

- elimination with partial pivoting: of the column, since its multipliers are at most 1 (theorem 9.3); but each element
  of a triangular matrix by itself (theorem 8.5);
- Householder's and Givens' QR: of the column (theorems 19.4 and 19.10);
- Cholesky: `sqrt(a_ii a_jj)` (theorem 10.3);
- least squares: of the matrix and of the right-hand side (theorem 20.3);
- singular values: of the matrix (LAPACK Users' Guide, 3rd ed., section 4.9);
- eigenvalues of symmetric matrices: two of the matrix (section 4.7), as `ssyevr` loses twice as much as `ssyev` and
  `ssyevd` (Demmel et al., SIAM J. Sci. Comput. 30, 2008). Their vectors turn towards others by that over the gap, and
  are besides orthogonal only to a few n u (same section), which recompositions show: a random walk of n roundings each.
  Those of `ssyevr` are found one by one, and orthogonal to n u / 1e-3 at worst. Each is within these bounds; what is
  recomposed of all of them need not be.

Row 0 stays exact. Vectors of which only the direction is determined get the sign that they have in row 0.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.numerics.array_functions import RULES, Rule, find_tracked, rule
from kerneltest.numerics.samples import Operand, Option, SampledArray, UntrackedError, join_formats, samples_of

_LINALG: Operand = np.linalg  # untyped, since NumPy's stubs do not accept tracked arrays
_MOVED = "backward error"
MODULES = ("numpy.linalg", "scipy.linalg")
"""Modules whose functions are stable in the norm of matrices."""

_SINGULAR = 4.0  # roundings of a column, with which a matrix may become singular

Size = Callable[[Array], Array]


# The sizes relative to which the elements of matrices are moved, (..., rows, columns or 1).


def _of_column(matrices: Array) -> Array:
    return np.asarray(np.sqrt(np.sum(matrices * matrices, axis=-2, keepdims=True)))


def _of_matrix(matrices: Array) -> Array:
    return np.asarray(np.sqrt(np.sum(matrices * matrices, axis=(-2, -1), keepdims=True)))


def _of_symmetric(matrices: Array) -> Array:
    return 2 * _of_matrix(matrices)


def _of_diagonal(matrices: Array) -> Array:
    roots = np.sqrt(np.abs(np.diagonal(matrices, axis1=-2, axis2=-1)))
    return np.asarray(roots[..., :, None] * roots[..., None, :])


def _of_elimination(matrices: Array) -> Array:
    if any(not half(matrices, side).any() for half, side in ((np.tril, -1), (np.triu, 1))):
        return np.abs(matrices)
    return _of_column(matrices)


class _Operands:
    """The operands of a function in all samples, as float64: (rows or 1, *batch, ...), ready to be broadcast."""

    def __init__(self, name: str, *operands: Operand) -> None:
        tracked = list(find_tracked(operands))
        self.like = tracked[0].with_samples(tracked[0].samples, join_formats(operands))
        self.rounding = self.like.rounding
        if self.rounding.tape is not None:
            raise UntrackedError(f"the gradient of np.linalg.{name}")
        most = max(map(np.ndim, operands))
        self.stacks = []
        for operand in operands:
            values = np.asarray(samples_of(operand), np.float64)
            self.stacks.append(values.reshape(len(values), *(1,) * (most + 1 - values.ndim), *values.shape[1:]))

    def moved(self, number: int, size: Size) -> Array:
        """Returns an operand with its elements moved by a rounding relative to `size` of its matrices."""
        stack = self.stacks[number]
        return self.rounding.move_elements(stack, size(stack), self.like.compute, _MOVED)

    def rounded(self, values: Array) -> SampledArray:
        fmt = self.like.compute
        return self.like.with_samples(self.rounding.round_result(np.array(values, np.float64), 0.0, fmt))

    def in_samples(self, function: Callable[..., Operand], *stacks: Array) -> Operand:
        """Applies a function to stacks of matrices. It gives NaN in samples, except the exact one, where it fails."""
        try:
            return function(*stacks)
        except np.linalg.LinAlgError:
            rows = []
            for row in range(max(map(len, stacks))):
                try:
                    rows.append(function(*(each[row : row + 1] if len(each) > 1 else each for each in stacks)))
                except np.linalg.LinAlgError:
                    if row < self.rounding.cases:
                        raise
                    rows.append(None)
        if not isinstance(rows[0], tuple):
            return _joined(rows)
        parts = ([None if row is None else row[part] for row in rows] for part in range(len(rows[0])))
        return type(rows[0])(*map(_joined, parts))

    def signs(self, vectors: Array) -> Array:
        """Returns the sign of each column relative to that of row 0, (rows, ..., columns)."""
        cases = self.rounding.cases
        first = np.tile(vectors[:cases], (len(vectors) // cases, *(1,) * (vectors.ndim - 1)))
        return np.where(np.sum(vectors * first, axis=-2) < 0, -1.0, 1.0)


def _joined(rows: Sequence[Operand]) -> Array:
    return np.concatenate([np.full(np.shape(rows[0]), np.nan) if row is None else row for row in rows])


# Results of elimination, with NaN in samples of matrices that are singular within what a kernel may round, so that it
# divides by zero. By how far is `1 / rho(|inv(A)| E)` (Higham, section 7.5).
def _solved(own: _Operands, function: Callable[..., Operand], *others: Array) -> Array:
    made = own.in_samples(function, own.moved(0, _of_elimination), *others)
    if own.rounding.single == 0:
        return np.asarray(made)
    first = own.rounding.row(own.stacks[0], 0)
    size = _of_elimination(first)
    if size.shape[-2] == 1:  # not triangular
        error = _SINGULAR * own.like.compute.unit_roundoff * np.broadcast_to(size, first.shape)
        near = (np.abs(_LINALG.inv(first)) @ error).sum(axis=-1).max(axis=-1, initial=0.0) >= 1
        if near.any():
            near = np.tile(near, (len(made) // len(near), *(1,) * (near.ndim - 1)))
            near[: 0 if own.rounding.single else own.rounding.cases] = False
            made = np.where(near[..., None, None], np.nan, made)
    return np.asarray(made)


@rule("linalg.inv")
def _inv(a: Operand) -> Operand:
    own = _Operands("inv", a)
    return own.rounded(_solved(own, _LINALG.inv))


@rule("linalg.solve")
def _solve(a: Operand, b: Operand) -> Operand:
    vector = np.ndim(b) == 1
    own = _Operands("solve", a, b[:, None] if vector else b)
    made = own.rounded(_solved(own, _LINALG.solve, own.stacks[1]))
    return made.with_samples(made.samples[..., 0]) if vector else made


# A function of one array that LAPACK evaluates as it is.
def _stable(name: str, size: Size) -> Rule:
    def evaluate(a: Operand, *args: Option, **kwargs: Option) -> Operand:
        own = _Operands(name, a)
        function = getattr(_LINALG, name)
        return own.rounded(own.in_samples(lambda moved: function(moved, *args, **kwargs), own.moved(0, size)))

    return evaluate


RULES |= {
    "linalg.det": _stable("det", _of_elimination),
    "linalg.cholesky": _stable("cholesky", _of_diagonal),
    "linalg.eigvalsh": _stable("eigvalsh", _of_symmetric),
    "linalg.svdvals": lambda x: _LINALG.svd(x, compute_uv=False),
}


@rule("linalg.slogdet")
def _slogdet(a: Operand) -> Operand:
    own = _Operands("slogdet", a)
    found = own.in_samples(_LINALG.slogdet, own.moved(0, _of_elimination))
    mass = _log_pivots(own.rounding.row(own.stacks[0], 0))
    summed = own.rounding.round_sum(np.array(found[1], np.float64), mass, own.stacks[0].shape[-1], own.like.compute)
    return type(found)(own.like.with_samples(found[0]), own.rounded(summed))


# The sum of the magnitudes of the logarithms of pivots, (..., rows, columns) to (...): that of their logarithms may be
# much less.
def _log_pivots(matrices: Array) -> Array:
    left, total = np.array(matrices), np.zeros(matrices.shape[:-2])
    for i in range(left.shape[-1]):
        at = np.broadcast_to(
            (i + np.abs(left[..., i:, i]).argmax(-1))[..., None, None], (*total.shape, 1, left.shape[-1])
        )
        row = np.take_along_axis(left, at, -2)
        np.put_along_axis(left, at, left[..., i : i + 1, :], -2)
        pivot = row[..., i : i + 1]
        with np.errstate(all="ignore"):
            left -= np.nan_to_num(left[..., i : i + 1] / pivot, nan=0.0, posinf=0.0, neginf=0.0) * row
            size = np.abs(np.log(np.abs(pivot[..., 0, 0])))
        total += np.where(np.isfinite(size), size, 0.0)
    return total


@rule("linalg.qr")
def _qr(a: Operand, mode: str = "reduced") -> Operand:
    if mode not in ("reduced", "complete", "r"):
        raise UntrackedError(f"np.linalg.qr with mode {mode!r}")
    own = _Operands("qr", a)
    found = own.in_samples(lambda moved: _LINALG.qr(moved, mode), own.moved(0, _of_column))
    if mode == "r":
        return own.rounded(found * own.signs(np.swapaxes(found, -1, -2))[..., None])
    q, r = found
    signs = own.signs(q)
    return type(found)(own.rounded(q * signs[..., None, :]), own.rounded(r * signs[..., None]))


@rule("linalg.eigh")
def _eigh(a: Operand, UPLO: str = "L") -> Operand:  # noqa: N803
    own = _Operands("eigh", a)
    found = own.in_samples(lambda moved: _LINALG.eigh(moved, UPLO), own.moved(0, _of_symmetric))
    values, vectors = found
    turned = vectors * own.signs(vectors)[..., None, :]
    moved = own.rounding.move_elements(turned, np.sqrt(turned.shape[-1:]), own.like.compute, _MOVED)
    return type(found)(own.rounded(values), own.rounded(moved))


@rule("linalg.svd")
def _svd(a: Operand, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Operand:
    if hermitian:
        raise UntrackedError("np.linalg.svd with hermitian=True")
    own = _Operands("svd", a)
    found = own.in_samples(lambda moved: _LINALG.svd(moved, full_matrices, compute_uv), own.moved(0, _of_matrix))
    if not compute_uv:
        return own.rounded(found)
    left, values, right = found
    of_left, of_right = own.signs(left), own.signs(np.swapaxes(right, -1, -2))
    paired = values.shape[-1]
    of_right[..., :paired] = of_left[..., :paired]  # a pair turns together
    turned = own.rounded(left * of_left[..., None, :]), own.rounded(values), own.rounded(right * of_right[..., None])
    return type(found)(*turned)


# The factors of the pseudo-inverses of matrices, moved, whose singular values beyond a rank are dropped in all samples.
def _pseudo_inverse(own: _Operands, moved: Array, rank: Array) -> tuple[Array, Array]:
    left, values, right = own.in_samples(lambda each: _LINALG.svd(each, full_matrices=False), moved)
    rank = np.tile(rank, (len(values) // own.rounding.cases if len(values) > 1 else 1, *(1,) * (rank.ndim - 1)))
    kept = np.arange(values.shape[-1]) < rank[..., None]
    inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
    return np.swapaxes(right, -1, -2) * inverse[..., None, :], np.swapaxes(left, -1, -2)


@rule("linalg.pinv")
def _pinv(a: Operand, rcond: Option = None, hermitian: bool = False, **kwargs: Option) -> Operand:
    own = _Operands("pinv", a)
    first = own.rounding.row(own.stacks[0], 0)
    exact = _LINALG.pinv(first, rcond, hermitian, **kwargs)
    rank = _LINALG.matrix_rank(exact)
    moved = own.moved(0, _of_matrix)
    one, other = _pseudo_inverse(own, moved, rank)
    made = np.asarray(one @ other)
    if own.rounding.single in (None, 0):
        made[: len(exact)] = exact
    return own.rounded(made)


@rule("linalg.lstsq")
def _lstsq(a: Operand, b: Operand, rcond: Option = None) -> Operand:
    vector = np.ndim(b) == 1
    own = _Operands("lstsq", a, b[:, None] if vector else b)
    firsts = [own.rounding.row(stack, 0) for stack in own.stacks]
    count = max(map(len, firsts))
    pairs = zip(*(np.broadcast_to(first, (count, *first.shape[1:])) for first in firsts), strict=True)
    exact = [_LINALG.lstsq(*pair, rcond) for pair in pairs]
    if len({each[2] for each in exact}) > 1:
        raise UntrackedError("np.linalg.lstsq of ranks that differ between cases")
    rank = int(exact[0][2])
    matrix, right = own.moved(0, _of_matrix), own.moved(1, _of_column)
    one, other = _pseudo_inverse(own, matrix, np.full(1, rank))
    solution = np.asarray(one @ (other @ right))
    left_over = right - matrix @ solution
    residuals = np.sum(left_over * left_over, axis=-2)
    values = own.in_samples(lambda each: _LINALG.svd(each, compute_uv=False), matrix)
    if own.rounding.single in (None, 0):
        for case, each in enumerate(exact):
            solution[case] = each[0]
    if rank < np.shape(a)[-1] or np.shape(a)[-2] <= np.shape(a)[-1]:
        residuals = residuals[:, :0]
    return own.rounded(solution[..., 0] if vector else solution), own.rounded(residuals), rank, own.rounded(values)


# Functions that are composed of others.


@rule("linalg.norm")
def _norm(x: Operand, ord: Option = None, axis: Option = None, keepdims: bool = False) -> Operand:  # noqa: A002
    if ord is None or (ord == 2 and (isinstance(axis, int) or (axis is None and np.ndim(x) == 1))):
        return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))
    axes = tuple(range(np.ndim(x))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) != 2 or ord not in _MATRIX_NORMS:
        raise UntrackedError(f"np.linalg.norm(ord={ord})")
    made = _MATRIX_NORMS[ord](np.moveaxis(x, axes, (-2, -1)))
    return np.expand_dims(made, tuple(sorted(axis % np.ndim(x) for axis in axes))) if keepdims else made


def _vector_norm(x: Operand, order: Option, axis: int, keepdims: bool) -> Operand:
    size = np.abs(x)
    if order in (np.inf, -np.inf):
        return (np.max if order > 0 else np.min)(size, axis=axis, keepdims=keepdims)
    if order == 0:
        return np.sum(np.where(x != 0, 1.0, 0.0), axis=axis, keepdims=keepdims)
    total = np.sum(size if order == 1 else size**order, axis=axis, keepdims=keepdims)
    return total if order == 1 else total ** (1 / order)


_MATRIX_NORMS: dict[Option, Rule] = {
    "fro": lambda x: np.sqrt(np.sum(x * x, axis=(-2, -1))),
    "nuc": lambda x: np.sum(_LINALG.svdvals(x), axis=-1),
    2: lambda x: _LINALG.svdvals(x)[..., 0],
    -2: lambda x: _LINALG.svdvals(x)[..., -1],
    1: lambda x: np.max(np.sum(np.abs(x), axis=-2), axis=-1),
    -1: lambda x: np.min(np.sum(np.abs(x), axis=-2), axis=-1),
    np.inf: lambda x: np.max(np.sum(np.abs(x), axis=-1), axis=-1),
    -np.inf: lambda x: np.min(np.sum(np.abs(x), axis=-1), axis=-1),
}


@rule("linalg.matrix_power")
def _matrix_power(a: Operand, n: int) -> Operand:
    if n == 0:
        return a.with_samples(np.broadcast_to(np.eye(a.shape[-1]), a.shape)[None])
    square, power = (_LINALG.inv(a) if n < 0 else a), None
    for bit in reversed(f"{abs(n):b}"):
        if bit == "1":
            power = square if power is None else power @ square
        square = square @ square
    return power


@rule("cross", "linalg.cross")
def _cross(a: Operand, b: Operand, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Option = None) -> Operand:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = np.moveaxis(a, axisa, -1), np.moveaxis(b, axisb, -1)
    if np.shape(a)[-1] != 3 or np.shape(b)[-1] != 3:
        raise UntrackedError("np.cross of vectors of length 2")
    (a0, a1, a2), (b0, b1, b2) = ([each[..., i] for i in range(3)] for each in (a, b))
    return np.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axisc)
