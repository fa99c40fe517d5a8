"""NumPy's functions on tracked arrays, except ufuncs: those that move values, and those composed of others."""

import operator
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kerneltest.core.dtypes import DType, float_format, is_float
from kerneltest.numerics import products
from kerneltest.numerics.rounding_model import fits
from kerneltest.numerics.samples import (
    Operand,
    Option,
    SampledArray,
    UntrackedError,
    align_samples,
    axes_of,
    join_formats,
    round_constants,
    settle,
    unwrap,
)

# NumPy's functions that are composed of others, in the way that NumPy composes them.

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


# `first` are the options between the axis and the common ones.
def _reduction(ufunc: np.ufunc, *first: str) -> Rule:
    def reduce(array: Operand, axis: Option = None, *options: Option, **named: Option) -> Operand:
        named.update(zip((*first, "out", "keepdims", "initial", "where"), options, strict=False))
        more = {name: named[name] for name in ("initial", "where") if is_given(named.get(name))}
        return ufunc.reduce(array, axis=axis, keepdims=named.get("keepdims") is True, **more)

    return reduce


def _accumulation(ufunc: np.ufunc) -> Rule:
    return lambda a, axis=None, **kwargs: ufunc.accumulate(np.reshape(a, -1) if axis is None else a, axis=axis or 0)


# The variant of a reduction that ignores NaN.
def _without_nan(function: Rule) -> Rule:
    return lambda a, *args, **kwargs: function(a, *args, where=~np.isnan(a), **kwargs)


# Tracked, since an oracle may write into it.
def _created_like(create: Rule) -> Rule:
    return lambda array, *args, **kwargs: array.with_samples(
        create(np.empty(array.shape, array.dtype), *args, **kwargs)[None]
    )


RULES |= dict.fromkeys(("max", "amax"), _reduction(np.maximum))
RULES |= dict.fromkeys(("min", "amin"), _reduction(np.minimum))
RULES |= {f"nan{_name}": _without_nan(getattr(np, _name)) for _name in ("sum", "prod", "mean", "var", "std")}
RULES |= {_name: _created_like(getattr(np, _name)) for _name in ("zeros_like", "ones_like", "empty_like", "full_like")}
RULES |= {
    "sum": _reduction(np.add, "dtype"),
    "prod": _reduction(np.multiply, "dtype"),
    "any": _reduction(np.logical_or),
    "all": _reduction(np.logical_and),
    "copy": lambda array, *args, **kwargs: array.copy(),
    "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim,
    "real": lambda array: array,
    "astype": lambda x, dtype, **kwargs: x.astype(dtype),
    "ptp": lambda a, axis=None, **kwargs: np.max(a, axis, **kwargs) - np.min(a, axis, **kwargs),
    "cumsum": _accumulation(np.add),
    "cumprod": _accumulation(np.multiply),
    "std": lambda a, *args, **kwargs: np.sqrt(np.var(a, *args, **kwargs)),
    "trace": lambda a, *args, **kwargs: np.sum(np.diagonal(a, *args, **kwargs), axis=-1),
    "inner": lambda a, b: np.tensordot(a, b, (-1, -1)) if np.ndim(a) and np.ndim(b) else a * b,
    "vdot": lambda a, b: np.dot(np.reshape(a, -1), np.reshape(b, -1)),
    "outer": lambda a, b: np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1)),
    "linalg.outer": lambda x1, x2: np.outer(x1, x2),
    "linalg.matmul": lambda x1, x2: np.matmul(x1, x2),
    "linalg.vecdot": lambda x1, x2: np.vecdot(x1, x2),
    "linalg.matrix_transpose": lambda x: np.swapaxes(x, -1, -2),
    "linalg.trace": lambda x, *, offset=0: np.trace(x, offset, -2, -1),
    "sliding_window_view": lambda x, *args, **kwargs: apply_to_samples(
        np.lib.stride_tricks.sliding_window_view, (x, *args), kwargs
    ),
}


@rule("clip")
def _clip(a: Operand, a_min: Operand = None, a_max: Operand = None, **kwargs: Option) -> Operand:
    low: Option = kwargs.get("min", a_min)
    high: Option = kwargs.get("max", a_max)
    a = np.maximum(a, low) if is_given(low) else a
    return np.minimum(a, high) if is_given(high) else a


# The number of elements of a mean.
def _count(a: Operand, axis: Option, keepdims: Option, where: Operand) -> Operand:
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


@rule("dot")
def _dot(a: Operand, b: Operand) -> Operand:
    if not np.ndim(a) or not np.ndim(b):
        return a * b
    return np.tensordot(a, b, (np.ndim(a) - 1, max(np.ndim(b) - 2, 0)))


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


# Functions that move, select, count, find or compare values: their results are not rounded.
_MOVING = frozenset(
    "reshape ravel transpose matrix_transpose swapaxes moveaxis expand_dims squeeze broadcast_to concatenate concat "
    "stack sort argsort take take_along_axis repeat tile roll flip fliplr flipud rot90 tril triu diag diagonal pad "
    "split array_split hsplit vsplit dsplit broadcast_arrays atleast_1d atleast_2d atleast_3d vstack hstack "
    "column_stack dstack rollaxis argmax argmin nanmax nanmin nanargmax nanargmin count_nonzero searchsorted digitize "
    "partition argpartition select choose compress extract delete insert append block isclose nonzero "
    "triu_indices_from tril_indices_from unravel_index ravel_multi_index round around fix isposinf isneginf "
    "nan_to_num resize flatnonzero argwhere diagflat lexsort allclose unstack meshgrid".split()
)
_ROUNDING = frozenset({"round", "around", "fix"})
# Functions of the arrays' metadata.
_METADATA = frozenset("size result_type may_share_memory iscomplexobj isrealobj isscalar".split())


def call(func: Operand, args: tuple[Operand, ...], kwargs: dict[str, Option]) -> Operand:
    """Applies a NumPy function to tracked arrays; UntrackedError if its rounding is unknown."""
    try:
        return _call_tracked(func, args, kwargs)
    except UntrackedError:
        tracked = list(find_tracked((args, kwargs)))
        if any(each.constant is None for each in tracked):
            raise
    return _call_on_integers(func, args, kwargs, tracked[0])


def _call_tracked(func: Operand, args: tuple[Operand, ...], kwargs: dict[str, Option]) -> Operand:
    name = func.__name__
    if found := RULES.get(f"linalg.{name}" if func.__module__ == "numpy.linalg" else name):
        return found(*args, **kwargs)
    if name in _METADATA:
        return func(*_row((args, kwargs), 0)[0], **kwargs)
    if name in _ROUNDING:
        args, kwargs = replace_tracked((args, kwargs), settle)
    if name in _MOVING and func.__module__ == "numpy":
        return apply_to_samples(func, args, kwargs)
    raise UntrackedError(f"np.{name}" if func.__module__ == "numpy" else f"{func.__module__}.{name}")


def _call_on_integers(
    func: Operand, args: tuple[Operand, ...], kwargs: dict[str, Option], first: SampledArray
) -> Operand:
    """Applies a function to integers that are the same in all samples, and rounds the floats that it makes."""
    plain, named = replace_tracked((args, kwargs), lambda each: each.constant)

    def track(made: Operand) -> Operand:
        if isinstance(made, (list, tuple)):
            return type(made)(map(track, made))
        if not isinstance(made, (np.ndarray, np.generic)) or made.dtype.kind not in "fiub":
            return made
        samples = np.asarray(made)[None]
        if not is_float(samples.dtype):
            return first.with_samples(samples)
        return first.with_samples(first.rounding.round_result(samples, 0.0, first.compute))

    return track(func(*plain, **named))


def apply_to_samples(func: Operand, args: tuple[Operand, ...], kwargs: dict[str, Option]) -> Operand:
    """Applies a function that moves values to each sample, and records it as `moved`."""
    tracked = list(find_tracked((args, kwargs)))
    first = tracked[0]
    rows = max(len(w.samples) for w in tracked)
    fmt = join_formats(tracked)

    def of_row(row: int) -> Operand:
        positional, named = _row((args, kwargs), row)
        return func(*positional, **named)

    def stack(parts: Sequence[Operand]) -> Operand:
        if isinstance(parts[0], (list, tuple)):
            return type(parts[0])(stack(several) for several in zip(*parts, strict=True))
        return first.with_samples(np.stack([np.asarray(part) for part in parts]), fmt)

    result, samples = of_row(0), first.samples
    is_view = isinstance(result, np.ndarray) and len(tracked) == 1 and np.may_share_memory(result, samples)
    if is_view and func is not np.nan_to_num:  # which may write into it; a view of one sample is one of all
        moved = np.lib.stride_tricks.as_strided(result, (rows, *result.shape), (samples.strides[0], *result.strides))
        made = first.with_samples(moved, fmt)
    else:
        made = stack([result, *map(of_row, range(1, rows))])
    if isinstance(made, SampledArray):
        made.record("moved", (), func=func, args=args, kwargs=kwargs, tracked=tracked)
    elif first.rounding.tape is not None:
        raise UntrackedError(f"the gradient of np.{func.__name__}")
    return made


def find_tracked(tree: Option) -> Iterator[SampledArray]:
    """Yields the tracked arrays in arguments, including those nested in lists, tuples and dicts."""
    if isinstance(tree, SampledArray):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from find_tracked(one)
    elif isinstance(tree, dict):
        yield from find_tracked(list(tree.values()))


def replace_tracked(tree: Option, change: Callable[[SampledArray], Operand]) -> Operand:
    """Returns arguments with each tracked array replaced by `change` of it."""
    if isinstance(tree, SampledArray):
        return change(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(replace_tracked(one, change) for one in tree)
    if isinstance(tree, dict):
        return {name: replace_tracked(one, change) for name, one in tree.items()}
    return tree


def _row(tree: Option, row: int) -> Operand:
    """Returns arguments with each tracked array replaced by one of its samples."""
    return replace_tracked(tree, lambda w: w.samples[row if len(w.samples) > 1 else 0])


def get_item(array: SampledArray, index: Option) -> Operand:
    """Returns `array[index]`."""
    index = tuple(map(unwrap, index if isinstance(index, tuple) else (index,)))
    return apply_to_samples(operator.getitem, (array, index), {})


def set_item(array: SampledArray, index: Option, value: Operand) -> None:
    """Assigns `array[index] = value`."""
    if array.rounding.tape is not None:
        raise UntrackedError("the gradient of an assignment to a part of an array")
    parts = tuple(map(unwrap, index if isinstance(index, tuple) else (index,)))
    rows = max(len(w.samples) for w in (array, *find_tracked((index, value))))
    samples = np.array(np.broadcast_to(array.samples, (rows, *array.shape)))
    for row in range(rows):
        samples[row][_row(parts, row) if parts else ()] = _row(value, row)
    array.overwrite(samples)


def add_at(array: Operand, index: Option, value: Operand) -> None:
    """Does what `np.add.at` does: an element that the index names several times gets all of the values."""
    if not isinstance(array, SampledArray) or array.rounding.tape is not None:
        raise UntrackedError("np.add.at")
    parts = tuple(map(unwrap, index if isinstance(index, tuple) else (index,)))
    rows = max(len(w.samples) for w in (array, *find_tracked((index, value))))
    samples = np.array(np.broadcast_to(array.samples, (rows, *array.shape)))
    mass = np.abs(array.rounding.row(samples, 0))
    terms, squares = (mass > 0).astype(np.int64), mass**2
    for row, sums in enumerate(samples):
        at, added = _row(parts, row), _row(value, row)
        if row < len(mass):
            np.add.at(terms[row], at, 1)
            np.add.at(mass[row], at, np.abs(added))
            np.add.at(squares[row], at, np.square(added))
        np.add.at(sums, at, added)
    formats = join_formats((array, value))
    if samples.size and is_float(samples.dtype):
        near_equal = products.are_nearly_equal(array.rounding.row(samples, 0), mass, squares, terms)
        fmt = array.with_samples(samples, formats).compute
        samples = array.rounding.round_sum(samples, mass, terms.max(0), fmt, near_equal=near_equal)
    array.overwrite(samples, formats)


def cast(array: SampledArray, dtype: DType) -> Operand:
    """Returns `array.astype(dtype)`. To a narrower float format it is a rounding that the kernel must make too."""
    if not is_float(dtype):
        return array.with_samples(array.samples.astype(dtype))
    if not is_float(array.samples.dtype):
        wide = array.samples.astype(np.float64)
        fits_in = fits(wide, array.compute)
        return array.with_samples(wide if fits_in else array.rounding.round_result(wide, 0.0, array.compute))
    fmt = float_format(dtype)
    if fmt.precision >= 24:
        return array.with_samples(array.samples).record("cast", (array,))
    samples = array.rounding.round_operand(array.samples, fmt, False, f"cast to {dtype.name}")
    return array.with_samples(samples).record("cast", (array,))


@rule("where")
def _where(condition: Operand, *choices: Operand) -> Operand:
    if not choices:
        raise UntrackedError("np.where(condition) without choices")
    first = next(find_tracked((condition, *choices)))
    rounded = round_constants(choices) if any(isinstance(choice, SampledArray) for choice in choices) else choices
    made = first.with_samples(np.where(*align_samples((condition, *rounded))), join_formats(choices))
    if any(settle(choice) is not choice for choice in choices):
        made.settled = np.where(*align_samples((condition, *map(settle, rounded))))
    return made.record("where", (condition, *choices))


@rule("array_equal")
def _array_equal(a: Operand, b: Operand, **kwargs: Option) -> bool:
    cases = next(find_tracked((a, b))).rounding.cases
    equal = {bool(np.array_equal(_row(a, case), _row(b, case), **kwargs)) for case in range(cases)}
    if len(equal) > 1:
        raise UntrackedError("np.array_equal that differs between cases")
    return equal.pop()
