"""TPU kernels of the corpus."""

from tests.corpus import TPU
from tests.corpus.judged import pair_of_tests

test_the_broken_twin_is_found, test_the_right_twin_is_not_accused = pair_of_tests(TPU, right=6)
