"""The gradient of an oracle, computed as a backward pass over the operations on its tracked arrays.

The cotangents are tracked as well, so that the operations of the backward pass are rounded like those of the forward
pass.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat, is_float
from kerneltest.numerics import products
from kerneltest.numerics.array_functions import replace_tracked
from kerneltest.numerics.samples import (
    Operand,
    Option,
    SampledArray,
    TapeEntry,
    UntrackedError,
    align_samples,
    samples_of,
)
from kerneltest.numerics.ufuncs import zero_nonfinite

# The effect of rounded stored outputs on the sums of a backward pass.
#
# For `o = p @ v`, `sum_k p_k dp_k` is `sum_d o_d do_d`: a sum of values times their cotangents is equal on both sides
# of a matrix product. If the backward pass needs the first, as that of a softmax does, a kernel may compute the second
# from its stored output (Dao, "FlashAttention-2", 2023, section 3.1), including the rounding errors of the output. The
# error of values times cotangents is called a stray here.

_SAME = frozenset("exp exp2 cast where".split())  # the sum of values times cotangents is that of their inputs


# The error of the cotangent of an operand of an elementwise step that was broadcast. The stray of the step's output
# broadcasts to the output's shape; an axis of length 1 is the sum over it.
def _sum_strays(step: TapeEntry, operand: SampledArray, stray: Array) -> Array:
    shape = (1,) * (step.output.ndim - operand.ndim) + operand.shape
    axes = tuple(1 + i for i, length in enumerate(shape) if length == 1)
    whole: Array = np.sum(stray, axis=axes, keepdims=True)
    if step.name in ("multiply", "divide"):
        (values,) = align_samples([operand], len(shape))
        whole = zero_nonfinite(whole / values)
    sign = -1.0 if step.name in ("divide", "subtract") and operand is step.inputs[1] else 1.0
    return sign * whole.reshape(len(whole), *operand.shape)


# The strays of the inputs of a step for which a sum over them is a sum over the output.
def _propagate(step: TapeEntry, cotangent: Operand, stray: Array) -> Iterator[tuple[SampledArray, Array]]:
    tracked = [each for each in step.inputs if isinstance(each, SampledArray)]
    if step.name == "moved":
        if stray.shape[1:] == cotangent.shape:
            parts = _pull_back_move(step, cotangent.with_samples(stray))
            tracked = step.options["tracked"]
            yield from ((each, part.samples) for each, part in zip(tracked, parts, strict=True) if part is not None)
    elif step.name in _SAME or (step.name in ("multiply", "divide") and len(tracked) == 1):
        yield from ((each, stray) for each in tracked if each.shape == step.output.shape)
    elif step.name == "product":
        one, two, result = (step.options[name] for name in ("one", "two", "result"))
        (left, right), exact = step.inputs, _exact_product(step.inputs, one, two, result)
        whole = stray + zero_nonfinite(cotangent.samples * (step.output.samples - exact))
        for each, mine in ((left, one), (right, two)):
            if isinstance(each, SampledArray):
                yield each, _sum_to_operand(whole, result, each, mine, step.options["lengths"])


# The matrix product without rounding.
def _exact_product(inputs: Sequence[Operand], one: Sequence[str], two: Sequence[str], result: Sequence[str]) -> Array:
    numbers = {letter: i for i, letter in enumerate(dict.fromkeys([*one, *two]), 1)}
    left, right = map(samples_of, inputs)
    own, other, whole = ([0, *(numbers[letter] for letter in letters)] for letters in (one, two, result))
    return np.asarray(np.einsum(left, own, right, other, whole, optimize=True))


# The stray of a product summed over the axes that an operand lacks, in the operand's axis order.
def _sum_to_operand(
    stray: Array, result: Sequence[str], own: SampledArray, mine: Sequence[str], lengths: Mapping[str, int]
) -> Array:
    whole = [letter for i, letter in enumerate(mine) if own.shape[i] == lengths[letter] and letter in result]
    summed: Array = np.sum(stray, axis=tuple(i for i, letter in enumerate(result, 1) if letter not in whole))
    order = [letter for letter in result if letter in whole]
    summed = summed.transpose(0, *(1 + order.index(letter) for letter in mine if letter in whole))
    kept = iter(summed.shape[1:])
    return summed.reshape(len(summed), *(next(kept) if letter in whole else 1 for letter in mine))


Rule = Callable[..., Sequence[Operand]]
"""Maps a cotangent, the output and the inputs of an operation to the cotangents of the inputs."""

# Operations whose derivative is zero wherever it exists.
_ZERO_DERIVATIVE = frozenset(
    "sign rint floor ceil trunc isnan isfinite isinf signbit equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_not logical_xor floor_divide heaviside logical_or.reduce logical_and.reduce".split()
)
# Functions of NumPy whose selection depends on the values, so that it cannot be replayed on positions.
_BY_VALUE = frozenset(
    "sort argsort partition nanmax nanmin argmax argmin nanargmax nanargmin count_nonzero searchsorted digitize "
    "nan_to_num round around fix isclose nonzero".split()
)
_FIRST = 1 << 40  # the first position, so large that no number that an oracle fills in is mistaken for one
_NEGLIGIBLE = 2.0**-16  # of how far samples move: a smaller exact value is a rounding error of float64
_LN2, _LN10 = math.log(2), math.log(10)


def pull_back(
    tape: Sequence[TapeEntry],
    outputs: Sequence[tuple[SampledArray, SampledArray, FloatFormat]],
    wanted: Sequence[SampledArray],
) -> list[Operand]:
    """Returns the cotangents of the `wanted` arrays, each None if no output depends on the array.

    Outputs come with their cotangents and the formats in which they are stored. UntrackedError if the derivative of an
    operation is unknown.
    """
    cotangents: dict[int, Operand] = {id(output): cotangent for output, cotangent, _ in outputs}
    known_strays: dict[int, Array] = {}
    for output, cotangent, fmt in outputs:
        stored = output.rounding.round_stored(output.samples, fmt)
        known_strays[id(output)] = zero_nonfinite(cotangent.samples * (stored - output.samples))
    for step in reversed(tape):
        cotangent, stray = cotangents.pop(id(step.output), None), known_strays.pop(id(step.output), None)
        if cotangent is None:
            continue
        step.output.rounding.differentiating_at = step.origin
        inputs, parts = _pull_back_step(step, cotangent)
        for each, part in zip(inputs, parts, strict=True):
            if part is None or not isinstance(each, SampledArray) or not is_float(each.samples.dtype):
                continue
            whole = _unbroadcast(part, each.shape)
            if stray is not None and whole is not part:
                whole = whole.with_samples(whole.samples + _sum_strays(step, each, stray))
            cotangents[id(each)] = whole if id(each) not in cotangents else cotangents[id(each)] + whole
        if stray is not None:
            known_strays.update((id(each), part) for each, part in _propagate(step, cotangent, stray))
    return [cotangents.get(id(each)) for each in wanted]


# The inputs of a step and their cotangents, None for those without one.
def _pull_back_step(step: TapeEntry, cotangent: Operand) -> tuple[Sequence[Operand], Sequence[Operand]]:
    if step.name == "moved":
        return step.options["tracked"], _pull_back_move(step, cotangent)
    if step.name in _ZERO_DERIVATIVE:
        return step.inputs, [None] * len(step.inputs)
    if step.name not in _RULES:
        raise UntrackedError(f"the derivative of {step.name}")
    return step.inputs, _RULES[step.name](cotangent, step.output, *step.inputs, **step.options)


# Sums a cotangent over the axes along which an input of a shape was broadcast.
def _unbroadcast(cotangent: Operand, shape: tuple[int, ...]) -> Operand:
    more = cotangent.ndim - len(shape)
    axes = tuple(i for i in range(cotangent.ndim) if i < more or (shape[i - more] == 1 and cotangent.shape[i] != 1))
    return np.reshape(np.sum(cotangent, axis=axes), shape) if axes or more else cotangent


# Passes the cotangent to the selected operand; between two equal ones it is split at random.
def _pull_back_selection(g: Operand, out: Operand, a: Operand, b: Operand) -> Sequence[Operand]:
    chosen, other = np.equal(a, out), np.equal(b, out)
    part = chosen * (1.0 - 0.5 * other)
    noise = g.rounding.random_parts(part.shape)
    part = part.with_samples(np.where((chosen & other).samples, noise, part.samples))
    return g * part, g * (1.0 - part)


def _power(g: Operand, out: Operand, a: Operand, b: Operand) -> Sequence[Operand]:
    by_exponent = g * out * np.log(a) if isinstance(b, SampledArray) and b.formats else None
    return g * (b * a ** (b - 1)), by_exponent


# Random numbers between -1 and 1 at zero.
def _signs(g: Operand, a: Operand) -> Operand:
    sign = np.sign(a)
    noise = 2 * g.rounding.random_parts(sign.samples.shape[1:]) - 1
    return sign.with_samples(np.where(a.samples == 0, noise, sign.samples))


# A reduced array with its axes restored, at length 1.
def _restore_axes(reduced: Operand, axes: Sequence[int], keepdims: bool) -> Operand:
    return reduced if keepdims else np.expand_dims(reduced, tuple(axis - 1 for axis in axes))


def _sum(g: Operand, out: Operand, a: Operand, axes: Sequence[int], keepdims: bool, where: Option) -> Sequence[Operand]:
    whole = np.broadcast_to(_restore_axes(g, axes, keepdims), a.shape)
    return (whole if where is True else np.where(where, whole, 0.0),)


def _product_of(
    g: Operand, out: Operand, a: Operand, axes: Sequence[int], keepdims: bool, where: Option
) -> Sequence[Operand]:
    if where is not True:
        raise UntrackedError("the derivative of a product with where=")
    return (_restore_axes(g * out, axes, keepdims) / a,)


# Passes the cotangent to the selected element; between equal ones it is split at random.
def _pull_back_extremum(
    g: Operand, out: Operand, a: Operand, axes: Sequence[int], keepdims: bool, where: Option
) -> Sequence[Operand]:
    chosen = np.equal(a, _restore_axes(out, axes, keepdims)).samples.astype(np.float64)
    if where is not True:
        chosen = chosen * np.broadcast_to(np.asarray(where), a.shape)
    chosen = chosen * (0.5 + a.rounding.random_parts(chosen.shape[1:]))
    part = chosen / np.maximum(chosen.sum(axis=tuple(axes), keepdims=True), np.finfo(float).tiny)
    return (_restore_axes(g.with_samples(_without_shift_cotangents(g.samples)), axes, keepdims) * a.with_samples(part),)


# The cotangent of a maximum, in every second row without values that are zero up to rounding: a maximum that shifts a
# softmax has no influence on it, and most kernels omit its gradient.
def _without_shift_cotangents(samples: Array) -> Array:
    off = np.abs(samples - samples[:1]).max(axis=0)
    out = samples.copy()
    out[1::2] = np.where(np.abs(samples[0]) <= _NEGLIGIBLE * off, 0.0, out[1::2])
    return out


def _factors(g: Operand, out: Operand, left: Operand, right: Operand, one: Sequence[str], two: Sequence[str],
             lengths: Mapping[str, int], **named: Option) -> Sequence[Operand]:  # fmt: skip
    letters = list(named["result"])

    def pull(own: Operand, mine: Sequence[str], other: Operand, theirs: Sequence[str]) -> Operand:
        if not isinstance(own, SampledArray):
            return None
        full = [letter for i, letter in enumerate(mine) if own.shape[i] == lengths[letter]]
        part: Operand = products.product(g, letters, other, list(theirs), full)
        return np.reshape(part, own.shape)

    return pull(left, one, right, two), pull(right, two, left, one)


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
    **dict.fromkeys(("absolute", "fabs"), lambda g, out, a: (g * _signs(g, a),)),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _pull_back_selection),
    "logaddexp": lambda g, out, a, b: (g * np.exp(a - out), g * np.exp(b - out)),
    "hypot": lambda g, out, a, b: (g * (a / out), g * (b / out)),
    "cast": lambda g, out, a: (g,),
    "where": lambda g, out, condition, a, b: (None, np.where(condition, g, 0.0), np.where(condition, 0.0, g)),
    "add.reduce": _sum,
    "multiply.reduce": _product_of,
    **dict.fromkeys(("maximum.reduce", "minimum.reduce"), _pull_back_extremum),
    "add.accumulate": lambda g, out, a, axis: (
        np.flip(np.add.accumulate(np.flip(g, axis - 1), axis=axis - 1), axis - 1),
    ),
    "product": _factors,
}


# The cotangents of the inputs of a function that moves values, by applying it to their positions.
def _pull_back_move(step: TapeEntry, g: Operand) -> Sequence[Operand]:
    func, tracked = step.options["func"], step.options["tracked"]
    if func.__name__ in _BY_VALUE:
        raise UntrackedError(f"the derivative of np.{func.__name__}")
    starts: dict[int, int] = {}
    count = 1  # 0 is for elements that are not moved from an input, such as a padding
    for each in tracked:
        if is_float(each.samples.dtype) and id(each) not in starts:
            starts[id(each)] = count
            count += math.prod(each.shape)

    def positions(each: SampledArray, row: int) -> Array:
        if id(each) not in starts:
            return np.asarray(each.samples[min(row, len(each.samples) - 1)])
        return (_FIRST + starts[id(each)] + np.arange(math.prod(each.shape), dtype=np.float64)).reshape(each.shape)

    varying = any(len(each.samples) > 1 and id(each) not in starts for each in tracked)
    rows = len(g.samples)
    sources = []
    for row in range(rows if varying else 1):
        args_and_kwargs = step.options["args"], step.options["kwargs"]
        args, kwargs = replace_tracked(args_and_kwargs, functools.partial(positions, row=row))
        moved = np.asarray(func(*args, **kwargs))
        sources.append(np.where(np.isfinite(moved) & (moved > _FIRST), moved - _FIRST, 0).astype(np.int64).ravel())
    totals, masses = np.empty((rows, count)), np.empty((rows, count))
    for row in range(rows):
        at, values = sources[min(row, len(sources) - 1)], g.samples[row].ravel()
        totals[row] = np.bincount(at, values, count)
        masses[row] = np.bincount(at, np.abs(values), count)
    terms = int(np.bincount(sources[0], minlength=2)[1:].max(initial=0))
    if terms > 1:
        totals = g.rounding.round_sum(totals, masses, terms, g.compute)

    def part(each: SampledArray) -> Operand:
        if (start := starts.get(id(each))) is None:
            return None
        return each.with_samples(totals[:, start : start + math.prod(each.shape)].reshape(len(totals), *each.shape))

    return [*map(part, tracked)]
