"""The pattern of wrong elements that all findings of a suspect have in common, axis by axis.

A pattern is a region of indices along one axis. It is stated if every finding is wrong inside of it only, and most of
those that could show otherwise are wrong at each of its indices.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.core.verdicts import GroupName
from kerneltest.records.evidence import EVERY_ELEMENT, AxisFootprint, PatternKind
from kerneltest.records.schema import Record
from kerneltest.triage.symptoms import OF_SPECIAL_VALUES, symptom

_FILLED = 0.75  # share of the findings that can tell whose wrong elements fill the region; in others some are equal
_MOST_AXES = 2  # that a title is about
_MOST_NUMBERS = 4  # of the regions of one kind that are tried, those of most findings
_OF_ALL_ELEMENTS = (GroupName.STRUCTURAL, GroupName.NUMERIC)  # groups of families whose values are alike everywhere


def _up_to(end: int) -> int:
    return (1 << max(end, 0)) - 1


def _every(step: int, start: int, length: int) -> int:
    count = max(0, -((start - length) // step))
    return ((1 << step * count) - 1) // ((1 << step) - 1) << start


_Numbers = Callable[[int, int, int], int]


@dataclass(frozen=True, slots=True)
class _Region:
    # A kind of region along an axis: the indices in it, by the axis' length and block and by a number.
    words: str  # with places for the axis and the number
    bits: _Numbers
    # the number of the region that fits some indices, by these, the axis' length and its block
    number: _Numbers = lambda bits, length, block: 0
    blocked: bool = False  # whether it needs blocks of more than one element
    windowed: bool = False  # whether the number may be another dim's length or one less, as the edge of a window is


def _first(bits: int, *_: int) -> int:
    return (bits & -bits).bit_length() - 1


def _last_block(length: int, block: int, number: int) -> int:
    return _up_to(length) & ~_up_to((length - 1) // block * block)


def _blocked(words: str, bits: _Numbers, number: _Numbers = lambda bits, length, block: 0) -> _Region:
    return _Region(f"{words} block of {{axis}}", bits, number, blocked=True)


def _but(bits: _Numbers) -> _Numbers:
    return lambda n, b, k: _up_to(n) & ~bits(n, b, k)


# In order of preference, if several fit equally well.
_REGIONS = (
    _blocked("only past the last full", lambda n, b, k: _up_to(n) & ~_up_to(n // b * b)),
    _blocked("only in the last", _last_block),
    _blocked("only in the first", lambda n, b, k: _up_to(min(b, n))),
    _blocked("everywhere but in the first", _but(lambda n, b, k: _up_to(b))),
    _blocked("everywhere but in the last", _but(_last_block)),
    _Region("only at index 0 of {axis}", lambda n, b, k: 1),
    _Region("only at the last index of {axis}", lambda n, b, k: 1 << n - 1),
    _Region("everywhere but at index 0 of {axis}", _but(lambda n, b, k: 1)),
    _Region("everywhere but at the last index of {axis}", lambda n, b, k: _up_to(n - 1)),
    _blocked("only at index {number} of each", lambda n, b, k: _every(b, k, n), lambda bits, n, b: _first(bits) % b),
    _blocked("only at the last index of each", lambda n, b, k: _every(b, b - 1, n) | 1 << n - 1),
    _Region(
        "only past the last multiple of {number} along {axis}",
        lambda n, b, k: _up_to(n) & ~_up_to(n // k * k),
        lambda bits, n, b: _first(bits) & -_first(bits) or 1 << n.bit_length(),  # the greatest power of two that fits
    ),
    _Region("only in the first half of {axis}", lambda n, b, k: _up_to(n // 2)),
    _Region("only in the second half of {axis}", _but(lambda n, b, k: _up_to(n // 2))),
    _Region("only at even indices of {axis}", lambda n, b, k: _every(2, 0, n)),
    _Region("only at odd indices of {axis}", lambda n, b, k: _every(2, 1, n)),
    _Region(
        "only in block {number} of {axis}",
        lambda n, b, k: _up_to(n) & _up_to((k + 1) * b) & ~_up_to(k * b),
        lambda bits, n, b: _first(bits) // b,
        blocked=True,
    ),
    _Region("only at index {number} of {axis}", lambda n, b, k: _up_to(n) & 1 << k, _first, windowed=True),
    _Region(
        "only at the last {number} indices of {axis}",
        _but(lambda n, b, k: _up_to(n - k)),
        lambda bits, n, b: n - _first(bits),
        windowed=True,
    ),
    _Region("only from index {number} of {axis} on", _but(lambda n, b, k: _up_to(k)), _first, windowed=True),
    _Region(
        "only below index {number} of {axis}",
        lambda n, b, k: _up_to(min(k, n)),
        lambda bits, *_: bits.bit_length(),
        windowed=True,
    ),
)


def common_pattern(findings: Sequence[Record], smallest: Record | None = None) -> str:
    """Returns the pattern that the wrong elements of all findings of a suspect make, in words; "" if there is none.

    Findings without values say nothing. The smallest case is wrong inside of the pattern too, but need not fill it.
    """
    values = [record for record in findings if record.shown.actual is not None]
    numbers = [record for record in values if symptom(record).effect not in OF_SPECIAL_VALUES]
    values = numbers or values  # NaN and infinities spread
    shown = [*values, *([smallest] if smallest is not None and smallest.shown.actual is not None else [])]
    if not values:
        return ""
    several = [record for record in shown if getattr(record.detail, "total", 2) > 1]
    patterns = [record.shown.pattern for record in several]
    if patterns and all(each is not None and each.kind is PatternKind.EVERYWHERE for each in patterns):
        return EVERY_ELEMENT
    return " and ".join(_by_axis(values, shown))


def _by_axis(values: Sequence[Record], shown: Sequence[Record]) -> Iterator[str]:
    found = 0
    for name in dict.fromkeys(axis.axis for axis in values[0].shown.footprint):
        axes = [next((axis for axis in r.shown.footprint if axis.axis == name), None) for r in shown]
        known = [axis for axis in axes if axis is not None and axis.length]
        if len(known) < len(shown) or found == _MOST_AXES:
            continue
        telling = [i for i, axis in enumerate(known[: len(values)]) if axis.runs != ()]
        # A family that disturbs the argument at one place makes a pattern of its own.
        ordinary = any(values[i].group in _OF_ALL_ELEMENTS for i in telling)
        is_said = ordinary or len({values[i].family for i in telling}) > 1
        if is_said and (words := _along(name, known, [record.dims for record in shown], telling)):
            found += 1
            yield words.removeprefix("only ") if found > 1 else words


def _along(name: str, axes: Sequence[AxisFootprint], dims: Sequence[Mapping[str, int]], telling: Sequence[int]) -> str:
    cases = [(axis.length, axis.block, axis.bits or 0) for axis in axes]
    known = [cases[i] for i in telling]
    if any(axis.bits is None for axis in axes) or (len({*known}) < 2 and len({*cases}) > 1):
        return ""
    regions = [each for each in _REGIONS if not each.blocked or all(block > 1 for _, block, _ in cases)]
    numbers: list[tuple[_Region, int | str, Sequence[int]]] = [
        (region, number, [number] * len(cases))
        for region in regions
        for number, _ in Counter(region.number(bits, n, b) for n, b, bits in known).most_common(_MOST_NUMBERS)
    ]
    for dim, less in itertools.product((dim for dim in dims[0] if dim != name), (0, 1)):
        lengths = [max(0, each.get(dim, 0) - less) for each in dims]
        numbers += [(region, f"{dim} - 1" if less else dim, lengths) for region in _REGIONS if region.windowed]
    best, words = _FILLED * len(known), ""
    for region, number, by_case in numbers:
        inside = [region.bits(n, b, k) for (n, b, _), k in zip(cases, by_case, strict=True)]
        if all(bits & ~own == 0 for (_, _, bits), own in zip(cases, inside, strict=True)):
            filling = [i for i in telling if cases[i][2] == inside[i]]
            if isinstance(number, str) and len({by_case[i] for i in filling}) < 2:
                continue  # a number fits as well as the dim
            filled = len(filling)
            if filled > best or (filled == best and not words):
                best, words = filled, region.words.format(axis=name, number=number)
    return words
