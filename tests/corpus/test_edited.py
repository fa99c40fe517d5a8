"""Kernels of each family, broken by an edit; `make conformance` runs the right ones."""

import pytest

from tests.corpus import EDITED, TWINS
from tests.corpus.judged import pair_of_tests
from tests.corpus.twin import Edit

FOUND = [twin for twin in EDITED if twin.verdicts]

test_the_broken_twin_is_found, _ = pair_of_tests(FOUND, broken=10)


def test_every_family_of_kernels_is_broken_in_three_ways() -> None:
    families = [twin.edit.family for twin in FOUND]
    assert all(families.count(family) >= 3 for family in families)
    assert set(families) == {"vector_add", "iota", "matmul", "batched_matmul", "softmax", "rms_norm", "pipeline_copy"}


def test_an_edit_that_no_longer_fits_the_source_is_an_error() -> None:
    with pytest.raises(ValueError, match="occurs 0 times"):
        Edit("iota.blocked", changes=(("no such line", ""),)).sources()


def test_no_two_twins_have_one_name() -> None:
    assert len(TWINS) == 316
