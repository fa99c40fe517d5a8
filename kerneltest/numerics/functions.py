"""What NumPy's functions do with watched arrays, ufuncs aside: they move values, or are made of others."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, float_format, is_float
from kerneltest.numerics.decompositions import RULES, is_given, rule
from kerneltest.numerics.samples import SampledArray, UntrackedError, align_samples, axes_of, promote

# These move or choose values, or count, find and compare; no number in their results is computed.
_MOVING = frozenset(
    "sort argsort take take_along_axis repeat tile roll flip fliplr flipud rot90 tril triu diag diagonal pad split "
    "array_split hsplit vsplit dsplit broadcast_arrays atleast_1d atleast_2d atleast_3d vstack hstack column_stack "
    "dstack rollaxis argmax argmin nanmax nanmin nanargmax nanargmin count_nonzero searchsorted digitize "
    "partition argpartition select choose compress extract delete insert append block isclose nonzero "
    "triu_indices_from tril_indices_from unravel_index ravel_multi_index round around fix isposinf isneginf "
    "nan_to_num resize flatnonzero argwhere diagflat lexsort allclose unstack meshgrid".split()
)
_ABOUT = frozenset("size result_type may_share_memory iscomplexobj isrealobj isscalar".split())


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A NumPy function of watched arrays.

    Raises:
      UntrackedError: how it rounds is not known.
    """
    name = func.__name__
    if found := RULES.get(f"linalg.{name}" if func.__module__ == "numpy.linalg" else name):
        return found(*args, **kwargs)
    if name in _ABOUT:
        return func(*_row((args, kwargs), 0)[0], **kwargs)
    if name in _MOVING and func.__module__ == "numpy":
        return each(func, args, kwargs)
    raise UntrackedError(f"np.{name}" if func.__module__ == "numpy" else f"{func.__module__}.{name}")


def each(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function that moves values, sample by sample."""
    watched = list(_watched((args, kwargs)))
    first = watched[0]
    rows = max(len(w.samples) for w in watched)
    given = [_row((args, kwargs), row) for row in range(rows)]
    results = [func(*a, **k) for a, k in given]
    fmt = promote(watched)

    def stacked(parts: Sequence[Any]) -> Any:
        if isinstance(parts[0], (list, tuple)):
            return type(parts[0])(stacked(several) for several in zip(*parts, strict=True))
        return first.with_samples(np.stack([np.asarray(part) for part in parts]), fmt)

    made = stacked(results)
    if isinstance(made, SampledArray):
        made.record("moved", (), func=func, args=args, kwargs=kwargs, watched=watched)
    elif first.machine.tape is not None:
        raise UntrackedError(f"the gradient of np.{func.__name__}")
    return made


def _watched(tree: Any) -> Any:
    if isinstance(tree, SampledArray):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for one in tree:
            yield from _watched(one)
    elif isinstance(tree, dict):
        yield from _watched(list(tree.values()))


def replaced(tree: Any, change: Callable[[SampledArray], Any]) -> Any:
    """Arguments with each watched array replaced."""
    if isinstance(tree, SampledArray):
        return change(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(replaced(one, change) for one in tree)
    if isinstance(tree, dict):
        return {name: replaced(one, change) for name, one in tree.items()}
    return tree


def _row(tree: Any, row: int) -> Any:
    return replaced(tree, lambda w: w.samples[row if len(w.samples) > 1 else 0])


def item(array: SampledArray, index: Any) -> Any:
    """`array[index]`."""
    parts = tuple(map(_settled, index if isinstance(index, tuple) else (index,)))
    index = parts
    if any(isinstance(part, SampledArray) for part in parts):
        return each(_item, (array, index), {})
    basic = all(isinstance(part, (int, np.integer, slice, type(None), type(...))) for part in parts)
    # An index that is one array stays where it is differentiating_at the samples' axis; several may move to the front.
    if not basic and not (len(parts) == 1 and isinstance(parts[0], (list, np.ndarray))):
        return each(_item, (array, index), {})
    made = array.with_samples(array.samples[(slice(None), *parts)])
    return made.record("moved", (), func=_item, args=(array, index), kwargs={}, watched=[array])


def _settled(part: Any) -> Any:
    """An index or a mask as an ordinary array, where it is the same in all samples."""
    alike = isinstance(part, SampledArray) and part.samples.dtype.kind in "iub" and len(part.samples) == 1
    return part.samples[0] if alike else part


def _item(array: Any, index: Any) -> Any:
    return array[index]


def put(array: SampledArray, index: Any, value: Any) -> None:
    """`array[index] = value`."""
    if array.machine.tape is not None:
        raise UntrackedError("the gradient of an assignment to a part of an array")
    parts = tuple(map(_settled, index if isinstance(index, tuple) else (index,)))
    rows = max(len(w.samples) for w in (array, *_watched((index, value))))
    samples = np.array(np.broadcast_to(array.samples, (rows, *array.shape)))
    for row in range(rows):
        samples[row][_row(parts, row) if parts else ()] = _row(value, row)
    array.samples = samples


def cast(array: SampledArray, dtype: np.dtype[Any]) -> Any:
    """`array.astype(dtype)`: in an oracle, a narrower float is a rounding that the kernel is to make too."""
    if not is_float(dtype):
        return array.with_samples(array.samples.astype(dtype))
    if not is_float(array.samples.dtype):
        return array.with_samples(array.samples.astype(np.float64))
    fmt = float_format(dtype)
    if fmt.precision >= 24:
        return array.with_samples(array.samples).record("cast", (array,))
    samples = array.machine.round_operand(array.samples, fmt, False, f"cast to {dtype.name}")
    return array.with_samples(samples).record("cast", (array,))


def _axis_rule(name: str, apply: Callable[..., Array]) -> None:
    """A function of one array that rearranges its axes: applied to all samples at once."""

    def moved(array: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(array, SampledArray):
            raise UntrackedError(f"np.{name} of this")
        made = array.with_samples(apply(array.samples, array.shape, *args, **kwargs))
        return made.record("moved", (), func=getattr(np, name), args=(array, *args), kwargs=kwargs, watched=[array])

    RULES[name] = moved


def _reshaped(s: Array, old: tuple[int, ...], shape: Any, order: str = "C", **kwargs: Any) -> Array:
    new = np.empty(old, bool).reshape(shape).shape
    if order == "F":  # as in C, the other way round
        return s.transpose(0, *range(len(old), 0, -1)).reshape(len(s), *new[::-1]).transpose(0, *range(len(new), 0, -1))
    return s.reshape(len(s), *new)


_axis_rule("reshape", _reshaped)
_axis_rule("ravel", lambda s, old, order="C": _reshaped(s, old, -1, order))
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
        s.reshape(len(s), *(1,) * (len(_tuple(shape)) - len(old)), *old), (len(s), *_tuple(shape))
    ),
)


def _tuple(shape: Any) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)


@rule("sliding_window_view")
def _windows(x: Any, *args: Any, **kwargs: Any) -> Any:
    return each(np.lib.stride_tricks.sliding_window_view, (x, *args), kwargs)


@rule("where")
def _where(condition: Any, *choices: Any) -> Any:
    if not choices:
        raise UntrackedError("np.where(condition) alone")
    first = next(_watched((condition, *choices)))
    made = first.with_samples(np.where(*align_samples((condition, *choices))), promote(choices))
    return made.record("where", (condition, *choices))


@rule("concatenate", "concat")
def _concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    watched = list(_watched(arrays))
    if axis is None:
        arrays, axis = [np.reshape(a, -1) for a in arrays], 0
    rows = max(len(w.samples) for w in watched)
    ndim = np.ndim(arrays[0])
    parts = [a.samples if isinstance(a, SampledArray) else np.asarray(a)[None] for a in arrays]
    whole = [np.broadcast_to(p, (rows, *p.shape[1:])) for p in parts]
    (at,) = axes_of(axis, ndim)
    made = watched[0].with_samples(np.concatenate(whole, at), promote(watched))
    return made.record("moved", (), func=np.concatenate, args=(arrays, axis), kwargs={}, watched=watched)


@rule("stack")
def _stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    return np.concatenate([np.expand_dims(a, axis) for a in arrays], axis)


def _reducing(name: str, ufunc: np.ufunc) -> None:
    def reduced(array: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
                initial: Any = None, where: Any = True) -> Any:  # fmt: skip
        more = {"initial": initial} if is_given(initial) else {}
        return ufunc.reduce(array, axis=axis, keepdims=keepdims is True, where=where, **more)

    RULES[name] = reduced


for _name, _ufunc in (("sum", np.add), ("prod", np.multiply), ("any", np.logical_or), ("all", np.logical_and)):
    _reducing(_name, _ufunc)


def _extreme(name: str, ufunc: np.ufunc) -> None:
    def reduced(array: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None,
                where: Any = True) -> Any:  # fmt: skip
        more = {"initial": initial} if is_given(initial) else {}
        return ufunc.reduce(array, axis=axis, keepdims=keepdims is True, where=where, **more)

    for each_name in (name, f"a{name}"):
        RULES[each_name] = reduced


_extreme("max", np.maximum)
_extreme("min", np.minimum)


def _made_like(name: str) -> None:
    def like(array: Any, *args: Any, **kwargs: Any) -> Any:
        # TrackedArray, since an oracle may write into it.
        values = getattr(np, name)(np.empty(np.shape(array), array.dtype), *args, **kwargs)
        return array.with_samples(values[None])

    RULES[name] = like


for _name in ("zeros_like", "ones_like", "empty_like", "full_like"):
    _made_like(_name)


@rule("copy")
def _copy(array: Any, *args: Any, **kwargs: Any) -> Any:
    return array.copy()


@rule("shape")
def _shape(a: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = a.shape
    return shape


@rule("ndim")
def _ndim(a: Any) -> int:
    return len(a.shape)


@rule("real")
def _real(array: Any) -> Any:
    return array


@rule("astype")
def _astype(x: Any, dtype: Any, **kwargs: Any) -> Any:
    return x.astype(dtype)


@rule("array_equal")
def _array_equal(a: Any, b: Any, **kwargs: Any) -> bool:
    cases = next(_watched((a, b))).machine.cases
    equal = {bool(np.array_equal(_row(a, case), _row(b, case), **kwargs)) for case in range(cases)}
    if len(equal) > 1:
        raise UntrackedError("np.array_equal of several cases")
    return equal.pop()
