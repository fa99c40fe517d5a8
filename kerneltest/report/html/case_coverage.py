"""The lengths and the special values that the cases of a pairing cover, and the slowest cases."""

import heapq
from collections import Counter
from collections.abc import Sequence

from kerneltest.core.dtypes import is_float, is_integer, parse_dtype
from kerneltest.records.evidence import OF_COUNTS, FillExtent, SpecialValue
from kerneltest.records.schema import Record

MOST_SLOW = 10  # cases of a pairing
_MOST_LENGTHS = 40  # of a dim
_MOST_ARGUMENTS = 16
_EXTENTS = (FillExtent.SOME, FillExtent.ROW, FillExtent.ALL)
COVERED_VALUES = [value for value in SpecialValue if value not in OF_COUNTS]
_OF_NUMBERS = (SpecialValue.ZERO, SpecialValue.NEGATIVE, SpecialValue.REPEATED)


def length_coverage(records: Sequence[Record]) -> list[list[object]]:
    """Returns dim, length with its numbers of failing and of all cases, and the number of further lengths."""
    tried: dict[str, Counter[int]] = {}
    failing: Counter[tuple[str, int]] = Counter()
    for record in records:
        if record.case and record.verdict.is_judgement:
            for dim, length in record.dims.items():
                tried.setdefault(dim, Counter())[length] += 1
                failing[dim, length] += record.verdict.is_finding
    return [
        [
            dim,
            [[length, failing[dim, length], counts[length]] for length in sorted(counts)[:_MOST_LENGTHS]],
            max(0, len(counts) - _MOST_LENGTHS),
        ]
        for dim, counts in tried.items()
    ]


def special_coverage(records: Sequence[Record]) -> list[list[object]]:
    """Returns each argument with its cases by special value: in some elements, in a row, and in all elements.

    A value that no dtype of the argument has is None.
    """
    dtypes: dict[str, set[str]] = {}
    counts: Counter[tuple[str, SpecialValue, FillExtent]] = Counter()
    for record in records:
        if record.case and record.tier.gives_values and record.verdict.is_judgement:
            for path, dtype in record.dtypes.items():
                dtypes.setdefault(path, set()).add(dtype)
            counts.update((each.argument, each.value, each.part) for each in record.special_inputs)
    return [
        [
            path,
            [
                [counts[path, value, part] for part in _EXTENTS] if any(_has(each, value) for each in found) else None
                for value in COVERED_VALUES
            ],
        ]
        for path, found in list(dtypes.items())[:_MOST_ARGUMENTS]
    ]


def _has(name: str, value: SpecialValue) -> bool:
    """Returns whether a dtype has a special value; True for a dtype of another kerneltest."""
    try:
        dtype = parse_dtype(name)
    except (TypeError, ValueError):
        return True
    if dtype.kind == "b":
        return value is SpecialValue.FALSE
    if is_float(dtype):
        return value is not SpecialValue.FALSE
    return is_integer(dtype) and value in _OF_NUMBERS


def slowest_cases(records: Sequence[Record], first: int) -> list[tuple[int, float]]:
    """Returns row and seconds of the slowest cases of a pairing that ran; the slowest first.

    Args:
      records: of the pairing.
      first: the row of the first of them.
    """
    timed = [(record.seconds, first + i) for i, record in enumerate(records) if record.case and not record.reused_from]
    return [(row, float(f"{seconds:.3g}")) for seconds, row in heapq.nlargest(MOST_SLOW, timed) if seconds > 0]
