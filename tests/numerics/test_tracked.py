"""Tracked arrays compute the same as NumPy, in every sample."""

from typing import Any

import numpy as np
import pytest
import scipy.special

from kerneltest.core.dtypes import Array
from kerneltest.numerics.samples import UntrackedError, samples_of
from tests.numerics.tracking import silent, tracked

ROWS = 4

# x, y (positive), s (between -1 and 1), n (NaN in it): 3 x 4. v: 4. w: 3. q: 2 x 4 x 4. e: 0 x 4. k: integers.
# Ordinary arrays: z, the mask m, the indices i3.
UFUNCS = """
x + y; x - y; x * y; x / y; x ** 2; x ** 3.5; 2 ** x; x % y; x // y; -x; +x; abs(x); 1 - x; 1 / x; 2 - x; x ** y
np.power(y, 0.5); x > y; x >= 0; x == x; x != y; x < 1; x <= y; ~(x > 0); (x > 0) & (y > 0.5); (x > 0) | (y < 1)
(x > 0) ^ (y > 1); np.add(x, y); np.subtract(x, y); np.multiply(x, y); np.divide(x, y); np.true_divide(x, y)
np.negative(x); np.square(x); np.sqrt(y); np.cbrt(x); np.exp(x); np.exp2(x); np.expm1(x); np.log(y); np.log2(y)
np.log10(y); np.log1p(y); np.sin(x); np.cos(x); np.tan(x); np.arcsin(s); np.arccos(s); np.arctan(x); np.arctan2(x, y)
np.sinh(x); np.cosh(x); np.tanh(x); np.arcsinh(x); np.arccosh(1 + y); np.arctanh(s); np.hypot(x, y)
np.logaddexp(x, y); np.logaddexp2(x, y); np.deg2rad(x); np.rad2deg(x); np.degrees(x); np.radians(x); np.reciprocal(y)
np.maximum(x, y); np.minimum(x, y); np.fmax(x, y); np.fmin(x, y); np.sign(x); np.copysign(y, x); np.floor(x)
np.ceil(x); np.rint(x); np.trunc(x); np.fabs(x); np.absolute(x); np.abs(x); np.signbit(x); np.isnan(x); np.isfinite(x)
np.isinf(x); np.fmod(x, y); np.remainder(x, y); np.mod(x, y); np.floor_divide(x, y); np.heaviside(x, 0.5)
np.ldexp(x, 3); np.float_power(y, 1.5); np.nextafter(x, y); np.positive(x); np.conjugate(x); np.spacing(x)
np.logical_and(x > 0, y > 1); np.logical_or(x > 0, y > 1); np.logical_not(x > 0); np.logical_xor(x > 0, y > 1)
np.greater(x, y); np.less_equal(x, y); np.not_equal(x, y); np.equal(x, y); np.greater_equal(x, y); np.less(x, y); k & 3
k | 1; k ^ 5; k << 1; k >> 1; k + 1; k // 2; k % 3; k * x; x ** k.astype(float); np.bitwise_and(k, 1); np.invert(k)
np.right_shift(k, 1); k / 3; x + v; v * x; x * z; z * x; z - x; x * 3; 3 * x; x * np.float32(2); np.float64(2) * x
x * True; np.clip(x, -1, 1); np.clip(x, None, 0.5); np.clip(x, 0, None); np.clip(x, v, 1.0)
np.clip(a=x, a_min=-1, a_max=1); np.clip(x, min=0, max=1); np.add(x, y, out=None); np.sqrt(y, where=True)
np.exp(x, dtype=np.float64); np.add(x, y, dtype=float); np.divide(x, y, out=np.zeros_like(x), where=y > 0.5)
np.gcd(k, 6); np.lcm(k, 4); scipy.special.expit(x); scipy.special.erf(x); scipy.special.log1p(y)
scipy.special.xlogy(y, y); scipy.special.logit(s * s); scipy.special.erfc(x); scipy.special.gammaln(y)
"""

REDUCTIONS = """
np.sum(x); np.sum(x, 0); np.sum(x, axis=-1); np.sum(x, axis=(0, 1)); np.sum(x, axis=1, keepdims=True)
np.sum(x, keepdims=True); np.sum(x, where=x > 0); np.sum(x, where=z > 0); np.sum(x, axis=0, initial=2.0)
np.sum(x > 0); np.sum(x > 0, axis=0); np.sum(x, axis=0, dtype=np.float64); np.sum(k); np.sum(x, axis=0, where=m)
np.prod(y, axis=1); np.prod(y); np.prod(y, initial=2.0); np.prod(y, where=m); np.max(x); np.max(x, axis=0)
np.max(x, axis=1, keepdims=True); np.max(x, axis=1, initial=0.0); np.max(x, axis=1, initial=-9.0, where=m)
np.amax(x, 0); np.min(x, axis=(0,)); np.amin(x); np.min(x, initial=9.0, where=m); np.any(x > 0, axis=1)
np.all(x > 0, axis=0); np.all(x > -9); np.any(x > 9); np.any(x); np.any(x > 0, 1, None, True); np.ptp(x); np.ptp(x, 0)
np.ptp(x, axis=0, keepdims=True); np.mean(x); np.mean(x, 0); np.mean(x, axis=1, keepdims=True)
np.mean(x, axis=0, where=m); np.mean(x, axis=0, dtype=np.float64); np.mean(x, axis=(0,1)); np.mean(x > 0); np.var(x)
np.var(x, axis=1); np.var(x, axis=1, keepdims=True); np.var(x, axis=0, ddof=1); np.var(x, axis=0, where=m)
np.var(x, axis=0, mean=np.mean(x, axis=0, keepdims=True)); np.std(x, axis=-1)
np.std(x, axis=1, keepdims=True, ddof=1); np.average(x); np.average(x, axis=0); np.average(x, axis=0, weights=y)
np.average(x, axis=1, weights=v); np.average(x, weights=y); np.average(x, axis=0, keepdims=True)
np.average(x, axis=0, weights=y, keepdims=True); np.median(x); np.median(x, axis=0)
np.median(x, axis=1, keepdims=True); np.nansum(n); np.nansum(n, axis=0); np.nanmean(n, axis=0); np.nanmax(n, axis=0)
np.nanmin(n); np.nanvar(n, axis=0); np.nanstd(n); np.nanprod(n); np.cumsum(x); np.cumsum(x, axis=0)
np.cumsum(x, axis=-1); np.cumsum(k); np.cumprod(y, axis=1); np.cumprod(y); np.cumsum(x > 0, axis=1); np.diff(x)
np.diff(x, axis=0); np.diff(x, n=2, axis=1); np.diff(x, prepend=0); np.diff(x, axis=0, append=0.0); np.argmax(x)
np.argmax(x, axis=0); np.argmax(x, 1, keepdims=True); np.argmin(x, axis=1); np.count_nonzero(x > 0)
np.count_nonzero(x > 0, axis=1); np.count_nonzero(x, axis=0, keepdims=True); np.add.reduce(x)
np.add.reduce(x, axis=1); np.add.reduce(x, axis=None); np.maximum.reduce(x, axis=1); np.minimum.reduce(x)
np.multiply.reduce(y, axis=0); np.logical_and.reduce(x > 0, axis=1); np.logaddexp.reduce(x, axis=1)
np.logaddexp.accumulate(x, axis=1); np.logaddexp.accumulate(x)
np.add.accumulate(x, axis=1); np.maximum.accumulate(x, axis=1); np.minimum.accumulate(x)
np.multiply.accumulate(y, axis=0); np.logical_or.accumulate(x > 0, axis=1); np.add.outer(v, v)
np.multiply.outer(v, v); np.subtract.outer(v, w); np.subtract.outer(w, v); np.sum(e, axis=0); np.sum(e, axis=1)
np.sum(e); np.prod(e, axis=0); np.cumsum(e, axis=1); np.max(e, axis=1, initial=0.0); np.mean(e, axis=1); np.any(e > 0)
e + 1; np.exp(e); e @ e.T; e.T @ e; np.sort(e, axis=1); np.concatenate([x, e]); np.linalg.norm(e, axis=1)
np.sum(e * e, axis=0); np.argsort(e, axis=0); e.reshape(4, 0); np.max(e.T, axis=0, initial=-1.0); np.var(e, axis=1)
sum(x); sum(v * v); x.sum(); x.sum(axis=0, keepdims=True); x.mean(-1); x.mean(axis=-1, keepdims=True); x.max()
x.max(axis=0); x.min(1); x.var(-1, keepdims=True); x.std(); y.prod(); x.argmax(0); x.argmin(); x.cumsum(0)
y.cumprod(0); (x > 0).any(); (x > 0).all(axis=1)
"""

PRODUCTS = """
x @ y.T; x @ v; v @ v; w @ x; x @ z.T; z @ x.T; q @ q; q @ x.T; v @ q; np.matmul(x, y.T); np.dot(x, y.T); np.dot(v, v)
np.dot(x, v); np.dot(w, x); np.dot(q, x.T); np.dot(2.0, x); np.dot(x, 2.0); np.inner(x, y); np.inner(v, v)
np.inner(x, v); np.inner(q, x); np.outer(v, w); np.outer(x, v); np.vdot(x, y); np.vdot(v, v); x.dot(y.T); x.T.dot(x)
np.tensordot(x, y); np.tensordot(x, y, axes=0); np.tensordot(x, y, axes=([1], [1])); np.tensordot(x, y, axes=(0, 0))
np.tensordot(q, x, axes=(2, 1)); np.tensordot(q, q, axes=([1, 0], [1, 0])); np.tensordot(q, x.T, 1)
np.tensordot(z, x.T, 1); np.tensordot(x, y, axes=[1, 1]); np.tensordot(x, y, axes=[[0, 1], [0, 1]])
np.tensordot(q, q, axes=([-1], [-1])); np.einsum('ij,kj->ik', x, y); np.einsum('ij,kj', x, y)
np.einsum('ij,ij->i', x, y); np.einsum('ij->j', x); np.einsum('ij', x); np.einsum('ji', x); np.einsum('i,j->ij', w, v)
np.einsum('ij,ij->', x, y); np.einsum('...j,kj->...k', q, x); np.einsum('...j,...j->...', q, q)
np.einsum('...ij,...jk', q, q); np.einsum('ij,j,kj->ik', x, v, y); np.einsum('ij,kj,kl->il', x, y, x)
np.einsum('ii', sq); np.einsum('ii->i', sq); np.einsum('ij,jk->ik', x, sq); np.einsum('bij,bkj->bik', q, q)
np.einsum('b i j, i j -> b', q, q[0]); np.einsum('ij,ij->ij', x, y); np.einsum('ij->ji', x); np.einsum('ij->', x)
np.einsum('...->...', x); np.einsum('ij,kj->ik', x, y, optimize=True); np.einsum('ij,ij->i', z, x)
np.einsum('i,i', v, v); np.einsum('iij->j', np.stack([sq, sq, sq, sq])); np.einsum('...ii->...i', np.stack([sq, sq]))
np.einsum('i...,i...->...', x, y); np.einsum('ij,k->ik', x, v); np.einsum('abc,ac,ab->', q, q[:, 0, :], q[:, :, 0])
np.linalg.norm(x); np.linalg.norm(v); np.linalg.norm(x, axis=1); np.linalg.norm(x, axis=-1, keepdims=True)
np.linalg.norm(x, ord=2, axis=1); np.linalg.norm(x, 1, axis=1); np.linalg.norm(x, np.inf, axis=1)
np.linalg.norm(v, ord=1); np.linalg.norm(v, ord=np.inf); np.linalg.norm(x, 'fro'); np.linalg.norm(x, axis=(0, 1))
np.linalg.norm(v, 2); np.linalg.norm(x, 3, axis=1); np.linalg.norm(sq, 2)
np.trace(sq); np.trace(q); np.convolve(v, w); np.convolve(v, w, mode='same'); np.correlate(v, w)
np.convolve(v, w, 'valid'); np.vecdot(x, y); np.linalg.matmul(x, y.T); np.linalg.outer(v,w)
np.linalg.trace(sq); np.linalg.vecdot(x, y); np.polyval([1.0, 2.0, 3.0], x); np.linalg.matrix_transpose(x)
"""

MOVING = """
x[0]; x[-1]; x[0, 1]; x[:, 0]; x[..., 0]; x[1:, ::2]; x[::-1]; x[None]; x[:, None, :]; x[[0, 2]]; x[:, [0, 1]]
x[[0, 1], [1, 2]]; x[m]; x[z > 0]; x[i3]; x[:, i3]; x[i3, 1]; x[np.arange(3)[:, None], i3[None]]; x[()]; x[1, ...]
q[0, :, [0, 1]]; q[:, 0, 1]; x[x.argmax(axis=0)]; x[np.arange(3), x.argmax(axis=1)]; x[x.argsort(axis=0)[:, 0]]
v[np.argsort(v)]; x[slice(0, 2)]; x[m[:, 0]]; x[k[0, 0] % 3]; x[np.newaxis, ..., 1]; x[np.int64(1)]; x[True]
x[:, k[0] % 4]; x[(slice(None), [0, 1])]; x[..., None]; x[i3.tolist()]; np.where(x > 0, x, 0); np.where(x > 0, x, y)
np.where(m, x, -np.inf); np.where(z > 0, x, z); np.where(x > y, 1, 0); np.where(m, 1.0, y)
np.nonzero(m)[0] + 0 * k[0, 0]; np.where(x[0, 0] > 0, x, y); np.concatenate([x, y]); np.concatenate([x, y], axis=1)
np.concatenate([x, z], axis=-1); np.concatenate((z, x), 0); np.concatenate([x, y], axis=None)
np.concatenate([v, [1.0]]); np.stack([x, y]); np.stack([x, y], axis=-1); np.stack([x, z], axis=1); np.stack((v, v), 1)
np.vstack([x, y]); np.hstack([x, y]); np.hstack([v, v]); np.dstack([x, y]); np.column_stack([w, w])
np.block([[x, y], [y, x]]); np.append(x, y); np.append(x, y, axis=0); np.insert(v, 1, 3.0); np.delete(x, 1, axis=0)
np.stack([v[0], v[1]]); np.concatenate([x[:, 1:], x[:, :1]], axis=1); np.pad(x, 1); np.pad(x, ((1, 0), (0, 2)))
np.pad(x, 1, constant_values=7.0); np.pad(x, 1, mode='edge'); np.pad(x, ((0, 0), (1, 1)), 'reflect')
np.pad(v, (2, 0)); np.tril(x); np.triu(x, 1); np.tril(q); np.diag(v); np.diag(sq); np.diag(sq, 1); np.diagonal(x)
np.diagonal(q, axis1=1, axis2=2); x.diagonal(); np.sort(x); np.sort(x, axis=0); np.argsort(x, axis=1)
np.argsort(x, kind='stable'); np.sort(x, axis=None); np.partition(x, 1, axis=1); np.take(x, [0, 2], axis=0)
np.take(x, 1, axis=1); np.take(x, [0, 5]); np.take_along_axis(x, np.argsort(x, axis=1), axis=1)
np.take_along_axis(x, z.argsort(axis=0), axis=0); np.take_along_axis(z, np.argsort(x, axis=1), 1)
np.take_along_axis(x, np.argmax(x, axis=1)[:, None], axis=1)
np.take_along_axis(x, np.argmax(x, axis=1, keepdims=True), axis=1); np.roll(x, 1); np.roll(x, 1, axis=1); np.flip(x)
np.flip(x, 1); np.fliplr(x); np.flipud(x); np.rot90(x); np.repeat(x, 2); np.repeat(x, 2, axis=1)
np.repeat(x, [1, 2, 0], axis=0); np.tile(x, 2); np.tile(x, (2, 1)); np.split(x, 2, axis=1)[1]; np.array_split(x, 2)[0]
np.hsplit(x, 2)[0]; np.searchsorted(np.sort(v), w); np.searchsorted([0.0, 1.0], v); np.digitize(x, [-1.0, 0.0, 1.0])
np.select([x > 1, x > 0], [x, y], 0.0); np.choose(k % 2, [x, y]); np.compress([True, False, True], x, axis=0)
np.extract(m, x); np.tri(3); np.meshgrid(v, w)[0]; np.lexsort((v, v)); np.round(x, 2); np.around(x, 1)
np.nan_to_num(n); np.isclose(x, y); np.isposinf(n); np.flatnonzero(v > -9); np.argwhere(m); np.nanargmax(n, axis=1)
np.triu_indices_from(sq)[0]; np.resize(x, (2, 2)); x.T; x.transpose(); x.transpose(1, 0); x.transpose((1, 0))
q.transpose(2, 0, 1); q.transpose(-1, 0, 1); np.transpose(q); np.transpose(q, (1, 0, 2)); np.swapaxes(q, 0, 2)
q.swapaxes(-1, -2); np.moveaxis(q, 0, -1); np.moveaxis(q, [0, 1], [-1, 0]); np.rollaxis(q, 2); np.reshape(x, 12)
np.reshape(x, (2, 6)); x.reshape(-1); x.reshape(2, -1); x.reshape((4, 3)); x.reshape(3, 2, 2)
x.reshape(4, 3, order='F'); np.ravel(x); x.ravel(); np.ravel(x, order='F'); np.squeeze(x[None])
np.squeeze(x[None], axis=0); x[None].squeeze(0); x[:, :1].squeeze(-1); np.expand_dims(x, 1); np.expand_dims(x, (0, 2))
np.expand_dims(x, -1); np.broadcast_to(v, (3, 4)); np.broadcast_to(x, (2, 3, 4)); np.broadcast_to(v[0], (3,))
np.broadcast_to(v[0], 3); np.broadcast_arrays(x, v)[1]; np.atleast_1d(v[0]); np.atleast_2d(v)
np.permute_dims(x, (1, 0)); np.broadcast_to(x, shape=(2, 3, 4)); np.concat([x, y]); x.mT
np.matrix_transpose(x); x.astype(np.float64); x.astype(float); x.astype(np.int32)
x.astype(np.int64); (x > 0).astype(np.float64); (x > 0).astype(float) * y; (x > 0).astype(int); k.astype(np.float32)
x.astype(bool); x.copy(); np.copy(x); x.real; np.real(x); np.zeros_like(x); np.ones_like(x); np.full_like(x, 3.0)
np.empty_like(x) * 0; np.zeros_like(x, dtype=np.int64); np.zeros_like(x, shape=(2,)); np.shape(x)[0] + x
np.ndim(x) + x; np.size(x) + x; len(x) + x; x.shape[1] * x; x.size * x; x.ndim * x; x.dtype.type(2) * x
np.finfo(x.dtype).eps * x; np.zeros(x.shape) + x; np.array_equal(x, x) + x; x.clip(-1, 1); x.clip(min=0); x.clip(0)
x.round(2); x.round(); x.repeat(2); x.repeat(2, axis=0); x.take([0, 1], axis=1); sq.trace(); x.conj()
np.iscomplexobj(x) + x; np.allclose(x, x) + x; x.argsort(axis=0); x.argsort(); np.result_type(x, y).type(1) * x
[a * 2 for a in x][0]; [a for a in v][1]; np.array([1.0]) * x; np.iinfo(k.dtype).max - k; x.squeeze()
"""

# Not followed, and said so.
UNFOLLOWED = """
divmod(x, y); np.modf(x); np.frexp(x); np.quantile(x, 0.3); np.hypot.reduce(x)
np.add.reduceat(x, [0, 2], axis=1); np.interp(x, [0.0, 1.0], [0.0, 5.0]); np.linalg.eig(sq); np.fft.fft(v); np.unique(x)
np.sqrt(y, where=m); np.exp(x, casting="unsafe"); np.bincount(k[0]); float(v[0])
np.where(x > 0); x.tolist(); np.asarray(x); max(v); np.einsum(x, [0, 1], [1])
"""

# What newer versions of NumPy have.
NEWER = """
np.matvec(x, v); np.vecmat(w, x); np.unstack(x)[0]; np.reshape(x, shape=(2, 6))
"""


def _leaves(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    made = {name: rng.normal(size=shape) for name, shape in dict(x=(3, 4), v=4, w=3, q=(2, 4, 4), sq=(4, 4)).items()}
    n = np.where(rng.random((3, 4)) < 0.2, np.nan, made["x"])
    n[:, 0] = 1.0
    more = dict(y=rng.uniform(0.2, 2, (3, 4)), s=rng.uniform(-0.9, 0.9, (3, 4)), e=np.zeros((0, 4)), n=n)
    return {**made, **more, "k": np.random.default_rng(9).integers(0, 5, (3, 4))}


EACH = [_leaves(seed) for seed in range(ROWS)]
_rng = np.random.default_rng(99)
FIXED: dict[str, Any] = dict(
    np=np, scipy=scipy, z=_rng.normal(size=(3, 4)), m=_rng.random((3, 4)) > 0.3, i3=np.array([2, 0, 1])
)


def _given(rows: int) -> dict[str, Any]:
    rounding = silent(rows)
    return {name: tracked(np.stack([each[name] for each in EACH[:rows]]), rounding) for name in EACH[0]}


def _split(table: str) -> list[str]:
    return [code for line in table.splitlines() if line for code in line.split("; ")]


def _same(found: Any, wanted: Any) -> bool:
    return (
        found.shape == wanted.shape
        and found.dtype.kind == wanted.dtype.kind
        and np.allclose(found, wanted, rtol=1e-12, atol=1e-13, equal_nan=True)
    )


def _check(code: str) -> None:
    for rows in (1, ROWS):
        found = samples_of(eval(code, {**FIXED, **_given(rows)}))
        for row in range(rows):
            wanted = np.asarray(eval(code, {**FIXED, **EACH[row]}))
            assert _same(found[row % len(found)], wanted), (rows, row)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("code", _split(UFUNCS + REDUCTIONS + PRODUCTS + MOVING + NEWER * hasattr(np, "matvec")))
def test_every_sample_is_what_numpy_computes(code: str) -> None:
    _check(code)


def test_a_table_that_is_off_would_be_found() -> None:
    assert not _same(np.ones((1, 4)), np.ones(4))
    assert not _same(np.ones(4, int), np.ones(4))
    assert not _same(np.ones(4) + 1e-9, np.ones(4))


@pytest.mark.parametrize("code", _split(UNFOLLOWED))
def test_what_is_not_followed_says_so(code: str) -> None:
    with pytest.raises(UntrackedError, match=r"np\.|numpy\.|a NumPy array|a branch|\(\)"):
        eval(code, {**FIXED, **_given(ROWS)})


# An assignment, and what it does to `t`, a copy of x.
ASSIGNED = """
t[0] = 1.0; t[1, 2] = v[0]; t[:, 1] = w; t[...] = y; t[m] = 0.0; t[x > 0] = -1.0; t[i3] = y; t[i3, [0, 1, 2]] = w
t[:] = v; t += y; t *= 2; t -= v; t /= y; t[0] += v; t[:, 0] *= w; t[np.argmax(x, axis=0)[0]] = v; t[1:, ::2] = 0
np.add(x, y, out=t); np.exp(x, out=t); np.maximum(t, 0, out=t); np.divide(x, y, out=t, where=m); t[k[0, 0] % 3] = z[0]
np.add.at(t, i3, y); np.add.at(t, (i3, [0, 1, 2]), v[0]); np.add.at(t, k[0] % 3, 2.0)
"""


@pytest.mark.parametrize("code", _split(ASSIGNED))
def test_assignments_change_every_sample(code: str) -> None:
    for rows in (1, ROWS):
        given = _given(rows)
        given["t"] = given["x"].copy()
        exec(code, {**FIXED}, given)
        for row in range(rows):
            plain = {**EACH[row], "t": EACH[row]["x"].copy()}
            exec(code, {**FIXED}, plain)
            found = given["t"].samples
            assert _same(found[row % len(found)], plain["t"]), (rows, row)
            assert _same(given["x"].samples[row], EACH[row]["x"])


# Results that are not arrays, equal for a tracked array.
ABOUT = """
len(x); x.shape; x.ndim; x.size; x.dtype; x.nbytes; x.itemsize; np.shape(x); np.ndim(q); np.size(x); np.iscomplexobj(x)
np.result_type(x, np.float32); np.isscalar(x); [row.shape for row in x]; np.array_equal(x, x); np.array_equal(x, z)
np.allclose(x, x); bool(np.all(y > 0)); 1 if y.min() > 0 else 2; len(e)
"""


@pytest.mark.parametrize("code", _split(ABOUT))
def test_what_is_asked_about_an_array(code: str) -> None:
    assert eval(code, {**FIXED, **_given(ROWS)}) == eval(code, {**FIXED, **EACH[0]})


def test_a_value_that_leaves_is_noted_where_there_is_one_and_refused_where_there_are_many() -> None:
    for leave, named in (
        (float, "float()"),
        (np.asarray, "conversion to a NumPy array"),
        (lambda v: v.tolist(), "tolist()"),
    ):
        one = tracked(np.ones((1,)), silent(1))
        assert leave(one) == 1
        assert one.rounding.escape.startswith(named)
        with pytest.raises(UntrackedError):
            leave(tracked(np.arange(4.0), silent(4)))


def test_integers_that_leave_are_positions_and_not_noted() -> None:
    index = tracked(np.array([2]), silent(1))
    assert (int(index), [5, 6, 7][index]) == (2, 7)
    assert not index.rounding.escape


def test_a_branch_that_samples_would_take_differently_is_refused() -> None:
    tied = tracked(np.array([1.0, 1.0, 1.5]), silent(3))
    with pytest.raises(UntrackedError, match="branch"):
        bool(tied > 1)
    assert bool(tied > 0)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(tracked(np.ones((3, 2)), silent(3)) > 0)
