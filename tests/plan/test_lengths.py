"""Boundary lengths: around the block, within a dim's bounds."""

import pytest

import kerneltest as kt
from kerneltest.declare.dims import Dim
from kerneltest.plan.lengths import boundary_lengths


@pytest.mark.parametrize(
    ("dim", "lengths"),
    [
        (kt.dim(block=64), {1, 63, 64, 65, 128, 159, 259}),
        (kt.dim(block=64, minimum=0), {0, 1, 63, 64, 65, 128, 159, 259}),
        (kt.dim(block=64, minimum=2, maximum=100), {2, 63, 64, 65, 100}),
        (kt.dim(block=32, multiple_of=16), {16, 32, 48, 64, 80, 144}),
        (kt.dim(block=1), {1, 2, 3, 7}),
        (kt.dim(values=(7, 3)), {3, 7}),
    ],
)
def test_lengths_lie_around_the_block_and_within_the_bounds(dim: Dim, lengths: set[int]) -> None:
    assert set(boundary_lengths(dim)) == lengths


def test_past_the_second_block_there_is_an_odd_length() -> None:
    for block in (2, 3, 16, 31, 64, 128):
        assert any(n > 2 * block and n % 2 for n in boundary_lengths(kt.dim(block=block)))


def test_a_dim_that_admits_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no multiple of 64 lies from 1 to 10"):
        boundary_lengths(kt.dim(multiple_of=64, maximum=10))
