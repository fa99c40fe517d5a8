"""Diagnoses of mismatches: rules for common mistakes, in order of preference. The first that fits is reported.

A rule fits only if it accounts for every wrong element. Its text is for people; nothing parses it.
"""

import itertools
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, cast, float_format, is_float, parse_dtype, widen
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.compare import Comparison, OutputAxis
from kerneltest.oracle.evaluation import evaluator
from kerneltest.plan.signatures import Signature
from kerneltest.trace.tracing import trace

# A wrong output with its case, as the rules of diagnoses get it.


class OutOfTimeError(Exception):
    """The time for a diagnosis is over."""


@dataclass(frozen=True, slots=True)
class MismatchContext:
    """A wrong output with its case: the input of every rule."""

    # pairing, signature, arguments: of the case
    pairing: Pairing
    signature: Signature
    arguments: Mapping[str, Array]
    output: int  # the number of the wrong output, from 0
    comparison: Comparison  # the output's comparison; at least one element is wrong
    axes: Sequence[OutputAxis]  # the output's axes
    deadline: float = math.inf  # when to stop evaluating the oracle, in seconds of the monotonic clock
    expecting: Callable[[], AbstractContextManager[None]] = nullcontext  # entered for each evaluation of the oracle

    @property
    def inputs_are_finite(self) -> bool:
        """True if no argument contains a NaN or an infinity."""
        floats = (value for value in self.arguments.values() if is_float(value.dtype))
        return all(np.isfinite(value.astype(np.float64)).all() for value in floats)

    def explains(self, values: Array, spread: float = 0.0) -> bool:
        """Checks whether the output equals other values than the oracle's everywhere, within the same bound.

        Args:
          values: the other values.
          spread: their own relative error.
        """
        rounded = cast(np.asarray(values), self.comparison.actual.dtype).astype(np.float64)
        got = self.comparison.got
        with np.errstate(all="ignore"):
            allowed = self.comparison.bound + spread * np.abs(values)
            near = np.abs(got - np.asarray(values, np.float64)) <= allowed
        unchecked = np.isinf(self.comparison.bound)
        return bool(((got == rounded) | near | (np.isnan(got) & np.isnan(rounded)) | unchecked).all())

    def evaluate_oracle(self, leaves: Mapping[str, Array]) -> Sequence[Array]:
        """Returns the oracle's outputs for some arguments.

        Raises:
          OutOfTimeError: the deadline is over.
        """
        if time.monotonic() > self.deadline:
            raise OutOfTimeError
        with self.expecting():
            return evaluator(self.pairing, self.signature, ())(leaves)


# Relations between what a kernel computes and what its oracle does, such as a transposition or a shift by a row.
#
# They hold everywhere or not at all, and say as much of a wrong oracle as of a wrong kernel.

_ENOUGH_VALUES = 3  # different values, so that no relation holds by chance
_ROUNDINGS = 8.0  # of the output's dtype, by which a related value may differ
_CLEARLY = 4.0  # times as many: values so far apart are not equal
_MOST_SHIFTED = 2  # rows

# What an oracle or a kernel may lack, and the relation of the kernel's output to the oracle's.
_FUNCTIONS: tuple[tuple[Callable[[Array], Array], str], ...] = (
    (np.square, "the square of the expected value"),
    (np.sqrt, "the square root of the expected value"),
    (lambda x: 1 / x, "the reciprocal of the expected value"),
    (np.exp, "the exponential of the expected value"),
    (np.log, "the logarithm of the expected value"),
    (np.abs, "the absolute value of the expected one"),
    (lambda x: 1 - x, "one less the expected value"),
)


def output_relation(mismatch: MismatchContext) -> str:
    """Returns the relation of a wrong output to the expected one, in words; "" if none holds."""
    got, expected = mismatch.comparison.got, mismatch.comparison.wanted
    checked = np.isfinite(mismatch.comparison.bound)
    if not mismatch.inputs_are_finite or len(np.unique(expected[checked])) < _ENOUGH_VALUES:
        return ""
    for values, part, words in _candidates(mismatch, got, expected):
        here = checked[part]
        if _equals(mismatch, got[part], values, here) and _differs(mismatch, expected[part], values, here):
            return words
    return ""


# As far as the rounding of the output's dtype lets one see it.
def _equals(mismatch: MismatchContext, got: Array, values: Array, checked: Array) -> bool:
    dtype = mismatch.comparison.actual.dtype
    if got.shape != values.shape or len(np.unique(got[checked])) < _ENOUGH_VALUES:
        return False
    with np.errstate(all="ignore"):
        same = (np.abs(got - values) <= _roundings(mismatch, got, values)) | (np.isnan(got) & np.isnan(values))
        same |= cast(values, dtype).astype(np.float64) == got
    return bool((same | ~checked).all())


# In most places.
def _differs(mismatch: MismatchContext, expected: Array, values: Array, checked: Array) -> bool:
    with np.errstate(all="ignore"):
        apart = ~(np.abs(expected - values) <= _CLEARLY * _roundings(mismatch, expected, values))
    return bool(np.mean(apart[checked]) > 1 / 2)


# How far apart rounding may bring two numbers.
def _roundings(mismatch: MismatchContext, one: Array, other: Array) -> Array:
    dtype = mismatch.comparison.actual.dtype
    unit = float_format(dtype).unit_roundoff if is_float(dtype) else 0.0
    return _ROUNDINGS * unit * (np.abs(one) + np.abs(other))


_Candidate = tuple[Array, tuple[slice, ...], str]


# Other values, the part of the output that they are compared with, and the relation in words.
def _candidates(mismatch: MismatchContext, got: Array, expected: Array) -> Iterator[_Candidate]:
    whole = (slice(None),) * expected.ndim
    names = [axis.name for axis in mismatch.axes]
    for order in itertools.permutations(range(expected.ndim)):
        turned = expected.transpose(order)
        if list(order) != sorted(order) and turned.shape == expected.shape:
            yield turned, whole, f"it is the expected output with its axes in the order {', '.join(map(str, order))}"
    for place, name in enumerate(names):
        length = expected.shape[place]
        yield np.flip(expected, place), whole, f"it is the expected output reversed along {name}"
        for by in range(1, min(_MOST_SHIFTED, length - 1) + 1):
            words = f"{by} place{'s' * (by > 1)} of {name}"
            late, early = _part(whole, place, slice(by, None)), _part(whole, place, slice(None, -by))
            yield expected[late], early, f"each is the expected value {words} further on"
            yield expected[early], late, f"each is the expected value {words} further back"
    with np.errstate(all="ignore"):
        difference = float(np.median(got - expected))
        size = "large" if difference > 0 else "small"
        yield expected + difference, whole, f"each is {abs(difference):.4g} too {size}"
        for function, words in _FUNCTIONS:
            yield function(expected), whole, f"each is {words}"
        for place, name in enumerate(names):
            ratio = np.median(got / expected, axis=place, keepdims=True)
            if expected.shape[place] >= _ENOUGH_VALUES:
                yield expected * ratio, whole, f"along {name}, each is the expected value times one factor"


def _part(whole: tuple[slice, ...], place: int, part: slice) -> tuple[slice, ...]:
    return (*whole[:place], part, *whole[place + 1 :])


def diagnose(mismatch: MismatchContext, *, is_gradient: bool = False) -> str:
    """Returns the text of the first rule that fits a mismatch; "" if none fits in time.

    The rules that read the inputs of the oracle say nothing of a gradient.
    """
    try:
        return next((words for rule in (_OF_OUTPUTS if is_gradient else _RULES) if (words := rule(mismatch))), "")
    except OutOfTimeError:
        return ""


def describe_special_inputs(arguments: Mapping[str, Array]) -> str:
    """Returns a list of NaNs and infinities among inputs, such as `x[3, 5] is nan`; a count if there are above four."""
    parts: list[str] = []
    for path, value in arguments.items():
        if not is_float(value.dtype):
            continue
        wide = value.astype(np.float64)
        places = np.argwhere(~np.isfinite(wide))
        if len(places) > 4:
            parts.append(f"{path} contains {len(places)} NaNs or infinities")
        else:
            parts += [f"{path}[{', '.join(map(str, place))}] is {wide[tuple(place)]}" for place in places.tolist()]
    return "; ".join(parts)


def _only_where_masked(mismatch: MismatchContext) -> str:
    for path, leaf in mismatch.signature.leaves(mismatch.pairing).items():
        mask = mismatch.arguments[path] == np.asarray(leaf.mask_values[1]).astype(mismatch.arguments[path].dtype)
        if not leaf.kind.is_mask or mask.shape != mismatch.comparison.wrong.shape:
            continue
        if not mask.all() and not (mismatch.comparison.wrong & mask).any():
            return f"only where {path} is false"
    return ""


# The output is a sum that omits one block of a dim, or counts that block twice.
def _block_of_a_sum(mismatch: MismatchContext) -> str:
    has_floats = any(is_float(value.dtype) for value in mismatch.arguments.values())
    if not mismatch.inputs_are_finite or (has_floats and not is_float(mismatch.comparison.actual.dtype)):
        return ""  # integers made of floats are positions or counts, not sums
    declared, lengths = mismatch.signature.leaves(mismatch.pairing), dict(mismatch.signature.dims)
    leaves = {path: widen(value) for path, value in mismatch.arguments.items()}
    for name, dim in mismatch.pairing.dims.items():
        block, length = dim.block, lengths.get(name, 0)
        # The first argument of data that has the dim.
        path = next((path for path, leaf in declared.items() if name in leaf.shape and leaf.kind.is_data), None)
        if path is None or not block or not length or name in {axis.name for axis in mismatch.axes}:
            continue
        last = -(-length // block) - 1
        for number, position in ((last, "last"), (0, "first")):
            part = slice(number * block, min((number + 1) * block, length))
            at = (slice(None),) * declared[path].shape.index(name) + (part,)
            for factor, mistake in ((0, "omits"), (2, "counts twice")):
                values = leaves[path].copy()
                values[at] = values[at] * factor
                if mismatch.explains(mismatch.evaluate_oracle({**leaves, path: values})[mismatch.output]):
                    return f"the sum {mistake} the {position} block of {name} (from {part.start} to {part.stop})"
    return ""


# The sums stop near 2^p, above which adding 1 changes nothing in a format with p bits of precision.
def _narrow_accumulator(mismatch: MismatchContext) -> str:
    comparison = mismatch.comparison
    if not is_float(comparison.actual.dtype) or not mismatch.inputs_are_finite:
        return ""
    got, wanted = (np.abs(values[comparison.wrong]) for values in (comparison.got, comparison.expected))
    own = float_format(comparison.actual.dtype).precision
    for name in ("bfloat16", "float16", "float32"):
        narrow = parse_dtype(name)
        precision = float_format(narrow).precision
        limit = 2.0**precision
        near = np.abs(got - limit) <= (limit / 8 if len(got) >= _ENOUGH_WRONG else 0)
        held = cast(got, narrow).astype(np.float64) == got
        if ((wanted > limit) & (got < wanted) & held & near).all():
            remark = "" if own > precision else ", which is the output's dtype"
            return f"sums stop growing at about {limit:g}: they are accumulated in {name}{remark}"
    return ""


def _constant_factor(mismatch: MismatchContext) -> str:
    comparison = mismatch.comparison
    if not is_float(comparison.actual.dtype) or not mismatch.inputs_are_finite:
        return ""
    wrong = comparison.wrong & (comparison.expected != 0)
    if wrong.sum() < _ENOUGH_WRONG or len(np.unique(comparison.expected[wrong])) < 3:
        return ""
    with np.errstate(all="ignore"):
        factor = float(np.median(comparison.got[wrong] / comparison.expected[wrong]))
    spread = 2 * float_format(comparison.actual.dtype).unit_roundoff
    if not math.isfinite(factor) or factor == 0 or abs(factor - 1) <= 16 * spread:
        return ""
    if not mismatch.explains(comparison.wanted * factor, spread):
        return ""
    if abs(factor + 1) <= spread:
        return "each has the opposite sign"
    if abs(off := factor - 1) < _NEARLY:
        return f"each is too {'large' if off > 0 else 'small'} by {abs(off):.2g} of the expected value"
    return f"each is {factor:.4g} times the expected value"


_ENOUGH_WRONG = 8  # wrong elements that make a coincidence unlikely
_NEARLY = 1e-2  # relative error below which its size is said instead of the factor


def _permuted_blocks(mismatch: MismatchContext) -> str:
    comparison = mismatch.comparison
    arrays = comparison.rounded, comparison.actual, comparison.wrong
    for place, axis in enumerate(mismatch.axes):
        if not axis.block or axis.length // axis.block < 2:
            continue
        expected, actual, is_wrong = (_whole_blocks(each, place, axis.block) for each in arrays)
        owner = {block.tobytes(): i for i, block in enumerate(expected)}
        if len(owner) < len(expected):
            return ""  # equal blocks cannot be told apart
        moved = [(int(i), owner.get(actual[i].tobytes())) for i in np.flatnonzero(is_wrong.any(axis=1))]
        every = is_wrong.sum() == comparison.wrong.sum()  # and none is past the last whole block
        if every and len(moved) > 1 and all(j is not None for _, j in moved):
            pairs = ", ".join(f"block {i} has the values of block {j}" for i, j in moved[:4])
            return f"blocks of {axis.name} are permuted: {pairs}"
    return ""


# A row for each block, with zeros of one sign.
def _whole_blocks(values: Array, place: int, block: int) -> Array:
    whole = values.shape[place] // block
    first = np.moveaxis(values, place, 0)[: whole * block]
    rows = np.ascontiguousarray(first).reshape(whole, -1)
    return np.where(rows == 0, np.zeros_like(rows), rows)


# Integers wrapped in a dtype with too few bits.
def _narrow_integers(mismatch: MismatchContext) -> str:
    comparison = mismatch.comparison
    if comparison.actual.dtype.kind not in "iu":
        return ""
    got = comparison.actual[comparison.wrong].astype(np.int64)
    wanted = np.asarray(comparison.expected)[comparison.wrong].astype(np.int64)
    for size in range(1, min(comparison.actual.dtype.itemsize, 3)):  # in bytes
        kinds = (np.dtype(f"{kind}{size}") for kind in "iu")
        if fitting := [narrow.name for narrow in kinds if (got == wanted.astype(narrow)).all()]:
            one, other = int(got[0]), int(wanted[0])
            return f"{one} is {other} modulo {1 << 8 * size}: it was stored as {' or '.join(fitting)}"
    return ""


# All blocks (or elements) along an axis equal the first one, and should not.
def _repeated_blocks(mismatch: MismatchContext) -> str:
    comparison = mismatch.comparison
    for place, axis in enumerate(mismatch.axes):
        length = axis.block or 1
        if axis.length < 2 * length or axis.length % length:
            continue
        shape = comparison.actual.shape
        parts = (*shape[:place], axis.length // length, length, *shape[place + 1 :])
        arrays = comparison.actual, comparison.rounded, comparison.wrong
        actual, rounded, wrong = (each.reshape(parts) for each in arrays)
        first = np.take(actual, [0], place)
        equal = (actual == first) | ((actual != actual) & (first != first))
        differ = (rounded != np.take(rounded, [0], place)).any() and not wrong.take(0, place).any()
        if equal.all() and differ and len(np.unique(first.astype(np.float64))) > 1:
            return f"all {'blocks of' if axis.block else 'elements along'} {axis.name} equal the first"
    return ""


# Outputs in another order, or arguments.
def _mixed_up(mismatch: MismatchContext) -> str:
    expected, leaves = mismatch.comparison.expected, {p: widen(value) for p, value in mismatch.arguments.items()}
    if len(np.unique(mismatch.comparison.got)) < _ENOUGH_VALUES:
        return ""
    declared = mismatch.signature.leaves(mismatch.pairing)
    for number, values in enumerate(mismatch.evaluate_oracle(leaves)):
        if number != mismatch.output and values.shape == expected.shape and mismatch.explains(values):
            return f"it is the expected output {number}"
    alike = [
        (one, other)
        for one, other in itertools.permutations((path for path in leaves if declared[path].kind.is_data), 2)
        if (leaves[one].shape, leaves[one].dtype) == (leaves[other].shape, leaves[other].dtype)
    ][:_MOST_EXCHANGES]
    changes = {f"{other} in place of {one}": {one: leaves[other]} for one, other in alike}
    pairs = {f"{one} and {other} exchanged": (one, other) for one, other in alike if one < other}
    changes |= {words: {one: leaves[other], other: leaves[one]} for words, (one, other) in pairs.items()}
    for words, change in changes.items():
        with suppress(Failure):  # the oracle need not accept them
            if mismatch.explains(mismatch.evaluate_oracle({**leaves, **change})[mismatch.output]):
                return f"it is the expected output with {words}"
    return ""


_MOST_EXCHANGES = 6  # of arguments


def _keeps_state(mismatch: MismatchContext) -> str:
    try:
        first, second = (_ADDRESS.sub("", str(trace(mismatch.pairing, mismatch.signature).jaxpr)) for _ in range(2))
    except Failure:
        return ""
    return "" if first == second else "the kernel keeps state: it is another one each time that it is traced"


_ADDRESS = re.compile("0x[0-9a-f]+")


Rule = Callable[[MismatchContext], str]
_RULES: tuple[Rule, ...] = (
    _only_where_masked,
    _narrow_integers,
    _repeated_blocks,
    _block_of_a_sum,
    _permuted_blocks,
    _narrow_accumulator,
    _constant_factor,
    _mixed_up,
    _keeps_state,
    output_relation,
)
_OF_OUTPUTS: tuple[Rule, ...] = (_repeated_blocks, _permuted_blocks, _constant_factor, output_relation)
