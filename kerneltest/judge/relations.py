"""Relations of the wrong elements of an output to the expected ones: a shift, a factor, an argument read elsewhere.

A relation predicts values. It fits an output if each wrong element has the predicted value, and shows itself only if
these have so many different values that chance cannot explain it. They say as much of a wrong oracle as of a wrong
kernel.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from kerneltest.core.dtypes import Array, cast, float_format, is_float, parse_dtype, widen
from kerneltest.core.failures import Failure
from kerneltest.core.work_budget import WorkBudget, oracle_work
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.dims import AxisExpression, length_of
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.compare import Comparison, OutputAxis
from kerneltest.oracle.evaluation import evaluator
from kerneltest.plan.signatures import Signature
from kerneltest.records.evidence import RelationKind, ValueRelation

_ENOUGH_VALUES = 3  # different values, so that no relation holds by chance
_ENOUGH_WRONG = 6  # wrong elements, likewise
_MOSTLY = 0.75  # share of the wrong elements that it must explain: the source of others may lie outside of the output
_FEW = 32  # elements to look at before all of them
_SINGLE = 2.0**-24  # the unit roundoff of float32, in which most kernels compute
_ROUNDINGS, _OF_OUTPUT = 8.0, 2.0  # of float32 and of the output's dtype, by which a related value may differ
_CLEARLY = 4.0  # times as many: values so far apart are not equal
_NEARLY_ONE = 1e-2  # a factor so near 1 fits any slight error, such as a small term's
_MOST_EXCHANGES = 6  # of arguments
_MOST_MOVED = 2  # places, or blocks, by which elements are moved


class BudgetSpentError(Exception):
    """The budget of a diagnosis is spent."""


@dataclass(frozen=True)
class MismatchContext:
    """A wrong output with its case: the input of every rule."""

    # pairing, signature, arguments: of the case
    pairing: Pairing
    signature: Signature
    arguments: Mapping[str, Array]
    output: int  # the number of the wrong output, from 0
    comparison: Comparison  # the output's comparison; at least one element is wrong
    axes: Sequence[OutputAxis]  # the output's axes
    budget: WorkBudget = field(default_factory=WorkBudget)  # for evaluating the oracle
    expecting: Callable[[], AbstractContextManager[None]] = nullcontext  # entered for each evaluation of the oracle

    @cached_property
    def got(self) -> Array:
        """The output in float64."""
        return self.comparison.got

    @cached_property
    def wanted(self) -> Array:
        """The expected output in float64."""
        return self.comparison.wanted

    @cached_property
    def widest(self) -> float:
        """The largest bound of an element that has one."""
        bound = self.comparison.bound
        return float(np.max(bound, where=np.isfinite(bound), initial=0.0))

    @cached_property
    def leaves(self) -> Mapping[str, Array]:
        """The arguments in float64, complex128 or int64, as the oracle takes them."""
        return {path: widen(value) for path, value in self.arguments.items()}

    @cached_property
    def declared(self) -> Mapping[str, ArrayArgument]:
        """The declarations of the arguments that are not absent."""
        return self.signature.leaves(self.pairing)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The static arguments that are whole numbers, by name; the length of a block may be one."""
        values = self.signature.static_values(self.pairing).items()
        return {name: value for name, value in values if type(value) is int}

    def place(self, axis: str) -> int | None:
        """Returns the number of the output's axis of a name; None if it has none."""
        return next((number for number, each in enumerate(self.axes) if each.name == axis), None)

    def block(self, axis: str) -> int:
        """Returns the kernel's block length along a dim, in elements; 0 for none."""
        return (self.pairing.dims[axis].block or 0) if axis in self.pairing.dims else 0

    @property
    def inputs_are_finite(self) -> bool:
        """True if no argument contains a NaN or an infinity."""
        floats = (value for value in self.arguments.values() if is_float(value.dtype))
        return all(np.isfinite(value.astype(np.float64)).all() for value in floats)

    def evaluate_oracle(self, leaves: Mapping[str, Array], signature: Signature | None = None) -> Sequence[Array]:
        """Returns the oracle's outputs, for other static arguments if a signature is given; or a BudgetSpentError."""
        if self.budget.is_over():
            raise BudgetSpentError
        self.budget.spend(oracle_work(self.signature.volume))
        with self.expecting():
            return evaluator(self.pairing, signature or self.signature, ())(leaves)


@dataclass(frozen=True, slots=True)
class Fit:
    """The fit of a relation to an output."""

    explained: float  # share of the wrong elements that have the predicted values; the others have no prediction
    shown: bool  # whether they have so many different values that chance cannot explain it
    everywhere: bool = True  # whether right elements have the predicted values too, if it is about these

    @property
    def is_complete(self) -> bool:
        """True if it explains the whole output."""
        return self.explained == 1 and self.everywhere


@dataclass(frozen=True, slots=True)
class _Prediction:
    values: Array
    known: Array | bool = True  # where there is a prediction
    everywhere: bool = False  # whether it is about right elements, too
    apart: bool = True  # whether predicted values differ from expected ones by more than rounding


def fit_relation(mismatch: MismatchContext, relation: ValueRelation) -> Fit | None:
    """Returns how well a relation fits an output; None if it is refuted. BudgetSpentError: no work is left."""
    comparison = mismatch.comparison
    if not _arguments_of(relation) <= mismatch.leaves.keys():  # an optional one may not be given
        return None
    try:
        with np.errstate(all="ignore"):
            predicted = _PREDICTORS[relation.kind](mismatch, relation)
    except Failure:  # the oracle need not accept other arguments
        return None
    wrong = comparison.wrong
    if predicted is None or predicted.values.shape != wrong.shape:
        return None
    values = np.asarray(predicted.values, np.float64)
    at = np.asarray(wrong & predicted.known)
    explained = np.flatnonzero(at)
    some = explained[:: -(-len(explained) // _FEW) or 1]  # a few elements refute most relations
    if not (_has_values(mismatch, values, some) and _has_values(mismatch, values, explained)):
        return None
    if not at.any():
        return Fit(0.0, shown=False)
    wanted, due = mismatch.wanted[at], values[at]
    with np.errstate(all="ignore"):
        is_apart = ~(np.abs(wanted - due) <= _CLEARLY * _allowed(mismatch, wanted, due))
        is_apart |= np.isfinite(wanted) != np.isfinite(due)
    if predicted.apart and not is_apart.mean() > 1 / 2:
        return None
    share = float(at.sum() / wrong.sum())
    # A constant is shown by the values that it should be, others by what they are.
    telling = comparison.rounded if relation.kind is RelationKind.CONSTANT else values
    is_shown = share >= _MOSTLY and at.sum() >= _ENOUGH_WRONG and len(np.unique(telling[at])) >= _ENOUGH_VALUES
    checked = np.flatnonzero(np.isfinite(comparison.bound) & predicted.known)
    everywhere = not predicted.everywhere or _has_values(mismatch, values, checked)
    return Fit(share, bool(is_shown), everywhere)


def _arguments_of(relation: ValueRelation) -> set[str]:
    if relation.kind is RelationKind.OPTION or not relation.argument:
        return set()
    return {relation.argument} | ({relation.name} if relation.kind is RelationKind.EXCHANGED else set())


def first_relation(mismatch: MismatchContext, relations: Iterator[ValueRelation]) -> ValueRelation | None:
    """Returns the first of some relations that an output shows completely, or else partly; None if it shows none."""
    partly = None
    for relation in relations:
        if (fit := fit_relation(mismatch, relation)) is not None and fit.shown:
            if fit.is_complete:
                return relation
            partly = partly or relation
    return partly


# Whether the output has other values at some places, as far as its bound and its rounding let one see it.
def _has_values(mismatch: MismatchContext, values: Array, places: Array) -> bool:
    got, values = mismatch.got.ravel()[places], values.ravel()[places]
    with np.errstate(all="ignore"):
        # An infinity is near nothing, though the allowance of one is infinite.
        near = np.isfinite(got) & (np.abs(got - values) <= _allowed(mismatch, got, values))
        same = (got == values) | (np.isnan(got) & np.isnan(values))
        rounded = cast(values, mismatch.comparison.actual.dtype).astype(np.float64)
        return bool((near | same | (rounded == got)).all())


# How far apart rounding may bring two numbers. Each may be the one of another element, with its bound.
def _allowed(mismatch: MismatchContext, one: Array, other: Array) -> Array:
    dtype = mismatch.comparison.actual.dtype
    part = _ROUNDINGS * _SINGLE + _OF_OUTPUT * float_format(dtype).unit_roundoff if is_float(dtype) else 0.0
    return np.asarray(np.maximum(part * (np.abs(one) + np.abs(other)), mismatch.widest))


# Elements that come from other places along an axis.


_MOVES: Mapping[RelationKind, Callable[[float, int, int], Array]] = {
    RelationKind.MOVED_BLOCKS: lambda number, length, block: np.arange(length) + int(number) * block,
    RelationKind.MOVED: lambda number, length, block: np.arange(length) + int(number),
    RelationKind.ROLLED: lambda number, length, block: (np.arange(length) + int(number)) % length,
    RelationKind.FIRST_BLOCK: lambda number, length, block: np.arange(length) % block,
    RelationKind.FIRST_INDEX: lambda number, length, block: np.zeros(length, np.int64),
    RelationKind.REVERSED: lambda number, length, block: np.arange(length)[::-1],
    RelationKind.HALVES: lambda number, length, block: (np.arange(length) + length // 2) % max(length, 1),
    RelationKind.PAIRS: lambda number, length, block: np.arange(length) ^ 1,
}
_OF_BLOCKS = (RelationKind.MOVED_BLOCKS, RelationKind.FIRST_BLOCK)


def _moves(mismatch: MismatchContext, argument: str, axis: str, length: int) -> Iterator[ValueRelation]:
    if length < 2:
        return
    for name, block in {"": mismatch.block(axis), **mismatch.numbers}.items():
        if 1 < block < length:
            yield ValueRelation(RelationKind.FIRST_BLOCK, argument, axis, name=name)
            for by in range(1, min(_MOST_MOVED, (length - 1) // block) + 1):
                yield ValueRelation(RelationKind.MOVED_BLOCKS, argument, axis, by, name)
                yield ValueRelation(RelationKind.MOVED_BLOCKS, argument, axis, -by, name)
    yield ValueRelation(RelationKind.FIRST_INDEX, argument, axis)
    yield ValueRelation(RelationKind.REVERSED, argument, axis)
    yield from [ValueRelation(RelationKind.HALVES, argument, axis)] * (length % 2 == 0)
    yield ValueRelation(RelationKind.PAIRS, argument, axis)
    for kind in (RelationKind.MOVED, RelationKind.ROLLED):
        for by in range(1, min(_MOST_MOVED, length - 1) + 1):
            yield ValueRelation(kind, argument, axis, by)
            yield ValueRelation(kind, argument, axis, -by)


def _predict_moved(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    at_output = mismatch.place(relation.axis)
    values, place = mismatch.wanted, at_output
    if relation.argument:
        values = mismatch.leaves[relation.argument]
        names = list(map(str, mismatch.declared[relation.argument].shape))
        place = names.index(relation.axis) if relation.axis in names else None
    if place is None:
        return None
    length = values.shape[place]
    block = mismatch.numbers.get(relation.name, 0) if relation.name else mismatch.block(relation.axis)
    if relation.kind in _OF_BLOCKS and not block:
        return None
    source = _MOVES[relation.kind](relation.number, length, block)
    inside = (source >= 0) & (source < length)
    taken, known = np.take(values, np.clip(source, 0, length - 1), place), np.ones(mismatch.wanted.shape, bool)
    if at_output is not None:
        known &= np.expand_dims(inside, [i for i in range(known.ndim) if i != at_output])
    if relation.argument:
        return replace(_as_if(mismatch, {relation.argument: taken}), known=known)
    return _Prediction(taken, known)


def _predict_transposed(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    order = [int(axis) for axis in relation.name.split(", ")]
    if relation.argument:
        values = mismatch.leaves[relation.argument]
        turned = values.transpose(order) if values.ndim == len(order) else values
        return _as_if(mismatch, {relation.argument: turned}) if turned.shape == values.shape else None
    wanted = mismatch.wanted
    return _Prediction(wanted.transpose(order)) if wanted.ndim == len(order) else None


def _transpositions(argument: str, shape: tuple[int, ...]) -> Iterator[ValueRelation]:
    for order in itertools.permutations(range(len(shape))) if len(shape) <= 3 else ():
        if list(order) != sorted(order) and tuple(shape[axis] for axis in order) == shape:
            yield ValueRelation(RelationKind.TRANSPOSED, argument, name=", ".join(map(str, order)))


# The output for other arguments.


def _as_if(mismatch: MismatchContext, changed: Mapping[str, Array], signature: Signature | None = None) -> _Prediction:
    outputs = mismatch.evaluate_oracle({**mismatch.leaves, **changed}, signature)
    return _Prediction(np.asarray(outputs[mismatch.output]), everywhere=True)


def _predict_replaced(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    leaf, values = mismatch.declared[relation.argument], mismatch.leaves[relation.argument]
    if relation.name in mismatch.leaves:
        same = mismatch.leaves[relation.name]
        return _as_if(mismatch, {relation.argument: same}) if same.shape == values.shape else None
    other = {
        "0": lambda: np.zeros_like(values),
        "1": lambda: np.ones_like(values),
        "False": lambda: np.zeros_like(values),
        "True": lambda: np.ones_like(values),
        "negated": lambda: -values,
        "true everywhere": lambda: np.full_like(values, leaf.mask_values[1]),
        f"{leaf.bound} everywhere": lambda: np.full_like(values, length_of(leaf.bound, dict(mismatch.signature.dims))),
    }.get(relation.name)
    return _as_if(mismatch, {relation.argument: other()}) if other is not None else None


def _predict_exchanged(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    one, other, leaves = relation.argument, relation.name, mismatch.leaves
    same = leaves[one].shape == leaves[other].shape
    return _as_if(mismatch, {one: leaves[other], other: leaves[one]}) if same else None


def _predict_laid_out(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction:
    lengths = [dict(mismatch.signature.dims)[name] for name in relation.axis.split("*")]

    def turned(values: Array, axes: Sequence[object], order: Sequence[int]) -> Array:
        for place in (number for number, axis in enumerate(axes) if str(axis) == relation.axis):
            values = np.take(values, np.arange(values.shape[place]).reshape(order).T.ravel(), place)
        return values

    given = {path: turned(x, mismatch.declared[path].shape, lengths[::-1]) for path, x in mismatch.leaves.items()}
    found = _as_if(mismatch, given)
    return replace(found, values=turned(found.values, [axis.name for axis in mismatch.axes], lengths))


_PARTS = ("last block", "first block", "last element", "first element")


def _predict_part(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    values, leaf = mismatch.leaves[relation.argument].copy(), mismatch.declared[relation.argument]
    place = [str(axis) for axis in leaf.shape].index(relation.axis)
    length, block = values.shape[place], mismatch.block(relation.axis)
    if relation.name.endswith("element"):
        block = 1
    if not block or not length:
        return None
    start = 0 if relation.name.startswith("first") else (-(-length // block) - 1) * block
    at = (*(slice(None),) * place, slice(start, min(start + block, length)))
    values[at] = values[at] * (0 if relation.kind is RelationKind.OMITTED else 2)
    return _as_if(mismatch, {relation.argument: values})


# Functions of the expected value.

# What an oracle or a kernel may lack, and the relation of the kernel's output to the oracle's.
_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "the square of the expected value": np.square,
    "the square root of the expected value": np.sqrt,
    "the reciprocal of the expected value": lambda x: 1 / x,
    "the exponential of the expected value": np.exp,
    "the logarithm of the expected value": np.log,
    "the absolute value of the expected one": np.abs,
    "one less the expected value": lambda x: 1 - x,
}


def _predict_factors(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    wanted = mismatch.wanted
    if (place := mismatch.place(relation.axis)) is None:
        return None
    in_order = np.sort(wanted, axis=place)
    # A line of few different values has a factor by chance.
    known = (np.diff(in_order, axis=place) > 0).sum(axis=place, keepdims=True) >= _ENOUGH_VALUES - 1
    ratios = np.ma.masked_invalid(mismatch.got / wanted)
    median = np.ma.median(ratios, axis=place, keepdims=True)  # type: ignore[no-untyped-call]
    ratio = np.ma.filled(median, 1.0)
    known &= np.abs(ratio - 1) > _NEARLY_ONE
    return _Prediction(wanted * ratio, np.broadcast_to(known, wanted.shape), everywhere=True)


def _predict_change(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    before, wanted = mismatch.leaves[relation.argument], mismatch.wanted
    if before.shape != wanted.shape:
        return None
    return _Prediction(before + (relation.number * (wanted - before) if relation.number else 0.0))


def _predict_narrow(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    comparison, narrow = mismatch.comparison, parse_dtype(relation.name)
    fmt, got, wanted = float_format(narrow), mismatch.got, mismatch.wanted
    if not is_float(comparison.actual.dtype):
        return None
    held = (cast(got, narrow).astype(np.float64) == got) & np.isfinite(got)
    slight = np.abs(got - wanted) <= 2 * fmt.ulp(wanted)
    # A right element may have few digits by itself.
    unlike = cast(comparison.rounded.astype(np.float64), narrow).astype(np.float64) != comparison.rounded
    unlike &= comparison.wrong
    if 2 * unlike.sum() < comparison.wrong.sum():
        return None
    return _Prediction(np.where(held & slight, got, np.nan), apart=False)


def _predict_tie(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    values, comparison = mismatch.leaves[relation.argument], mismatch.comparison
    got, wanted = comparison.actual.astype(np.int64), np.asarray(comparison.expected, np.int64)
    place = [str(axis) for axis in mismatch.declared[relation.argument].shape].index(relation.axis)
    length = values.shape[place]
    same_axes = got.ndim == values.ndim
    if not same_axes:
        got, wanted = np.expand_dims(got, place), np.expand_dims(wanted, place)
    others = [i for i in range(values.ndim) if i != place]
    if any(got.shape[i] != values.shape[i] for i in others) or min(wanted.min(), 0) < 0 or wanted.max() >= length:
        return None
    inside = (got >= 0) & (got < length)
    found = np.take_along_axis(values, np.clip(got, 0, length - 1), place)
    due = np.take_along_axis(values, wanted, place)
    tied = inside & (found == due)
    tied = tied if same_axes else tied.squeeze(place)
    return _Prediction(np.where(tied, mismatch.got, np.nan), apart=False)


def _predict_option(mismatch: MismatchContext, relation: ValueRelation) -> _Prediction | None:
    known, lengths = mismatch.pairing.options()[relation.argument], dict(mismatch.signature.dims)
    option = relation.name if relation.name in known else str(lengths.get(relation.name))
    return _as_if(mismatch, {}, mismatch.signature.with_option(relation.argument, option)) if option in known else None


_PREDICTORS: Mapping[RelationKind, Callable[[MismatchContext, ValueRelation], _Prediction | None]] = {
    RelationKind.OPPOSITE: lambda mismatch, relation: _Prediction(-mismatch.wanted),
    RelationKind.FACTOR: lambda mismatch, relation: _Prediction(relation.number * mismatch.wanted),
    RelationKind.FACTORS: _predict_factors,
    RelationKind.OFFSET: lambda mismatch, relation: _Prediction(relation.number + mismatch.wanted),
    RelationKind.CONSTANT: lambda m, relation: _Prediction(np.full(m.comparison.wrong.shape, relation.number)),
    RelationKind.FUNCTION: lambda m, relation: _Prediction(_FUNCTIONS[relation.name](m.wanted)),
    RelationKind.CHANGE: _predict_change,
    RelationKind.NARROW: _predict_narrow,
    RelationKind.TIE: _predict_tie,
    RelationKind.OTHER_OUTPUT: lambda m, relation: _Prediction(m.evaluate_oracle(m.leaves)[int(relation.number)]),
    RelationKind.TRANSPOSED: _predict_transposed,
    **dict.fromkeys(_MOVES, _predict_moved),
    RelationKind.OMITTED: _predict_part,
    RelationKind.COUNTED_TWICE: _predict_part,
    RelationKind.REPLACED: _predict_replaced,
    RelationKind.EXCHANGED: _predict_exchanged,
    RelationKind.LAID_OUT: _predict_laid_out,
    RelationKind.OPTION: _predict_option,
}


# Relations to try.


def _exact(number: float, unit: float) -> float:
    # The fraction of small numbers that rounding does not tell from it, if there is one.
    simple = float(Fraction(number).limit_denominator(64)) if math.isfinite(number) else number
    return simple if abs(simple - number) <= _ROUNDINGS * unit * abs(number) else number


def relations_of_output(mismatch: MismatchContext) -> Iterator[ValueRelation]:
    """Yields relations to the expected output, for which the oracle is not evaluated."""
    comparison = mismatch.comparison
    for axis in mismatch.axes:
        yield from _moves(mismatch, "", axis.name, axis.length)
    yield from _transpositions("", comparison.wrong.shape)
    dtype = comparison.actual.dtype
    unit = float_format(dtype).unit_roundoff if is_float(dtype) else 0.0
    got, wanted = mismatch.got[comparison.wrong], mismatch.wanted[comparison.wrong]
    if got.size and math.isfinite(got[0]) and (got == got[0]).all():
        yield ValueRelation(RelationKind.CONSTANT, number=float(got[0]))
    yield ValueRelation(RelationKind.OPPOSITE)
    with np.errstate(all="ignore"):
        ratios, differences = (each[np.isfinite(each)] for each in (got / wanted, got - wanted))
    if ratios.size and is_float(dtype):
        yield ValueRelation(RelationKind.FACTOR, number=_exact(float(np.median(ratios)), unit))
    if differences.size:
        yield ValueRelation(RelationKind.OFFSET, number=_exact(float(np.median(differences)), unit))
    for name in _FUNCTIONS:
        yield ValueRelation(RelationKind.FUNCTION, name=name)
    for axis in mismatch.axes:
        yield ValueRelation(RelationKind.FACTORS, axis=axis.name)
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        if is_float(dtype) and float_format(dtype).precision > float_format(parse_dtype(name)).precision:
            yield ValueRelation(RelationKind.NARROW, name=name)


def relations_of_sums(mismatch: MismatchContext) -> Iterator[ValueRelation]:
    """Yields relations to the output of a sum that omits a part of a dim, or counts it twice."""
    has_floats = any(is_float(value.dtype) for value in mismatch.arguments.values())
    if has_floats and not is_float(mismatch.comparison.actual.dtype):
        return  # integers made of floats are positions or counts, not sums
    for name in mismatch.pairing.dims:
        # The first argument of data that has the dim.
        path = next((p for p, leaf in mismatch.declared.items() if name in leaf.shape and leaf.kind.is_data), None)
        if path is None or name in {axis.name for axis in mismatch.axes}:
            continue
        for part in _PARTS:
            for kind in (RelationKind.OMITTED, RelationKind.COUNTED_TWICE):
                yield ValueRelation(kind, path, name, name=part)


def relations_of_order(mismatch: MismatchContext) -> Iterator[ValueRelation]:
    """Yields relations to the other outputs, and to the output for arguments in another order."""
    with suppress(Failure):
        for number, values in enumerate(mismatch.evaluate_oracle(mismatch.leaves)):
            if number != mismatch.output and values.shape == mismatch.comparison.wrong.shape:
                yield ValueRelation(RelationKind.OTHER_OUTPUT, number=number)
    arguments = mismatch.arguments
    data = [path for path, leaf in mismatch.declared.items() if leaf.kind.is_data]
    alike = [
        (one, other)
        for one, other in itertools.permutations(data, 2)
        if (arguments[one].shape, arguments[one].dtype) == (arguments[other].shape, arguments[other].dtype)
    ][:_MOST_EXCHANGES]
    for one, other in alike:
        yield ValueRelation(RelationKind.REPLACED, one, name=other)
    for one, other in alike:
        if one < other:
            yield ValueRelation(RelationKind.EXCHANGED, one, name=other)


def relations_of_arguments(mismatch: MismatchContext) -> Iterator[ValueRelation]:
    """Yields relations to the output for other values of an argument, and to these values themselves."""
    of_integers = not is_float(mismatch.comparison.actual.dtype)
    data = [path for path, leaf in mismatch.declared.items() if leaf.kind.is_data]
    for path in data if of_integers else ():
        for axis in map(str, mismatch.declared[path].shape):
            yield ValueRelation(RelationKind.TIE, path, axis)
    for name, options in mismatch.pairing.options().items():
        for option in options:
            if name not in mismatch.pairing.optionals and option != dict(mismatch.signature.statics).get(name):
                same = (dim for dim, length in mismatch.signature.dims if str(length) == option)
                yield from (ValueRelation(RelationKind.OPTION, name, name=each) for each in (option, *same))
    for path, leaf in mismatch.declared.items():
        if leaf.kind.is_mask:
            yield ValueRelation(RelationKind.REPLACED, path, name="true everywhere")
        elif leaf.role == "length":
            yield ValueRelation(RelationKind.REPLACED, path, name=f"{leaf.bound} everywhere")
        plain = ("False", "True") if mismatch.arguments[path].dtype == bool else ("0", "1", "negated")
        for name in plain if leaf.kind.is_data else ():
            yield ValueRelation(RelationKind.REPLACED, path, name=name)
        for axis, length in zip(map(str, leaf.shape), mismatch.leaves[path].shape, strict=True):
            yield from _moves(mismatch, path, axis, length)
        yield from _transpositions(path, mismatch.leaves[path].shape)
        for each in leaf.shape:
            if isinstance(each, AxisExpression) and len(each.names) == 2 and each.terms == (each.names,):
                yield ValueRelation(RelationKind.LAID_OUT, axis=str(each), name="*".join(each.names[::-1]))
    for path in data:
        if mismatch.leaves[path].shape == mismatch.comparison.wrong.shape:
            yield from _changes(mismatch, path)


def _changes(mismatch: MismatchContext, path: str) -> Iterator[ValueRelation]:
    comparison, before = mismatch.comparison, mismatch.leaves[path]
    got, wanted, old = (each[comparison.wrong] for each in (mismatch.got, mismatch.wanted, before))
    with np.errstate(all="ignore"):
        ratios = (got - old) / (wanted - old)
    if (ratios := ratios[np.isfinite(ratios)]).size:
        ratio = float(np.median(ratios))
        nearest = round(ratio)
        yield ValueRelation(RelationKind.CHANGE, path, number=nearest if abs(nearest - ratio) < 1e-3 else ratio)
