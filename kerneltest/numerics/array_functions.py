"""NumPy's functions on tracked arrays, except ufuncs: those that move values, and those composed of others."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, DType, float_format, is_float
from kerneltest.numerics.decompositions import RULES, rule
from kerneltest.numerics.formats import fits
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

# Functions that move, select, count, find or compare values: their results are not rounded.
_MOVING = frozenset(
    "sort argsort take take_along_axis repeat tile roll flip fliplr flipud rot90 tril triu diag diagonal pad split "
    "array_split hsplit vsplit dsplit broadcast_arrays atleast_1d atleast_2d atleast_3d vstack hstack column_stack "
    "dstack rollaxis argmax argmin nanmax nanmin nanargmax nanargmin count_nonzero searchsorted digitize "
    "partition argpartition select choose compress extract delete insert append block isclose nonzero "
    "triu_indices_from tril_indices_from unravel_index ravel_multi_index round around fix isposinf isneginf "
    "nan_to_num resize flatnonzero argwhere diagflat lexsort allclose unstack meshgrid".split()
)
_ROUNDING = frozenset({"round", "around", "fix"})
# Functions of the arrays' metadata.
_METADATA = frozenset("size result_type may_share_memory iscomplexobj isrealobj isscalar".split())


def call(func: Operand, args: tuple[Operand, ...], kwargs: dict[str, Option]) -> Operand:
    """Applies a NumPy function to tracked arrays.

    Raises:
      UntrackedError: it is unknown how the function rounds.
    """
    try:
        return _call_tracked(func, args, kwargs)
    except UntrackedError:
        tracked = list(_find_tracked((args, kwargs)))
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
        return first.with_samples(first.machine.round_result(samples, 0.0, first.compute))

    return track(func(*plain, **named))


def apply_to_samples(func: Operand, args: tuple[Operand, ...], kwargs: dict[str, Option]) -> Operand:
    """Applies a function that moves values to each sample, and records it as `moved`."""
    tracked = list(_find_tracked((args, kwargs)))
    first = tracked[0]
    rows = max(len(w.samples) for w in tracked)
    row_arguments = [_row((args, kwargs), row) for row in range(rows)]
    results = [func(*a, **k) for a, k in row_arguments]
    fmt = join_formats(tracked)

    def stack(parts: Sequence[Operand]) -> Operand:
        if isinstance(parts[0], (list, tuple)):
            return type(parts[0])(stack(several) for several in zip(*parts, strict=True))
        return first.with_samples(np.stack([np.asarray(part) for part in parts]), fmt)

    made = stack(results)
    if isinstance(made, SampledArray):
        made.record("moved", (), func=func, args=args, kwargs=kwargs, tracked=tracked)
    elif first.machine.tape is not None:
        raise UntrackedError(f"the gradient of np.{func.__name__}")
    return made


def _find_tracked(tree: Option) -> Iterator[SampledArray]:
    """Yields the tracked arrays in arguments, including those nested in lists, tuples and dicts."""
    if isinstance(tree, SampledArray):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from _find_tracked(one)
    elif isinstance(tree, dict):
        yield from _find_tracked(list(tree.values()))


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
    parts = tuple(map(unwrap, index if isinstance(index, tuple) else (index,)))
    index = parts
    if any(isinstance(part, SampledArray) for part in parts):
        return apply_to_samples(_item, (array, index), {})
    basic = all(isinstance(part, (int, np.integer, slice, type(None), type(...))) for part in parts)
    # The axes of one index array keep their place after the axis of samples; those of several may move to the front.
    if not basic and not (len(parts) == 1 and isinstance(parts[0], (list, np.ndarray))):
        return apply_to_samples(_item, (array, index), {})
    made = array.with_samples(array.samples[(slice(None), *parts)])
    return made.record("moved", (), func=_item, args=(array, index), kwargs={}, tracked=[array])


def _item(array: Operand, index: Option) -> Operand:
    return array[index]


def set_item(array: SampledArray, index: Option, value: Operand) -> None:
    """Assigns `array[index] = value`."""
    if array.machine.tape is not None:
        raise UntrackedError("the gradient of an assignment to a part of an array")
    parts = tuple(map(unwrap, index if isinstance(index, tuple) else (index,)))
    rows = max(len(w.samples) for w in (array, *_find_tracked((index, value))))
    samples = np.array(np.broadcast_to(array.samples, (rows, *array.shape)))
    for row in range(rows):
        samples[row][_row(parts, row) if parts else ()] = _row(value, row)
    array.samples = samples


def cast(array: SampledArray, dtype: DType) -> Operand:
    """Returns `array.astype(dtype)`. To a narrower float format it is a rounding that the kernel must make too."""
    if not is_float(dtype):
        return array.with_samples(array.samples.astype(dtype))
    if not is_float(array.samples.dtype):
        wide = array.samples.astype(np.float64)
        fits_in = fits(wide, array.compute)
        return array.with_samples(wide if fits_in else array.machine.round_result(wide, 0.0, array.compute))
    fmt = float_format(dtype)
    if fmt.precision >= 24:
        return array.with_samples(array.samples).record("cast", (array,))
    samples = array.machine.round_operand(array.samples, fmt, False, f"cast to {dtype.name}")
    return array.with_samples(samples).record("cast", (array,))


def _axis_rule(name: str, apply: Callable[..., Array]) -> None:
    """Registers a function of one array that rearranges its axes.

    Args:
      name: the name of the function.
      apply: applies it to all samples at once; takes them, the array's shape, and the function's other arguments.
    """

    def rearrange(array: Operand, *args: Operand, **kwargs: Option) -> Operand:
        if not isinstance(array, SampledArray):
            raise UntrackedError(f"np.{name} of {type(array).__name__}")
        made = array.with_samples(apply(array.samples, array.shape, *args, **kwargs))
        return made.record("moved", (), func=getattr(np, name), args=(array, *args), kwargs=kwargs, tracked=[array])

    RULES[name] = rearrange


def _reshape_samples(s: Array, old: tuple[int, ...], shape: Operand, order: str = "C", **kwargs: Option) -> Array:
    new = np.empty(old, bool).reshape(shape).shape
    if order == "F":  # the reshape in C order of all axes reversed
        return s.transpose(0, *range(len(old), 0, -1)).reshape(len(s), *new[::-1]).transpose(0, *range(len(new), 0, -1))
    return s.reshape(len(s), *new)


_axis_rule("reshape", _reshape_samples)
_axis_rule("ravel", lambda s, old, order="C": _reshape_samples(s, old, -1, order))
_axis_rule(
    "transpose",
    lambda s, shape, axes=None: s.transpose(
        0, *(1 + a % len(shape) for a in (axes if axes is not None else range(len(shape))[::-1]))
    ),
)
_axis_rule("matrix_transpose", lambda s, shape: s.swapaxes(-1, -2))
_axis_rule("swapaxes", lambda s, shape, a, b: s.swapaxes(1 + a % len(shape), 1 + b % len(shape)))
_axis_rule(
    "moveaxis",
    lambda s, shape, a, b: np.moveaxis(
        s,
        [1 + each % len(shape) for each in np.atleast_1d(a)],
        [1 + each % len(shape) for each in np.atleast_1d(b)],
    ),
)
_axis_rule(
    "expand_dims",
    lambda s, shape, axis: s.reshape(len(s), *np.expand_dims(np.empty(shape, bool), axis).shape),
)
_axis_rule("squeeze", lambda s, shape, axis=None: s.reshape(len(s), *np.squeeze(np.empty(shape, bool), axis).shape))
_axis_rule(
    "broadcast_to",
    lambda s, old, shape: np.broadcast_to(
        s.reshape(len(s), *(1,) * (len(_shape_tuple(shape)) - len(old)), *old), (len(s), *_shape_tuple(shape))
    ),
)


def _shape_tuple(shape: Operand) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)


@rule("sliding_window_view")
def _sliding_windows(x: Operand, *args: Operand, **kwargs: Option) -> Operand:
    return apply_to_samples(np.lib.stride_tricks.sliding_window_view, (x, *args), kwargs)


@rule("where")
def _where(condition: Operand, *choices: Operand) -> Operand:
    if not choices:
        raise UntrackedError("np.where(condition) without choices")
    first = next(_find_tracked((condition, *choices)))
    rounded = round_constants(choices) if any(isinstance(each, SampledArray) for each in choices) else choices
    made = first.with_samples(np.where(*align_samples((condition, *rounded))), join_formats(choices))
    if any(settle(each) is not each for each in choices):
        made.settled = np.where(*align_samples((condition, *map(settle, rounded))))
    return made.record("where", (condition, *choices))


@rule("concatenate", "concat")
def _concatenate(arrays: Sequence[Operand], axis: int | None = 0) -> Operand:
    tracked = list(_find_tracked(arrays))
    if axis is None:
        arrays, axis = [np.reshape(a, -1) for a in arrays], 0
    rows = max(len(w.samples) for w in tracked)
    ndim = np.ndim(arrays[0])
    parts = [a.samples if isinstance(a, SampledArray) else np.asarray(a)[None] for a in arrays]
    whole = [np.broadcast_to(p, (rows, *p.shape[1:])) for p in parts]
    (at,) = axes_of(axis, ndim)
    made = tracked[0].with_samples(np.concatenate(whole, at), join_formats(tracked))
    return made.record("moved", (), func=np.concatenate, args=(arrays, axis), kwargs={}, tracked=tracked)


@rule("stack")
def _stack(arrays: Sequence[Operand], axis: int = 0) -> Operand:
    return np.concatenate([np.expand_dims(a, axis) for a in arrays], axis)


def _like_rule(name: str) -> None:
    """Registers a function that creates an array in the shape of another."""

    def like(array: Operand, *args: Operand, **kwargs: Option) -> Operand:
        # Tracked, since an oracle may write into it.
        values = getattr(np, name)(np.empty(np.shape(array), array.dtype), *args, **kwargs)
        return array.with_samples(values[None])

    RULES[name] = like


for _name in ("zeros_like", "ones_like", "empty_like", "full_like"):
    _like_rule(_name)


@rule("array_equal")
def _array_equal(a: Operand, b: Operand, **kwargs: Option) -> bool:
    cases = next(_find_tracked((a, b))).machine.cases
    equal = {bool(np.array_equal(_row(a, case), _row(b, case), **kwargs)) for case in range(cases)}
    if len(equal) > 1:
        raise UntrackedError("np.array_equal that differs between cases")
    return equal.pop()
