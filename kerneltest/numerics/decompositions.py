"""NumPy's functions that are composed of others, in the way that NumPy composes them."""

from collections.abc import Callable

import numpy as np

from kerneltest.numerics import products
from kerneltest.numerics.samples import Operand, Option, UntrackedError, axes_of

Rule = Callable[..., Operand]
RULES: dict[str, Rule] = {}
"""Implementations of NumPy's functions for tracked arrays, by name; `linalg.` precedes those of `np.linalg`."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Returns a decorator that registers the implementation of functions with these names."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def is_given(option: Option) -> bool:
    """Returns whether an option has a value, and not one of NumPy's two markers for a missing one."""
    return option is not None and option is not np._NoValue


def _reduction_rule(name: str, ufunc: np.ufunc) -> None:
    """Registers a function as the reduction of a ufunc."""

    def reduce(array: Operand, axis: Option = None, dtype: Option = None, out: Operand = None,
               keepdims: Option = False, initial: Option = None, where: Operand = True) -> Operand:  # fmt: skip
        more = {"initial": initial} if is_given(initial) else {}
        return ufunc.reduce(array, axis=axis, keepdims=keepdims is True, where=where, **more)

    RULES[name] = reduce


for _name, _ufunc in (("sum", np.add), ("prod", np.multiply), ("any", np.logical_or), ("all", np.logical_and)):
    _reduction_rule(_name, _ufunc)


def _extremum_rule(name: str, ufunc: np.ufunc) -> None:
    """Registers a function, under both of its names, as the reduction of a ufunc."""

    def reduce(array: Operand, axis: Option = None, out: Operand = None, keepdims: Option = False,
               initial: Option = None, where: Operand = True) -> Operand:  # fmt: skip
        more = {"initial": initial} if is_given(initial) else {}
        return ufunc.reduce(array, axis=axis, keepdims=keepdims is True, where=where, **more)

    for each_name in (name, f"a{name}"):
        RULES[each_name] = reduce


_extremum_rule("max", np.maximum)
_extremum_rule("min", np.minimum)


RULES.update(
    copy=lambda array, *args, **kwargs: array.copy(),
    shape=lambda a: a.shape,
    ndim=lambda a: a.ndim,
    real=lambda array: array,
    astype=lambda x, dtype, **kwargs: x.astype(dtype),
)


@rule("clip")
def _clip(a: Operand, a_min: Operand = None, a_max: Operand = None, **kwargs: Option) -> Operand:
    low: Option = kwargs.get("min", a_min)
    high: Option = kwargs.get("max", a_max)
    a = np.maximum(a, low) if is_given(low) else a
    return np.minimum(a, high) if is_given(high) else a


@rule("ptp")
def _ptp(a: Operand, axis: Option = None, **kwargs: Option) -> Operand:
    return np.max(a, axis, **kwargs) - np.min(a, axis, **kwargs)


@rule("cumsum")
def _cumsum(a: Operand, axis: Option = None, **kwargs: Option) -> Operand:
    return np.add.accumulate(np.reshape(a, -1) if axis is None else a, axis=axis or 0)


@rule("cumprod")
def _cumprod(a: Operand, axis: Option = None, **kwargs: Option) -> Operand:
    return np.multiply.accumulate(np.reshape(a, -1) if axis is None else a, axis=axis or 0)


def _count(a: Operand, axis: Option, keepdims: Option, where: Operand) -> Operand:
    """Returns the number of elements of a mean."""
    if where is True:
        return np.prod([np.shape(a)[i - 1] for i in axes_of(axis, np.ndim(a))])
    return np.sum(np.broadcast_to(where, np.shape(a)), axis=axis, keepdims=keepdims)


@rule("mean")
def _mean(a: Operand, axis: Option = None, dtype: Option = None, out: Operand = None, keepdims: Option = False,
          where: Operand = True) -> Operand:  # fmt: skip
    keepdims = keepdims is True
    return np.sum(a, axis=axis, keepdims=keepdims, where=where) / _count(a, axis, keepdims, where)


@rule("average")
def _average(a: Operand, axis: Option = None, weights: Operand = None, **kwargs: Option) -> Operand:
    if weights is None:
        return np.mean(a, axis, **kwargs)
    return np.sum(a * weights, axis, **kwargs) / np.sum(weights * np.ones(np.shape(a)), axis, **kwargs)


@rule("var")
def _var(a: Operand, axis: Option = None, dtype: Option = None, out: Operand = None, ddof: int = 0,
         keepdims: Option = False, where: Operand = True, mean: Operand = None,
         **kwargs: Option) -> Operand:  # fmt: skip
    off = a - (mean if is_given(mean) else np.mean(a, axis, keepdims=True, where=where))
    keepdims = keepdims is True
    count = _count(a, axis, keepdims, where) - (ddof or kwargs.get("correction", 0))
    return np.sum(off * off, axis, keepdims=keepdims, where=where) / count


@rule("std")
def _std(a: Operand, *args: Operand, **kwargs: Option) -> Operand:
    return np.sqrt(np.var(a, *args, **kwargs))


def _nan_rule(name: str) -> None:
    """Registers the variant of a reduction that ignores NaN."""

    def reduce(a: Operand, *args: Operand, **kwargs: Option) -> Operand:
        return getattr(np, name)(a, *args, where=~np.isnan(a), **kwargs)

    RULES[f"nan{name}"] = reduce


for _name in ("sum", "prod", "mean", "var", "std"):
    _nan_rule(_name)


@rule("median")
def _median(
    a: Operand, axis: Option = None, out: Operand = None, overwrite_input: bool = False, keepdims: bool = False
) -> Operand:
    ordered = np.sort(np.reshape(a, -1) if axis is None else np.moveaxis(a, axis, -1), axis=-1)
    middle = ordered.shape[-1] // 2
    result = np.mean(ordered[..., middle - 1 + ordered.shape[-1] % 2 : middle + 1], axis=-1)
    if not keepdims:
        return result
    return np.reshape(result, (1,) * np.ndim(a)) if axis is None else np.expand_dims(result, axis)


@rule("diff")
def _diff(a: Operand, n: int = 1, axis: int = -1, prepend: Operand = None, append: Operand = None) -> Operand:
    thin = tuple(1 if i == axis % np.ndim(a) else length for i, length in enumerate(np.shape(a)))
    before, after = (
        [each if np.ndim(each) else np.broadcast_to(each, thin)] if is_given(each) else [] for each in (prepend, append)
    )
    a = np.concatenate([*before, a, *after], axis)
    for _ in range(n):
        front = [slice(None)] * np.ndim(a)
        back = list(front)
        front[axis], back[axis] = slice(1, None), slice(None, -1)
        a = a[tuple(front)] - a[tuple(back)]
    return a


@rule("convolve")
def _convolve(a: Operand, v: Operand, mode: Option = "full") -> Operand:
    a, v = (v, a) if len(v) > len(a) else (a, v)
    return np.correlate(a, v[::-1], mode)


@rule("correlate")
def _correlate(a: Operand, v: Operand, mode: str = "valid") -> Operand:
    n = len(v)
    if len(a) < n:
        raise UntrackedError("np.correlate whose second argument is longer than the first")
    before, after = {"full": (n - 1, n - 1), "same": (n // 2, (n - 1) // 2), "valid": (0, 0)}[mode]
    return np.lib.stride_tricks.sliding_window_view(np.pad(a, (before, after)), n) @ v


@rule("polyval")
def _polyval(p: Operand, x: Operand) -> Operand:
    total = np.zeros_like(x)
    for factor in p:
        total = total * x + factor
    return total


@rule("trace")
def _trace(a: Operand, *args: Operand, **kwargs: Option) -> Operand:
    return np.sum(np.diagonal(a, *args, **kwargs), axis=-1)


@rule("dot")
def _dot(a: Operand, b: Operand) -> Operand:
    if not np.ndim(a) or not np.ndim(b):
        return a * b
    return np.tensordot(a, b, (np.ndim(a) - 1, max(np.ndim(b) - 2, 0)))


@rule("inner")
def _inner(a: Operand, b: Operand) -> Operand:
    return np.tensordot(a, b, (-1, -1)) if np.ndim(a) and np.ndim(b) else a * b


@rule("vdot")
def _vdot(a: Operand, b: Operand) -> Operand:
    return np.dot(np.reshape(a, -1), np.reshape(b, -1))


@rule("outer", "linalg.outer")
def _outer(a: Operand, b: Operand) -> Operand:
    return np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1))


@rule("linalg.matmul")
def _matmul(x1: Operand, x2: Operand) -> Operand:
    return np.matmul(x1, x2)


@rule("linalg.vecdot")
def _vecdot(x1: Operand, x2: Operand) -> Operand:
    return np.vecdot(x1, x2)


@rule("linalg.matrix_transpose")
def _matrix_transpose(x: Operand) -> Operand:
    return np.swapaxes(x, -1, -2)


@rule("linalg.trace")
def _trace_of_matrices(x: Operand, *, offset: int = 0) -> Operand:
    return np.trace(x, offset, -2, -1)


@rule("tensordot")
def _tensordot(a: Operand, b: Operand, axes: Option = 2) -> Operand:
    if isinstance(axes, int):
        axes = (range(np.ndim(a) - axes, np.ndim(a)), range(axes))
    left, right = (
        [i % np.ndim(x) for i in np.atleast_1d(np.asarray(one))] for x, one in zip((a, b), axes, strict=True)
    )
    one = [f"a{i}" for i in range(np.ndim(a))]
    two = [f"b{i}" for i in range(np.ndim(b))]
    for i, j in zip(left, right, strict=True):
        two[j] = one[i]
    out = [x for x in one if x not in two] + [x for x in two if x not in one]
    return products.product(a, one, b, two, out)


@rule("einsum")
def _einsum(subscripts: Option, *operands: Operand, **kwargs: Option) -> Operand:
    if not isinstance(subscripts, str):
        raise UntrackedError("np.einsum without a string")
    return products.einsum(subscripts, operands)


@rule("linalg.norm")
def _norm(x: Operand, ord: Option = None, axis: Option = None, keepdims: bool = False) -> Operand:  # noqa: A002
    if ord in (None, "fro") or (ord == 2 and (isinstance(axis, int) or np.ndim(x) == 1)):
        return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))
    if ord in (1, np.inf) and (isinstance(axis, int) or np.ndim(x) == 1):
        return (np.sum if ord == 1 else np.max)(np.abs(x), axis=axis, keepdims=keepdims)
    raise UntrackedError(f"np.linalg.norm(ord={ord})")
