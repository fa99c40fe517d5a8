"""Bounds from several forms of one oracle, which are equal but for their rounding."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.core.details import Stated
from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.failures import Failure
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.numerics.bounds import OracleCase
from kerneltest.numerics.error_budget import ErrorShare
from kerneltest.numerics.formula import NEGLIGIBLE, formula_bounds, formula_precision
from kerneltest.numerics.rounding_bounds import RoundingLimit, rounding_bounds


@dataclass(frozen=True, slots=True)
class JoinedLimit(RoundingLimit):
    """The bound of one output from the rounding of all forms of the oracle: the widest that is known.

    Attributes:
      forms: the limits of the other forms, on the same output.
    """

    forms: tuple[RoundingLimit, ...]

    def at(self, precision: Precision) -> Array:
        """Returns the largest absolute error of each element, infinite where the oracle itself is not checked."""
        bound = RoundingLimit.at(self, precision)
        for form in self.forms:
            other = form.at(precision) + _gaps(self, form)
            bound = np.where(np.isfinite(other), np.maximum(bound, other), bound)
        return bound

    def alternatives(self, precision: Precision) -> tuple[Array, ...]:
        """Returns the other correct results of an integer or boolean output: those of the samples of all forms."""
        others = (each for form in self.forms for each in form.alternatives(precision))
        return (*RoundingLimit.alternatives(self, precision), *others)

    def shares(self, precision: Precision) -> tuple[ErrorShare, ...]:
        """Returns the parts of the widest form's bound, the largest first; () if they are unknown."""
        widest = max(self.forms, key=lambda form: _width(form.at(precision)))
        if _width(widest.at(precision)) > _width(RoundingLimit.at(self, precision)):
            return widest.shares(precision)
        return RoundingLimit.shares(self, precision)

    def note(self, precision: Precision) -> str:
        """Returns which operation could not be tracked, or ""."""
        notes = (RoundingLimit.note(self, precision), *(form.note(precision) for form in self.forms))
        return next(filter(None, notes), "")


def joined_bounds(
    case: OracleCase, forms: Sequence[OracleCase], compute: FloatFormat | None, exact_dots: bool
) -> tuple[RoundingLimit, ...]:
    """Returns a bound for each output from the rounding of an oracle and of other forms of it.

    Args:
      case: the oracle's side of the case.
      forms: the same case for each of the other forms.
      compute: the format of elementwise arithmetic; None for that of the arguments that take part.
      exact_dots: whether no backend may round operands of products.

    Raises:
      Failure: a form differs from the oracle by more than the rounding of both in float64.
    """
    for form in forms:
        _check_equal(case, form)
    first, *others = (rounding_bounds(each, compute, exact_dots) for each in (case, *forms))
    if not others:
        return first
    return tuple(
        JoinedLimit(each.samples, each.output, tuple(same)) for each, *same in zip(first, *others, strict=True)
    )


def _width(bound: Array) -> float:
    return float(bound[np.isfinite(bound)].sum())


def _gaps(one: RoundingLimit, other: RoundingLimit) -> Array:
    """Returns the distance of two forms' values, 0 where either is infinite or NaN."""
    values, others = (np.asarray(each.samples.case.values[each.output], np.float64) for each in (one, other))
    with np.errstate(invalid="ignore"):
        distance = np.abs(values - others)
    return np.where(np.isfinite(distance), distance, 0.0)


def _check_equal(case: OracleCase, form: OracleCase) -> None:
    precision = formula_precision(frozenset())
    if [value.shape for value in form.values] != [value.shape for value in case.values]:
        raise _unequal(case, form, "returned other shapes")
    if all(map(_nearly_equal, case.values, form.values)):
        return  # the usual case, which needs no samples
    for limits in zip(formula_bounds(case), formula_bounds(form), strict=True):
        values, others = (np.asarray(each.samples.case.values[each.output], np.float64) for each in limits)
        allowed = sum(each.at(precision) for each in limits)
        with np.errstate(invalid="ignore"):
            wrong = ~_same(values, others) & ~(np.abs(values - others) <= allowed)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise _unequal(case, form, f"returned {others[at]:.9g} at {list(at)} instead of {values[at]:.9g}")


def _nearly_equal(values: Array, others: Array) -> bool:
    """Returns whether two results agree as closely as any two formulas of the same do."""
    one, other = np.asarray(values, np.float64), np.asarray(others, np.float64)
    with np.errstate(all="ignore"):
        return bool((_same(one, other) | (np.abs(one - other) <= NEGLIGIBLE * np.abs(one))).all())


def _same(values: Array, others: Array) -> Array:
    return np.asarray((values == others) | (np.isnan(values) & np.isnan(others)))


def _unequal(case: OracleCase, form: OracleCase, how: str) -> Failure:
    sentence = "{form}, a form of oracle {oracle}, {how}: the forms of an oracle may differ by rounding alone"
    names = (getattr(each.oracle, "__name__", repr(each.oracle)) for each in (form, case))
    return Failure(
        Verdict.ORACLE_ERROR, Stated(sentence, dict(zip(("form", "oracle"), names, strict=True)) | {"how": how})
    )
