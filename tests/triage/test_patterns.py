"""The pattern of wrong elements that a title states holds in all findings, and fills its region in most."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kerneltest.core.details import Mismatch
from kerneltest.judge.compare import OutputAxis, compare, locate_mismatch
from kerneltest.records.evidence import Evidence
from kerneltest.records.schema import Record
from kerneltest.triage.patterns import common_pattern
from tests.written import case


def _finding(axes: Sequence[OutputAxis], wrong: np.ndarray, group: str = "structural") -> Record:
    found = locate_mismatch(
        compare(wrong * 1.0, np.zeros(wrong.shape), np.zeros(wrong.shape), signed_zeros=False), axes
    )
    evidence = Evidence(actual=1.0, expected=0.0, pattern=found.pattern, footprint=found.footprint)
    detail = Mismatch("", 0, "", int(wrong.sum()), wrong.size, "", found.index, "", "")
    return case(verdict="mismatch", group=group, detail=detail, evidence=evidence)


def _along(length: int, block: int, wrong: Iterable[int], group: str = "structural") -> Record:
    return _finding([OutputAxis("n", length, block)], np.isin(np.arange(length), list(wrong)), group)


def _each(region: Any, *lengths: int) -> list[Record]:
    return [_along(n, 8, region(n)) for n in lengths]


_WINDOWS = ((20, 3), (24, 5), (9, 2), (24, 9))


def _by_window(region: Any, lengths: Iterable[tuple[int, int]] = _WINDOWS) -> list[Record]:
    return [replace(_along(n, 8, region(n, k)), dims={"n": n, "k": k}) for n, k in lengths]


def _but_one(record: Record) -> list[Record]:
    return [record, *_each(lambda n: range(n - 4, n), 21, 23), _along(22, 8, [19, 21])]


PATTERNS = {
    "the last, partial block": (_each(lambda n: range(n // 8 * 8, n), 20, 13), "only past the last full block of n"),
    "of the only length": (_each(lambda n: range(16, n), 20), "only past the last full block of n"),
    "the last block": (_each(lambda n: range((n - 1) // 8 * 8, n), 20, 24), "only in the last block of n"),
    "the first block": (_each(lambda n: range(8), 20, 24), "only in the first block of n"),
    "past the first block": (_each(lambda n: range(8, n), 20, 24), "everywhere but in the first block of n"),
    "before the last": (_each(lambda n: range(n - 8), 16, 24), "everywhere but in the last block of n"),
    "past a multiple": (_each(lambda n: range(n // 4 * 4, n), 19, 23, 14), "only past the last multiple of 4 along n"),
    "the first": (_each(lambda n: [0], 1, 20, 24), "only at index 0 of n"),
    "the last": (_each(lambda n: [n - 1], 1, 20, 24), "only at the last index of n"),
    "not the first": (_each(lambda n: range(1, n), 20, 24), "everywhere but at index 0 of n"),
    "not the last": (_each(lambda n: range(n - 1), 20, 24), "everywhere but at the last index of n"),
    "one of each block": (_each(lambda n: range(3, n, 8), 20, 24), "only at index 3 of each block of n"),
    "ends of blocks": (_each(lambda n: [7, 15, n - 1], 20, 24), "only at the last index of each block of n"),
    "every second": (_each(lambda n: range(1, n, 2), 20, 300), "only at odd indices of n"),
    "a half": (_each(lambda n: range(n // 2, n), 20, 26), "only in the second half of n"),
    "one block": (_each(lambda n: range(8, 16), 20, 24), "only in block 1 of n"),
    "one index": (_each(lambda n: [5], 20, 24), "only at index 5 of n"),
    "the last few": (_each(lambda n: range(n - 5, n), 20, 26), "only at the last 5 indices of n"),
    "from one on": (_each(lambda n: range(5, n), 20, 26), "only from index 5 of n on"),
    "up to one": (_each(lambda n: range(5), 20, 26), "only below index 5 of n"),
    "before a window is full": (_by_window(lambda n, k: range(k - 1)), "only below index k - 1 of n"),
    "past the last full window": (_by_window(lambda n, k: range(n - k + 1, n)), "only at the last k - 1 indices of n"),
    "past a length": (_by_window(lambda n, k: range(k, n)), "only from index k of n on"),
    "past one length": (_by_window(lambda n, k: range(min(n, k)), ((2, 1), (3, 1), (2, 16), (3, 17))), ""),
    "long axes": (_each(lambda n: range(32, n), 1000, 70_000), "only from index 32 of n on"),
    "every element": (_each(range, 1, 20, 24), "every element"),
    "filled in three of four": (_but_one(_along(20, 8, range(16, 20))), "only at the last 4 indices of n"),
    "the first one fills less": (
        [_along(20, 8, [1]), *_each(lambda n: range(3), 20, 24, 26)],
        "only below index 3 of n",
    ),
    "filled in half": (_but_one(_along(20, 8, [16])), ""),
    "outside in one": ([*_each(lambda n: range(16, n), 20, 21, 22), _along(24, 8, [3])], ""),
    "scattered": (_each(lambda n: [1, 2, 11, 15], 20, 24), ""),
    "too many runs": (_each(lambda n: range(0, n, 3), 5000, 5003), ""),
    "of one family": ([_along(20, 8, [0], "special"), _along(24, 8, [0], "special")], ""),
    "where one length shows it": (_each(lambda n: range(4, 8), 20, 20) + _each(range, 4), ""),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_describes_the_wrong_elements_of_all_findings(name: str) -> None:
    findings, words = PATTERNS[name]
    assert common_pattern(findings) == words


def test_the_smallest_case_is_wrong_inside_of_the_pattern_and_need_not_fill_it() -> None:
    findings = _each(lambda n: range(n - 4, n), 20, 26)
    assert common_pattern(findings, _along(9, 8, [7])) == "only at the last 4 indices of n"
    assert common_pattern(findings, _along(9, 8, [2])) == ""


def test_nan_that_spreads_hides_no_pattern_of_wrong_numbers() -> None:
    nan = _along(24, 8, range(24), "special")
    nan = replace(nan, evidence=replace(nan.shown, actual=float("nan")))
    assert common_pattern([*_each(lambda n: [n - 1], 20, 24), nan]) == "only at the last index of n"


def test_each_axis_has_a_pattern_of_its_own() -> None:
    def corner(m: int, n: int) -> Record:
        wrong = np.zeros((m, n), bool)
        wrong[m // 8 * 8 :, 0] = True
        return _finding([OutputAxis("m", m, 8), OutputAxis("n", n, None)], wrong)

    words = "only past the last full block of m and at index 0 of n"
    assert common_pattern([corner(20, 5), corner(13, 7)]) == words
