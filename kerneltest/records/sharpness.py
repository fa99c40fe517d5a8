"""Sharpness: how small an error of an output its bounds would still show."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from statistics import median_low

from kerneltest.core.details import Unavailable
from kerneltest.core.grouping import group_pairs
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.records.evidence import format_budget
from kerneltest.records.schema import Record

_USELESS = 0.1  # relative error that any bound should show somewhere
_BLUNT = 0.01  # relative error that bounds in float32 should show in the typical case


@dataclass(frozen=True, slots=True)
class Sharpness:
    """The sharpness of a pairing's bounds, in its numeric cases on one backend and in one dtype.

    Errors are relative and those of rounding: a wrong formula is found without rounding, whatever these bounds admit.
    """

    # pairing, backend, dtype: of the cases
    pairing: str
    backend: str
    dtype: str
    # best, typical: the smallest error of a whole output that its bounds show, in the sharpest and in the median case
    best: float
    typical: float
    coarse: float  # the share of elements whose bound exceeds a tenth of their value
    cases: int  # number of cases that compared finite values
    formulas: int  # number of these in which the formula was asked without rounding
    reason: str  # the parts of the bound of a case that has an error budget, in words; "" without one

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
    by_place = group_pairs(
        ((record.pairing, record.backend, record.dtype), record)
        for record in records
        if record.group == GroupName.NUMERIC and record.compared and record.expected and record.expected.finite
    )
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


# The questions that a pairing's cases ask: comparisons that no kernel can fail say nothing about this one.


@dataclass(slots=True)
class _Asked:
    """The range of values that the compared cases of a pairing expect."""

    known: bool = False  # whether any record says it
    red: bool = False  # whether there is a finding, so that the pairing cannot be green by mistake
    xfailed: bool = False  # whether a declared xfail occurred, which then is what the pairing's cases showed
    # defined, undefined: number of elements of which the oracle asks something, and nothing
    defined: int = 0
    undefined: int = 0
    # least, greatest: of all expected values that are finite
    least: float = math.inf
    greatest: float = -math.inf
    longest: int | None = None  # the greatest length of any dim; None without dims
    formulas: int = 0  # number of cases that were asked whether the formula is right
    unasked: Counter[str] = field(default_factory=Counter)  # number of those that could not be, by the reason
    approximate: int = 0  # number of those whose formula is right only as an approximation
    ulps: float = 0.0  # the largest error of such a formula, in ulps of float32
    narrow: str = ""  # the dtype below float64 in which the oracle returned an output undeclared; "" if it never did
    # static, single: by signature, what had a single state in all of its cases, in words, as far as that is known
    static: dict[str, tuple[str, ...]] = field(default_factory=dict)
    single: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # number of elements in which the oracle itself loses its digits, and number of the cases with some
    doubted: tuple[int, int] = 0, 0

    def add(self, record: Record) -> None:
        if record.case and record.dims:
            self.longest = max(self.longest or 0, *record.dims.values())
        self.red |= record.verdict.is_finding
        self.xfailed |= record.verdict is Verdict.XFAIL
        self.doubted = self.doubted[0] + record.doubted, self.doubted[1] + bool(record.doubted)
        self.defined, self.undefined = self.defined + record.defined, self.undefined + record.undefined
        if record.formula is not None:
            self.formulas += 1
            if record.formula.unanswered:
                self.unasked[record.formula.unanswered] += 1
            self.approximate += bool(record.formula.ulps)
            self.ulps = max(self.ulps, record.formula.ulps)
        expected = record.expected
        if expected is None or not record.compared:
            return
        self.known = True
        self.narrow = self.narrow or expected.narrow
        for known, words in ((self.static, expected.static), (self.single, expected.single)):
            if words is not None and (earlier := known.setdefault(record.signature, words)) != words:
                known[record.signature] = _common([earlier, words])
        if expected.finite:
            self.least, self.greatest = min(self.least, expected.least), max(self.greatest, expected.greatest)

    @property
    def is_constant(self) -> bool:
        """True if all expected values are one number that memory does not hold by chance."""
        return self.least == self.greatest != 0

    @property
    def problem(self) -> str:
        if self.undefined and not (self.defined or self.red or self.xfailed):
            return "nothing was compared: the oracle leaves all elements undefined in every case that ran"
        if not self.known or self.red or self.least < self.greatest or self.is_constant:
            return ""
        value = "NaN or infinite" if self.least > self.greatest else "0"
        return f"nothing informative was compared: every value that the oracle expects is {value}"

    @property
    def remarks(self) -> list[str]:
        found = []
        if self.is_constant and self.known and not self.red:
            found.append(f"every value that the oracle expects is {self.least:g}, which few wrong kernels miss")
        if self.longest == 1 and self.known:
            found.append("every dim has only the length 1, so no order, tail or block is tested; plan longer ones")
        else:
            found += [*_common(self.static.values()), *_common(self.single.values())][:1]
        if self.narrow:
            found.append(
                f"the oracle returns {self.narrow}, so the expected values are rounded: return float64, without the "
                "cast, or declare the dtype with returns="
            )
        if self.approximate and not self.red:
            found.append(
                f"the formula differs by up to {self.ulps:.1g} ulps of float32 in {self.approximate:,} of "
                f"{self.formulas:,} cases: an approximation, or a constant of seven digits"
            )
        if self.doubted[0]:
            elements, cases = self.doubted
            found.append(
                f"{elements:,} elements of {cases:,} cases are not compared: the oracle loses its digits there, in "
                "float64, or has NaN by convention, as 0 * inf is in NumPy"
            )
        for reason, count in self.unasked.most_common(1):
            found.append(f"{count:,} of {self.formulas:,} cases were judged only by their rounding: {reason}")
        return found


def _common(remarks: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    first, *others = [*remarks] or [()]
    return tuple(words for words in first if all(words in other for other in others))


class Informativeness:
    """The one judgement whether a run, and each of its pairings, compared anything that a kernel could fail.

    A pairing in which only some cells compare nothing, such as those whose rows are all masked, is not judged by them.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._by_pairing: defaultdict[str, _Asked] = defaultdict(_Asked)
        self._findings: Counter[Verdict] = Counter()
        self._compared = False
        self._ran = False
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        self._by_pairing[record.pairing].add(record)
        self._findings[record.verdict] += record.verdict.is_finding
        self._compared = self._compared or bool(record.compared)
        self._ran = self._ran or not (isinstance(record.detail, Unavailable) and record.detail.skipped)

    def problems(self, *, elsewhere: Collection[str] = ()) -> list[str]:
        """Returns why nothing that was compared, in the run or a pairing with no record `elsewhere`, could fail."""
        found = [
            f"{name}: {asked.problem}"
            for name, asked in self._by_pairing.items()
            if asked.problem and name not in elsewhere
        ]
        was_skipped = bool(self._by_pairing) and not self._ran  # as its author or another plugin wants it
        if self._compared or elsewhere or was_skipped:
            return found
        endings = ", ".join(f"{count} {verdict}" for verdict, count in self._findings.most_common() if count)
        cause = f": its cases ended as {endings}" if endings else ""
        return [f"nothing was compared in the whole run{cause}", *found]

    def remarks(self) -> list[str]:
        return [f"{name}: {line}" for name, asked in self._by_pairing.items() for line in asked.remarks]
