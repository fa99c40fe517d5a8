"""Covering arrays: few rows in which every pair, or triple, of options occurs."""

import itertools
from collections import Counter
from typing import Any

from allpairspy import AllPairs


def covering(factors: list[tuple[Any, ...]], strength: int) -> list[list[Any]]:
    """Rows of one option a factor, such that every combination of options of `strength` factors occurs in one."""
    if len(factors) < 2:
        return [[value] for value in factors[0]] if factors else [[]]
    strength = min(strength, len(factors))
    rows = [list(row) for row in AllPairs([list(f) for f in factors], n=strength)]
    return _balanced(rows, factors, strength)


def _balanced(rows: list[list[Any]], factors: list[tuple[Any, ...]], strength: int) -> list[list[Any]]:
    """The same coverage, but entries that no tuple needs are spread evenly rather than left at one option."""

    def tuples(row: list[Any], column: int, value: Any) -> list[tuple[tuple[int, Any], ...]]:
        others = [entry for entry in enumerate(row) if entry[0] != column]
        rest = itertools.combinations(others, strength - 1)
        return [tuple(sorted((*entries, (column, value)), key=lambda entry: entry[0])) for entries in rest]

    covered = Counter(t for row in rows for t in itertools.combinations(enumerate(row), strength))
    for row in rows:
        for column, options in enumerate(factors):
            old = tuples(row, column, row[column])
            if any(covered[t] < 2 for t in old):
                continue
            covered.subtract(old)
            row[column] = min(options, key=lambda value: sum(covered[t] for t in tuples(row, column, value)))
            covered.update(tuples(row, column, row[column]))
    return rows
