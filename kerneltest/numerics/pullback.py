"""Goes back over what an oracle did to watched arrays: its gradient, computed as a backward pass would compute it.

The cotangents are watched too, so each operation of the way back is rounded like those of the way there.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat, is_float
from kerneltest.numerics import products
from kerneltest.numerics.functions import replaced
from kerneltest.numerics.output_rounding import propagate_strays, strays, sum_strays
from kerneltest.numerics.samples import SampledArray, TapeEntry, UntrackedError

# From a cotangent, what came out, and what went in, to the cotangents of what went in.
Rule = Callable[..., Sequence[Any]]


def pull_back(
    tape: Sequence[TapeEntry],
    outputs: Sequence[tuple[SampledArray, SampledArray, FloatFormat]],
    wanted: Sequence[SampledArray],
) -> list[Any]:
    """The cotangents of arrays, from those of what was computed from them; None where nothing depends on an array.

    Args:
      tape: the operations, in their order.
      outputs: what came of them, with its cotangent and the format in which it is stored.
      wanted: arrays that went in.

    Raises:
      UntrackedError: an operation whose derivative is not known here.
    """
    found: dict[int, Any] = {id(output): cotangent for output, cotangent, _ in outputs}
    known = {id(output): strays(output, cotangent, fmt) for output, cotangent, fmt in outputs}
    for step in reversed(tape):
        cotangent, stray = found.pop(id(step.output), None), known.pop(id(step.output), None)
        if cotangent is None:
            continue
        step.output.machine.differentiating_at = step.origin
        inputs, parts = _pulled(step, cotangent)
        for each, part in zip(inputs, parts, strict=True):
            if part is None or not isinstance(each, SampledArray) or not is_float(each.samples.dtype):
                continue
            whole = _unbroadcast(part, each.shape)
            if stray is not None and whole is not part:
                whole = whole.with_samples(whole.samples + sum_strays(step, each, stray))
            found[id(each)] = whole if id(each) not in found else found[id(each)] + whole
        if stray is not None:
            known.update((id(each), passed) for each, passed in _propagate(step, cotangent, stray))
    return [found.get(id(each)) for each in wanted]


def _propagate(step: TapeEntry, cotangent: Any, stray: Array) -> Iterator[tuple[SampledArray, Array]]:
    if step.name != "moved":
        yield from propagate_strays(step, cotangent, stray)
    elif stray.shape[1:] == cotangent.shape:
        for each, part in zip(step.options["watched"], _moved(step, cotangent.with_samples(stray)), strict=True):
            if part is not None:
                yield each, part.samples


def _pulled(step: TapeEntry, cotangent: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    if step.name == "moved":
        return step.options["watched"], _moved(step, cotangent)
    if step.name in _FLAT:
        return step.inputs, [None] * len(step.inputs)
    if step.name not in _RULES:
        raise UntrackedError(f"the derivative of {step.name}")
    return step.inputs, _RULES[step.name](cotangent, step.output, *step.inputs, **step.options)


_NOTHING = 2.0**-16  # of how far samples move: an exact value that is only the rounding of float64


def _unbroadcast(cotangent: Any, shape: tuple[int, ...]) -> Any:
    more = cotangent.ndim - len(shape)
    axes = tuple(i for i in range(cotangent.ndim) if i < more or (shape[i - more] == 1 and cotangent.shape[i] != 1))
    return np.reshape(np.sum(cotangent, axis=axes), shape) if axes or more else cotangent


_FLAT = frozenset(
    "sign rint floor ceil trunc isnan isfinite isinf signbit equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_not logical_xor floor_divide heaviside logical_or.reduce logical_and.reduce".split()
)


def _share_of_larger(g: Any, out: Any, a: Any, b: Any) -> Sequence[Any]:
    """To the operand that was chosen; of two that are equal either may be, or both by halves."""
    chosen, other = np.equal(a, out), np.equal(b, out)
    part = chosen * (1.0 - 0.5 * other)
    noise = g.machine.random_parts(part.samples.shape[1:])
    tied = (chosen & other).samples
    part = part.with_samples(np.where(tied, noise, part.samples))
    return g * part, g * (1.0 - part)


def _power(g: Any, out: Any, a: Any, b: Any) -> Sequence[Any]:
    by_exponent = g * out * np.log(a) if isinstance(b, SampledArray) and b.fmt is not None else None
    return g * (b * a ** (b - 1)), by_exponent


_LN2, _LN10 = math.log(2), math.log(10)

_RULES: dict[str, Rule] = {
    "add": lambda g, out, a, b: (g, g),
    "subtract": lambda g, out, a, b: (g, -g),
    "multiply": lambda g, out, a, b: (g * b, g * a),
    "divide": lambda g, out, a, b: (g / b, -(g * out) / b),
    "negative": lambda g, out, a: (-g,),
    "positive": lambda g, out, a: (g,),
    "reciprocal": lambda g, out, a: (-(g * out) * out,),
    "exp": lambda g, out, a: (g * out,),
    "exp2": lambda g, out, a: (g * out * _LN2,),
    "expm1": lambda g, out, a: (g * (out + 1),),
    "log": lambda g, out, a: (g / a,),
    "log2": lambda g, out, a: (g / (a * _LN2),),
    "log10": lambda g, out, a: (g / (a * _LN10),),
    "log1p": lambda g, out, a: (g / (1 + a),),
    "sqrt": lambda g, out, a: (g * 0.5 / out,),
    "square": lambda g, out, a: (g * (2 * a),),
    "power": _power,
    "tanh": lambda g, out, a: (g * (1 - out * out),),
    "sin": lambda g, out, a: (g * np.cos(a),),
    "cos": lambda g, out, a: (-(g * np.sin(a)),),
    "tan": lambda g, out, a: (g * (1 + out * out),),
    "sinh": lambda g, out, a: (g * np.cosh(a),),
    "cosh": lambda g, out, a: (g * np.sinh(a),),
    "arctan": lambda g, out, a: (g / (1 + a * a),),
    "arcsin": lambda g, out, a: (g / np.sqrt(1 - a * a),),
    "arccos": lambda g, out, a: (-g / np.sqrt(1 - a * a),),
    "absolute": lambda g, out, a: (g * _signs(g, a),),
    "fabs": lambda g, out, a: (g * _signs(g, a),),
    "maximum": _share_of_larger,
    "minimum": _share_of_larger,
    "fmax": _share_of_larger,
    "fmin": _share_of_larger,
    "logaddexp": lambda g, out, a, b: (g * np.exp(a - out), g * np.exp(b - out)),
    "hypot": lambda g, out, a, b: (g * (a / out), g * (b / out)),
    "cast": lambda g, out, a: (g,),
    "where": lambda g, out, condition, a, b: (None, np.where(condition, g, 0.0), np.where(condition, 0.0, g)),
}


def _signs(g: Any, a: Any) -> Any:
    """The sign, and anything between -1 and 1 at zero."""
    sign = np.sign(a)
    noise = 2 * g.machine.random_parts(sign.samples.shape[1:]) - 1
    return sign.with_samples(np.where(a.samples == 0, noise, sign.samples))


def rule(name: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        _RULES[name] = function
        return function

    return register


def _spread_again(reduced: Any, axes: Sequence[int], keepdims: bool) -> Any:
    """A reduced array with its axes of length 1."""
    return reduced if keepdims else np.expand_dims(reduced, tuple(each - 1 for each in axes))


@rule("add.reduce")
def _sum(g: Any, out: Any, a: Any, axes: Sequence[int], keepdims: bool, where: Any) -> Sequence[Any]:
    whole = np.broadcast_to(_spread_again(g, axes, keepdims), a.shape)
    return (whole if where is True else np.where(where, whole, 0.0),)


@rule("multiply.reduce")
def _product_of(g: Any, out: Any, a: Any, axes: Sequence[int], keepdims: bool, where: Any) -> Sequence[Any]:
    if where is not True:
        raise UntrackedError("the derivative of a product with where=")
    return (_spread_again(g * out, axes, keepdims) / a,)


@rule("maximum.reduce")
@rule("minimum.reduce")
def _largest(g: Any, out: Any, a: Any, axes: Sequence[int], keepdims: bool, where: Any) -> Sequence[Any]:
    """To the element that was chosen; of several that are equal any may be, or all by equal parts."""
    chosen = np.equal(a, _spread_again(out, axes, keepdims)).samples.astype(np.float64)
    if where is not True:
        chosen = chosen * np.broadcast_to(np.asarray(where), a.shape)
    chosen = chosen * (0.5 + a.machine.random_parts(chosen.shape[1:]))
    part = chosen / np.maximum(chosen.sum(axis=tuple(axes), keepdims=True), np.finfo(float).tiny)
    return (_spread_again(g.with_samples(_without_shifts(g.samples)), axes, keepdims) * a.with_samples(part),)


def _without_shifts(samples: Array) -> Array:
    """The cotangent of a maximum, in every second row without what is 0 but for rounding: a maximum that shifts a
    softmax has no slope, and most kernels leave it out."""
    off = np.abs(samples - samples[:1]).max(axis=0)
    out = samples.copy()
    out[1::2] = np.where(np.abs(samples[0]) <= _NOTHING * off, 0.0, out[1::2])
    return out


@rule("add.accumulate")
def _running(g: Any, out: Any, a: Any, axis: int) -> Sequence[Any]:
    return (np.flip(np.add.accumulate(np.flip(g, axis - 1), axis=axis - 1), axis - 1),)


@rule("product")
def _factors(g: Any, out: Any, left: Any, right: Any, one: Sequence[str], two: Sequence[str],
             lengths: Mapping[str, int], **named: Any) -> Sequence[Any]:  # fmt: skip
    letters = list(named["result"])

    def pulled(own: Any, mine: Sequence[str], other: Any, theirs: Sequence[str]) -> Any:
        if not isinstance(own, SampledArray):
            return None
        full = [letter for i, letter in enumerate(mine) if own.shape[i] == lengths[letter]]
        part: Any = products.product(g, letters, other, list(theirs), full)
        return np.reshape(part, own.shape)

    return pulled(left, one, right, two), pulled(right, two, left, one)


# What these choose depends on the values, so that positions in place of values would be moved otherwise.
_BY_VALUE = frozenset(
    "sort argsort partition nanmax nanmin argmax argmin nanargmax nanargmin count_nonzero searchsorted digitize "
    "nan_to_num round around fix isclose nonzero".split()
)


_FIRST = 1 << 40  # as a position, so that no number that an oracle fills in is taken for one


def _moved(step: TapeEntry, g: Any) -> Sequence[Any]:
    """Back to where each element came from, by moving positions in place of values."""
    func, watched = step.options["func"], step.options["watched"]
    if func.__name__ in _BY_VALUE:
        raise UntrackedError(f"the derivative of np.{func.__name__}")
    starts: dict[int, int] = {}
    count = 1  # 0 is what nothing moved to, such as a padding
    for each in watched:
        if is_float(each.samples.dtype) and id(each) not in starts:
            starts[id(each)] = count
            count += int(np.prod(each.shape))

    def positions(each: SampledArray, row: int) -> Array:
        if id(each) not in starts:
            return np.asarray(each.samples[min(row, len(each.samples) - 1)])
        size = int(np.prod(each.shape))
        return (_FIRST + starts[id(each)] + np.arange(size, dtype=np.float64)).reshape(each.shape)

    varying = any(len(each.samples) > 1 and id(each) not in starts for each in watched)
    rows = len(g.samples)
    froms = []
    for row in range(rows if varying else 1):
        given = step.options["args"], step.options["kwargs"]
        args, kwargs = replaced(given, functools.partial(positions, row=row))
        moved = np.asarray(func(*args, **kwargs))
        froms.append(np.where(np.isfinite(moved) & (moved > _FIRST), moved - _FIRST, 0).astype(np.int64).ravel())
    totals, masses = np.empty((rows, count)), np.empty((rows, count))
    for row in range(rows):
        at, values = froms[min(row, len(froms) - 1)], g.samples[row].ravel()
        totals[row] = np.bincount(at, values, count)
        masses[row] = np.bincount(at, np.abs(values), count)
    terms = int(np.bincount(froms[0], minlength=2)[1:].max(initial=0))
    if terms > 1:
        totals = g.machine.round_sum(totals, masses, terms, g.compute)
    parts = []
    for each in watched:
        start = starts.get(id(each))
        size = int(np.prod(each.shape))
        parts.append(
            None
            if start is None
            else each.with_samples(totals[:, start : start + size].reshape(len(totals), *each.shape))
        )
    return parts
