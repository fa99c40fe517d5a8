"""Kernels of each family, broken by hand: the bug is found, named and located, and the correct kernel passes."""

import jax
import pytest

from tests.broken import BROKEN, BROKEN_PIPELINES, Broken, edited
from tests.found import findings


def _must_find(broken: Broken, backend: str) -> None:
    named = located = False
    told = []
    for record in findings(broken.broken(), [backend]):
        told.append(" ".join((record.family, record.signature, record.message)))
        named |= record.verdict == broken.verdict
        located |= broken.where in told[-1]
        if named and located:
            return
    pytest.fail(f"{'located' if located else 'not located'}, {'' if named else 'not '}{broken.verdict}: {told[:5]}")


@pytest.mark.sweep(10)
@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: f"{b.pairing}: {b.name}")
def test_a_broken_kernel_is_found_and_located(broken: Broken) -> None:
    _must_find(broken, "interpret")


@pytest.mark.parametrize("broken", BROKEN_PIPELINES, ids=lambda b: f"{b.pairing}: {b.name}")
def test_a_broken_pipeline_is_found_on_hopper(broken: Broken) -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("all stagings take minutes on the interpreter; tests/pipeline_bugs.py has small ones")
    _must_find(broken, "cuda")


def test_every_family_of_kernels_is_broken_in_three_ways() -> None:
    families = [broken.family for broken in (*BROKEN, *BROKEN_PIPELINES)]
    assert all(families.count(family) >= 3 for family in families)
    assert set(families) == {"vector_add", "iota", "matmul", "batched_matmul", "softmax", "rms_norm", "pipeline_copy"}


def test_an_edit_that_no_longer_fits_the_source_is_an_error() -> None:
    with pytest.raises(ValueError, match="occurs 0 times"):
        edited("iota", (("no such line", ""),))
