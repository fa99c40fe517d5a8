"""Kernels in Triton itself: each broken one is found, and the right ones are not accused."""

import pytest

pytest.importorskip("triton")

from tests.corpus.in_triton import IN_TRITON
from tests.corpus.judged import pair_of_tests

test_the_broken_twin_is_found, test_the_right_twin_is_not_accused = pair_of_tests(IN_TRITON, broken=12, right=5)
