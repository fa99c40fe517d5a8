"""Signatures: every pair of lengths, dtypes and static arguments occurs, in few signatures."""

import itertools

import pytest

from kerneltest.plan.signatures import dtypes_of, signatures
from suites.test_matmul import tiled


@pytest.mark.parametrize("depth", ["quick", "standard"])
def test_every_pair_of_values_occurs(depth: str) -> None:
    rows = [
        {**{f"dim {k}": v for k, v in s.dims}, **dict(s.statics), "dtype": s.dtype} for s in signatures(tiled, depth)
    ]
    values = {key: {row[key] for row in rows} for key in rows[0]}
    for a, b in itertools.combinations(values, 2):
        assert {(row[a], row[b]) for row in rows} == set(itertools.product(values[a], values[b])), (a, b)


def test_signatures_are_few_and_dtypes_have_a_fair_share() -> None:
    found = signatures(tiled, "standard")
    assert len(found) <= 64
    shares = [sum(s.dtype == name for s in found) for name in dtypes_of(tiled, "standard")]
    assert min(shares) * 2 >= len(found) / len(shares)
