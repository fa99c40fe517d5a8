"""Bugs that show only at production sizes, in little memory."""

import resource
from collections.abc import Iterator

import pytest

from tests.corpus import PRODUCTION
from tests.corpus.judged import pair_of_tests

MOST_MEMORY = 2 * 2**20  # KiB

test_the_broken_twin_is_found, test_the_right_twin_is_not_accused = pair_of_tests(PRODUCTION, broken=9, right=9)


@pytest.fixture(autouse=True)
def _memory_stays_small() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY
