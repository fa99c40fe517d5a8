"""Sharpness: how small an error of an output its bounds would still show."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low

from kerneltest.core.group_names import GroupName
from kerneltest.records.error_budget_text import format_budget
from kerneltest.records.schema import Record

_USELESS = 0.1  # relative error that any bound should show somewhere
_BLUNT = 0.01  # relative error that bounds in float32 should show in the typical case


@dataclass(frozen=True, slots=True)
class Sharpness:
    """The sharpness of a pairing's bounds, in its numeric cases on one backend and in one dtype.

    Errors are relative and those of rounding: a wrong formula is found without rounding, whatever these bounds admit.

    Attributes:
      pairing, backend, dtype: of the cases.
      best, typical: the smallest error of a whole output that its bounds show, in the sharpest and in the median case.
      coarse: the share of elements whose bound exceeds a tenth of their value.
      cases: number of cases that compared finite values.
      formulas: number of these in which the formula was asked without rounding.
      reason: the parts of the bound of a case that has an error budget, in words; "" without one.
    """

    pairing: str
    backend: str
    dtype: str
    best: float
    typical: float
    coarse: float
    cases: int
    formulas: int
    reason: str

    @property
    def remark(self) -> str:
        """Says which errors pass and why; "" if the bounds are sharp enough."""
        cause = f": the bound is {self.reason}" if self.reason else ""
        if self.best >= _USELESS:
            return f"its tolerance admits {_size(self.best)} in every numeric case{cause or '; give a narrower one'}"
        if self.dtype != "float32" or self.typical < _BLUNT:
            return ""
        return f"{_size(self.typical)} pass as rounding in the typical float32 case on {self.backend}{cause}"


def _size(error: float) -> str:
    return "any error" if math.isinf(error) else f"errors of {100 * error:.2g}%"


def measure_sharpness(records: Iterable[Record]) -> list[Sharpness]:
    """Returns the sharpness of each pairing, backend and dtype with numeric cases that compared finite values."""
    by_place: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.group == GroupName.NUMERIC and record.compared and record.expected and record.expected.finite:
            by_place.setdefault((record.pairing, record.backend, record.dtype), []).append(record)
    return [_sharpness(place, found) for place, found in by_place.items()]


def _sharpness(place: tuple[str, str, str], records: list[Record]) -> Sharpness:
    expected = [record.expected for record in records if record.expected]
    visible = sorted(each.visible for each in expected)
    return Sharpness(
        *place,
        best=visible[0],
        typical=median_low(visible),
        coarse=sum(each.coarse for each in expected) / sum(each.finite for each in expected),
        cases=len(records),
        formulas=sum(record.formula is not None and not record.formula.unanswered for record in records),
        reason=next((format_budget(record.error_budget) for record in reversed(records) if record.error_budget), ""),
    )


def sharpness_remarks(records: Iterable[Record]) -> list[str]:
    """Returns one remark on each pairing whose bounds are blunt, of its bluntest backend and dtype."""
    bluntest: dict[str, Sharpness] = {}
    for each in measure_sharpness(records):
        known = bluntest.setdefault(each.pairing, each)
        if each.remark and (not known.remark or (each.best, each.typical) > (known.best, known.typical)):
            bluntest[each.pairing] = each
    return [f"{name}: {each.remark}" for name, each in bluntest.items() if each.remark]
