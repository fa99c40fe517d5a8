"""Bounds from the oracle's own rounding: how far its outputs move when each of its operations is rounded."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kerneltest.core.details import Stated
from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.failures import Failure, check_raises_again, format_exception
from kerneltest.core.precision import FLOAT32, FUNCTIONS, NEVER_EXACT, XLA_CPU, Precision, Ulps
from kerneltest.core.verdicts import Verdict
from kerneltest.numerics.bounds import Limit, OracleCase, magnitude
from kerneltest.numerics.closed_forms import conditioned_bounds
from kerneltest.numerics.rounding_model import RESULT, RoundingModel
from kerneltest.numerics.samples import raise_own_mistake
from kerneltest.numerics.spread import (
    ErrorShare,
    SampledOutputs,
    Spread,
    error_shares,
    find_alike,
    has_exact_row,
    median,
    sample_cases,
    sample_outputs,
    sample_row_by_row,
    spread_of,
)
from kerneltest.numerics.tracked import calls_linear_algebra

SAMPLE_ROWS = 17  # the exact row and sixteen samples
SPREAD_FACTOR = 7.0
_RESULT_ROUNDINGS = 2.0  # roundings of the result itself that any kernel may make
_QUARTER, _MAX_TYPICAL = 0.25, 32.0  # the floor: a part of the median relative deviation, which is capped (in u)


def bound_from_spread(value: Array, found: Spread, u: float) -> Array:
    """Returns how far a correct kernel may be from the oracle.

    `|error| <= 7 max(s, m |f| / 4) + 2 u |f|`, element by element, with s the root mean square over 16 samples of how
    far the oracle's result moves, and m the median of s / |f| over the output (at most 32 u). `rounding_model` says how
    an operation is rounded in a sample.

    Source: stochastic arithmetic, as in CADNA (Vignes, "Discrete stochastic arithmetic for validating results of
    numerical software", 2004) and Verrou (Févotte and Lathuilière, 2016), here of the oracle instead of the kernel. Of
    normally distributed errors as large as the samples', one in 300,000 exceeds seven times the root mean square of
    sixteen samples (Student's t with 16 degrees of freedom). A machine's errors are smaller: a sample moves each
    operation by up to one and a half roundings, and sums by the longest walk that any order may take.

    Args:
      value: the oracle's output f, float64.
      found: its spread, with deviations s; where it is lost, the bound is infinite.
      u: the unit roundoff of the kernel's arithmetic.
    """
    size = magnitude(value)
    with np.errstate(all="ignore"):
        relative = (found.deviation / size)[(size > 0) & (found.deviation > 0)]
    typical = min(median(relative), _MAX_TYPICAL * u) if relative.size else 0.0
    moved = np.maximum(found.deviation, _QUARTER * typical * size)
    return np.where(found.lost, np.inf, SPREAD_FACTOR * moved + _RESULT_ROUNDINGS * u * size * (found.deviation > 0))


def shares_of_bound(found: tuple[ErrorShare, ...], limit: Array, moved: Spread) -> tuple[ErrorShare, ...]:
    """Converts shares of the spread `moved` to shares of the bound `limit` that it makes, the largest first.

    One of them is that of the bound's own term `RESULT`.
    """
    finite = np.isfinite(limit) & (limit > 0)
    if not found or not finite.any():
        return found
    of_spread = float(np.mean(SPREAD_FACTOR * moved.deviation[finite] / limit[finite]))
    scaled = [replace(each, part=of_spread * each.part) for each in found]
    return tuple(sorted([*scaled, ErrorShare(RESULT, 1 - of_spread)], key=lambda each: -each.part))


@dataclass(frozen=True, slots=True)
class SampledLimit:
    """The bound of one output from samples."""

    samples: Any  # of all outputs: `OracleSamples`, or the like
    output: int  # the index of the output
    value: Array  # the oracle's exact output, of floats, integers or booleans

    def at(self, precision: Precision) -> Array:
        value, u = np.asarray(self.value, np.float64), (self.samples.compute or FLOAT32).unit_roundoff
        return bound_from_spread(value, self.spread(precision), u)

    def spread(self, precision: Precision) -> Spread:
        found: Spread = self.samples.at(precision).spreads[self.output]
        return found

    def shares(self, precision: Precision) -> tuple[ErrorShare, ...]:
        """Returns the parts of the bound that operations make, the largest first; () if they are unknown."""
        found = self.samples.shares(precision, self.output)
        return shares_of_bound(found, self.at(precision), self.spread(precision))


@dataclass(frozen=True, slots=True)
class RoundingLimit(SampledLimit):
    """The bound of one output from the rounding of the oracle and of its other forms: the widest that is known."""

    forms: "tuple[RoundingLimit, ...]" = ()  # the limits of the oracle's other forms, on the same output

    def at(self, precision: Precision) -> Array:
        bound = SampledLimit.at(self, precision)
        for form in self.forms if self.value.dtype.kind == "f" else ():
            with np.errstate(invalid="ignore"):
                gap = np.abs(form.value - self.value)
            other = form.at(precision) + np.where(np.isfinite(gap), gap, 0.0)
            bound = np.where(np.isfinite(other), np.maximum(bound, other), bound)
        return bound

    def alternatives(self, precision: Precision) -> tuple[Array, ...]:
        """Returns the other correct results of an integer or boolean output: those of the samples."""
        own = [form.value for form in self.forms] if self.value.dtype.kind != "f" else []
        others = (alternative for form in self.forms for alternative in form.alternatives(precision))
        return (*self.spread(precision).alternatives, *own, *others)

    def note(self, precision: Precision) -> str:
        """Returns which operation of the oracle could not be tracked, or ""."""
        notes = (self.samples.at(precision).note, *(form.note(precision) for form in self.forms))
        return next(filter(None, notes), "")

    def is_sampled(self, precision: Precision) -> bool:
        return bool(self.samples.at(precision).sampled)

    def functions(self) -> frozenset[str]:
        """Returns the functions that a formula's oracle calls, if it is sampled in one evaluation."""
        answers = self.samples.at(FORMULA_PRECISION).answers or {}
        return FUNCTIONS & {name for attribute, name in answers if attribute == "approximated"}

    def shares(self, precision: Precision) -> tuple[ErrorShare, ...]:
        bounds = [SampledLimit.at(self, precision), *(form.at(precision) for form in self.forms)]
        widths = [float(bound[np.isfinite(bound)].sum()) for bound in bounds]
        widest = widths.index(max(widths))
        return self.forms[widest - 1].shares(precision) if widest > 0 else SampledLimit.shares(self, precision)


# The ways to sample an oracle: all rows in one evaluation, the same with plain integers, or one evaluation a row.
_WAYS: tuple[Callable[..., list[Array]], ...] = (
    sample_outputs,
    functools.partial(sample_outputs, integers=False),
    sample_row_by_row,
)
_BY_ROW = 2  # the index of the last way
# The first way worth trying for an oracle, and why the ones before it failed because of how the oracle is written.
_first_way: dict[Callable[..., Any], tuple[int, str]] = {}
_case_by_case: set[Callable[..., Any]] = set()  # oracles that cannot be sampled for several cases at once


@dataclass(slots=True)
class OracleSamples:
    """An oracle's outputs for one case, rounded as backends round them."""

    case: OracleCase  # the oracle's side of the case
    compute: FloatFormat | None  # the format of elementwise arithmetic; None for that of the arguments
    exact_dots: bool  # whether no backend may round operands of products
    # the relative errors of functions that the kernel approximates
    functions: Mapping[str, float] = field(default_factory=dict)
    found: dict[str, SampledOutputs] = field(default_factory=dict)  # what the samples show, by name of the precision
    # the shares of an output's spread, by name of the precision and index of the output
    parts: dict[tuple[str, int], tuple[ErrorShare, ...]] = field(default_factory=dict)
    integers: bool = True  # whether integers and booleans are tracked as well
    # the cases that are sampled together with this one, which is among them; [] for none
    batch: "list[OracleSamples]" = field(default_factory=list, repr=False, compare=False)
    failure: Failure | None = None  # that the oracle raised the first time only; None if it did not

    def at(self, precision: Precision) -> SampledOutputs:
        """Returns what the samples show on a backend; raises a `Failure` if the oracle once raised and then did not."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        precision = self._adapt(precision)
        if not self._is_known(precision):
            self._sample_batch(precision)
        if precision.name not in self.found:
            self.found[precision.name] = self._sample(precision)
        return self.found[precision.name]

    def shares(self, precision: Precision, output: int) -> tuple[ErrorShare, ...]:
        """Returns what each of the oracle's operations adds to an output's spread, the largest first.

        It is () if the oracle is not sampled in one evaluation, or raises if a single operation is rounded.
        """
        known, case = self.at(precision), self.case
        precision = self._adapt(precision)
        key = precision.name, output
        if known.note or not known.sources:
            return ()

        def evaluate(rounding: RoundingModel) -> Array:
            return sample_outputs(case.watched, case.leaves, case.formats, rounding, integers=self.integers)[output]

        if key not in self.parts:
            try:
                self.parts[key] = error_shares(evaluate, precision, self.compute, known.sources)
            except Exception as error:  # such as that of a branch that only these samples take differently
                raise_own_mistake(error)
                self.parts[key] = ()
        return self.parts[key]

    def _adapt(self, precision: Precision) -> Precision:
        return (precision.with_exact_dots() if self.exact_dots else precision).with_approximations(self.functions)

    # If the samples are those of another machine, they are kept for this one.
    def _is_known(self, precision: Precision) -> bool:
        if (known := find_alike(self.found, precision)) is not None:
            self.found[precision.name] = known
        return known is not None

    # Samples all cases of the batch that lack this precision, in one evaluation if the oracle allows that. Each case
    # gets the spreads that it would get by itself.
    def _sample_batch(self, precision: Precision) -> None:
        missing = [each for each in self.batch if not each._is_known(precision)]
        case = self.case
        first, _ = _first_way.get(case.oracle, (0, ""))
        if len(missing) < 2 or first >= _BY_ROW or case.oracle in _case_by_case:
            return
        leaves = [each.case.leaves for each in missing]
        for way in range(first, _BY_ROW):
            try:
                rounding = self._model(precision)
                found = sample_cases(case.watched, leaves, case.formats, rounding, integers=way == 0)
            except Exception as error:  # such as those of an oracle that branches on values
                raise_own_mistake(error)
                again = self._model(precision)
                sample = functools.partial(sample_cases, case.watched, leaves, case.formats, again, integers=way == 0)
                self._check_raises_again(error, sample)
                why = error
                continue
            if way > first:
                _first_way[case.oracle] = way, format_exception(why).splitlines()[0]
            break
        else:
            if isinstance(why, (TypeError, AttributeError)):
                _case_by_case.add(case.oracle)
            return
        for each, outputs in zip(missing, found, strict=True):
            if each.is_tracked(outputs) and not rounding.escape:
                each.integers = way == 0
                spreads = [spread_of(samples) for samples in outputs]
                each.found[precision.name] = SampledOutputs(spreads, "", tuple(rounding.sources), rounding.answers)

    def _model(self, precision: Precision) -> RoundingModel:
        rounding = RoundingModel(precision, self.compute, SAMPLE_ROWS)
        if (lost := rounding.ask("bits_lost")) and self.compute is not None:
            rounding.compute = replace(self.compute, precision=self.compute.precision - lost)
        return rounding

    def _sample(self, precision: Precision) -> SampledOutputs:
        case = self.case
        way, why = _first_way.get(case.oracle, (0, ""))
        while way < len(_WAYS):
            rounding, outputs = self._model(precision), None
            try:
                outputs = _WAYS[way](case.watched, case.leaves, case.formats, rounding)
                case.check_float64(rounding.in_jax)
                if not self.is_tracked(outputs):
                    raise ValueError("on tracked arrays it computes something else")
            except Exception as error:  # oracles may raise anything when given arrays other than NumPy's
                raise_own_mistake(error)
                case.check_float64(rounding.in_jax)
                if outputs is None:
                    again = self._model(precision)
                    sample = functools.partial(_WAYS[way], case.watched, case.leaves, case.formats, again)
                    self._check_raises_again(error, sample)
                way, why = way + 1, format_exception(error).splitlines()[0]
                if isinstance(error, (TypeError, AttributeError)):  # from its code, whatever the values are
                    _first_way[case.oracle] = way, why
                continue
            sources = tuple(rounding.sources) if way < _BY_ROW else ()
            self.integers = way == 0
            spreads = [spread_of(samples) for samples in outputs]
            if not rounding.escape:
                return SampledOutputs(spreads, "", sources, rounding.answers if way < _BY_ROW else None)
            note = f"{rounding.escape} is not tracked; conditioned() is the floor"
            return SampledOutputs(self._with_floor(spreads, precision), note, sources)
        none = [Spread.none(value) for value in case.values]
        why = f"conditioned() instead, because the oracle cannot be tracked ({why})"
        return SampledOutputs(self._with_floor(none, precision), why, sampled=False)

    def _check_raises_again(self, error: Exception, again: Callable[[], object]) -> None:
        try:
            check_raises_again(error, f"oracle {getattr(self.case.oracle, '__name__', repr(self.case.oracle))}", again)
        except Failure as failure:
            self.failure = failure  # what asks first may go on without the samples
            raise

    def _with_floor(self, spreads: Sequence[Spread], precision: Precision) -> list[Spread]:
        """Returns spreads whose bounds are at least those of `conditioned_bounds`."""
        normwise = calls_linear_algebra(self.case.oracle)
        bounds = conditioned_bounds(self.case, fmt=self.compute or FLOAT32, normwise=normwise)
        floors = [bound.at(precision) for bound in bounds]
        return [each.at_least(floor / SPREAD_FACTOR) for each, floor in zip(spreads, floors, strict=True)]

    def is_tracked(self, outputs: Sequence[Array]) -> bool:
        """Returns whether the exact row of each output's samples equals the oracle's value, so that nothing escaped."""
        return len(outputs) == len(self.case.values) and all(map(has_exact_row, outputs, self.case.values))


def rounding_bounds(
    case: OracleCase, compute: FloatFormat | None, exact_dots: bool, functions: Mapping[str, float] | None = None
) -> tuple[RoundingLimit, ...]:
    """Returns a bound for each output, as `joined_bounds` does. The oracle is sampled when one meets a precision."""
    samples = OracleSamples(case, compute, exact_dots, functions or {})
    return tuple(RoundingLimit(samples, i, np.asarray(value)) for i, value in enumerate(case.values))


def sample_together(limits: Iterable[Sequence[Limit] | None]) -> None:
    """Lets cases of one signature share evaluations of the oracle, if they differ only in float leaves.

    Of each case it gets the limits of the outputs, among which those of other error models are ignored.
    """
    batches: dict[object, list[OracleSamples]] = {}
    for outputs in limits:
        if outputs and isinstance(outputs[0], RoundingLimit):
            samples = outputs[0].samples
            case = samples.case
            fixed = [(path, value.tobytes()) for path, value in case.leaves.items() if path not in case.formats]
            batches.setdefault((case.oracle, samples.compute, samples.exact_dots, *fixed), []).append(samples)
    for batch in batches.values():
        for each in batch:
            each.batch = batch


# Bounds for a formula: how far two ways to compute the same may differ in arithmetic of 40 bits.
#
# They are for kernels that are evaluated in float64, whose roundings are 8,000 times smaller.

FORMULA_FORMAT = FloatFormat(precision=40, min_exponent=-1021, max_exponent=1023)
NEGLIGIBLE = FORMULA_FORMAT.unit_roundoff
"""The relative difference up to which results agree, whatever the formula."""
FLOOR_FORMAT = replace(FORMULA_FORMAT, precision=FLOAT32.precision)
"""float32, without its overflow."""

_EXACT = {name: Ulps(0.5 + NEGLIGIBLE * (name in NEVER_EXACT)) for name in FUNCTIONS}  # tanh(20) is 1

FORMULA_PRECISION = Precision("40 bits", _EXACT, exact_quotients=True)
"""The arithmetic in which an oracle is compared with a kernel that is evaluated in float64: functions are exact."""

FLOOR_PRECISION = Precision("float32, once", {**XLA_CPU.ulps, **_EXACT}, exact_quotients=True, sums_once=True)
"""The arithmetic of the floor: the result of each function and of each sum is rounded to float32 once.

A formula that differs from the oracle's by no more is right. It may approximate functions as closely as float32 can, or
have constants of seven digits.
"""

FLOOR_ULPS = 4.0
"""The ulps of float32 by which a formula may be off, whatever the oracle's rounding."""


def formula_bounds(
    case: OracleCase, functions: Mapping[str, float] | None = None, fmt: FloatFormat = FORMULA_FORMAT
) -> tuple[RoundingLimit, ...]:
    """Returns the bound of each output of a kernel that is evaluated in float64.

    The format is `FORMULA_FORMAT`, for `FORMULA_PRECISION`, or `FLOOR_FORMAT`, for `FLOOR_PRECISION`.
    """
    return rounding_bounds(replace(case, formats=dict.fromkeys(case.formats, fmt)), fmt, True, functions)


# Bounds from several forms of one oracle, which are equal but for their rounding.


def joined_bounds(
    case: OracleCase,
    forms: Sequence[OracleCase],
    compute: FloatFormat | None,
    exact_dots: bool,
    functions: Mapping[str, float],
) -> tuple[RoundingLimit, ...]:
    """Returns a bound for each output from the rounding of an oracle and of other forms of it (see `OracleSamples`).

    Raises:
      Failure: a form differs from the oracle by more than the rounding of both in float64.
    """
    for form in forms:
        _check_equal(case, form)
    limits = (rounding_bounds(each, compute, exact_dots, functions) for each in (case, *forms))
    return tuple(replace(own, forms=tuple(others)) for own, *others in zip(*limits, strict=True))


def _check_equal(case: OracleCase, form: OracleCase) -> None:
    if [value.shape for value in form.values] != [value.shape for value in case.values]:
        raise _unequal(case, form, "returned other shapes")
    pairs = [
        (np.asarray(one, np.float64), np.asarray(other, np.float64))
        for one, other in zip(case.values, form.values, strict=True)
    ]
    if not any(_differ(one, other, NEGLIGIBLE * np.abs(one)).any() for one, other in pairs):
        return  # the usual case, which needs no samples
    bounds = (formula_bounds(each, fmt=FLOOR_FORMAT) for each in (case, form))
    for (one, other), *limits in zip(pairs, *bounds, strict=True):
        wrong = _differ(one, other, np.add(*(limit.at(FLOOR_PRECISION) for limit in limits)))
        for limit in limits:  # where rounding decides an integer, neither form's is the right one
            for alternative in limit.alternatives(FLOOR_PRECISION):
                wrong &= alternative == limit.value
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise _unequal(case, form, f"returned {other[at]:.9g} at {list(at)} instead of {one[at]:.9g}")


def _differ(one: Array, other: Array, allowed: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(~((one == other) | (np.isnan(one) & np.isnan(other)) | (np.abs(one - other) <= allowed)))


def _unequal(case: OracleCase, form: OracleCase, how: str) -> Failure:
    sentence = "{form}, a form of oracle {oracle}, {how}: the forms of an oracle may differ by rounding alone"
    one, other = (getattr(each.oracle, "__name__", repr(each.oracle)) for each in (form, case))
    return Failure(Verdict.ORACLE_ERROR, Stated(sentence, {"form": one, "oracle": other, "how": how}))
