"""Where wrong elements lie, in blocks and in words."""

from collections.abc import Callable

import numpy as np
import pytest

from kerneltest.judge.compare import compare
from kerneltest.judge.locate import Axis, Location, axes_of, locate

AXES = (Axis("m", 20, 8), Axis("n", 21, 8))
EXPECTED = np.arange(20 * 21, dtype=np.float64).reshape(20, 21)


def _located(change: Callable[[np.ndarray], None], expected: np.ndarray = EXPECTED) -> Location:
    actual = expected.astype(np.float32)
    change(actual)
    return locate(compare(actual, expected, np.zeros(expected.shape), signed_zeros=False), AXES)


def _tail(a: np.ndarray) -> None:
    a[:, 16:] = -1


def _row(a: np.ndarray) -> None:
    a[3] = -1


def _block(a: np.ndarray) -> None:
    a[8:16, ::3] = -1


def _shift(a: np.ndarray) -> None:
    a[:, 8:16] = EXPECTED[:, 0:8]


def _all(a: np.ndarray) -> None:
    a += 1


def _scattered(a: np.ndarray) -> None:
    a[2, 3] = a[9, 13] = a[17, 1] = -1


@pytest.mark.parametrize(
    ("change", "pattern", "blocks"),
    [
        (_tail, "only past the last full block of n (from 16 on)", (3, 9)),
        (_row, "only where m is 3", (3, 9)),
        (_block, "only in block 1 of m (3 blocks)", (3, 9)),
        (_shift, "holds what belongs 1 block of n further back", (3, 9)),
        (_all, "every element", (9, 9)),
        (_scattered, "", (3, 9)),
    ],
)
def test_a_pattern_is_named_or_nothing_is_claimed(
    change: Callable[[np.ndarray], None], pattern: str, blocks: tuple[int, int]
) -> None:
    found = _located(change)
    assert (found.pattern, found.wrong_blocks) == (pattern, blocks)


def test_the_worst_element_is_named_with_its_block() -> None:
    def change(a: np.ndarray) -> None:
        a[9, 17] += 100
        a[0, 0] += 1

    found = _located(change)
    assert found.index == (9, 17)
    assert found.block == "m=1 n=2"


def test_constant_values_are_not_taken_for_a_shifted_block() -> None:
    def change(a: np.ndarray) -> None:
        a[:, 8:16] = 0

    assert _located(change, np.full((20, 21), 5.0)).pattern == "only in block 1 of n (3 blocks)"


def test_axes_are_known_by_their_lengths_over_signatures() -> None:
    shapes = [(8, 8), (8, 9)]
    dims = [{"m": 8, "n": 8}, {"m": 8, "n": 9}]
    assert axes_of(shapes, dims) == ("m", "n")
    assert axes_of(shapes[:1], dims[:1]) == ("", "")
