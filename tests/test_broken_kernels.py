"""Each family of kernels, broken by hand: the break is found, named and located; its right twin is not accused."""

import jax
import pytest

import kerneltest as kt
from tests.broken import BROKEN, BROKEN_ON_HOPPER, Broken, edited


def _must_find(broken: Broken, backend: str) -> None:
    result = kt.check(broken.broken(), backends=[backend], depth="quick")
    assert {finding.verdict for finding in result.findings} >= {broken.verdict}
    told = [" ".join((f.family, f.signature, f.message)) for f in result.findings]
    assert any(broken.where in text for text in told), told[:5]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: f"{b.pairing}: {b.name}")
def test_a_broken_kernel_is_found_and_located(broken: Broken) -> None:
    _must_find(broken, "interpret")


@pytest.mark.parametrize("broken", BROKEN_ON_HOPPER, ids=lambda b: f"{b.pairing}: {b.name}")
def test_a_broken_pipeline_is_found_on_hopper(broken: Broken) -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("Mosaic GPU kernels run on a Hopper GPU only; reports/h200 holds this test's outcome there")
    _must_find(broken, "cuda")


def test_every_family_of_kernels_is_broken_in_three_ways() -> None:
    families = [broken.family for broken in (*BROKEN, *BROKEN_ON_HOPPER)]
    assert all(families.count(family) >= 3 for family in families)
    assert set(families) == {"vector_add", "iota", "matmul", "batched_matmul", "softmax", "rms_norm", "pipeline_copy"}


def test_an_edit_that_no_longer_fits_the_source_is_an_error() -> None:
    with pytest.raises(ValueError, match="occurs 0 times"):
        edited("iota", (("no such line", ""),))
