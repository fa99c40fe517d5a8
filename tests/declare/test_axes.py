"""Axes made of dims: what is read, how long they are, and which elements belong to a slice."""

import numpy as np
import pytest

from kerneltest.declare.dims import AxisExpression, dims_in, length_of, parse_axis, positions_along

LENGTHS = {"m": 2, "g": 3, "h": 4}


@pytest.mark.parametrize(
    ("word", "length", "names"),
    [
        ("m", 2, ("m",)),
        ("128", 128, ()),
        ("2*h", 8, ("h",)),
        ("h*g", 12, ("h", "g")),
        ("m+1", 3, ("m",)),
        ("h-1", 3, ("h",)),
        ("m+g", 5, ("m", "g")),
        ("2*h+m*g+1", 15, ("h", "m", "g")),
        ("m+2+3-1", 6, ("m",)),
    ],
)
def test_lengths(word: str, length: int, names: tuple[str, ...]) -> None:
    axis = parse_axis(word)
    assert (length_of(axis, LENGTHS), dims_in(axis)) == (length, names)
    assert parse_axis(str(axis)) == axis


@pytest.mark.parametrize("word", ["m//2", "*m", "m+", "2**m", "m-g", "3+4", "-m", "+1", "m,n", "", "m*-1"])
def test_what_is_no_length_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_axis(word)
    assert repr(word) in str(caught.value)


@pytest.mark.parametrize(
    ("word", "dim", "at", "positions"),
    [
        ("h", "h", [2], [2]),
        ("h*g", "h", [1], [3, 4, 5]),
        ("h*g", "g", [1], [1, 4, 7, 10]),
        ("2*h", "h", [1, 2], [1, 2, 5, 6]),
        ("h+1", "h", [1], [1, 2]),
        ("h+1", "h", [1, 2], [1, 2, 3]),
        ("h-1", "m", [1], [0, 1, 2]),
        ("m+h+1", "g", [1], [0, 1, 2, 3, 4, 5, 6]),
        ("m+h", "h", [3], [0, 1, 5]),
        ("m+h", "m", [1], [1, 2, 3, 4, 5]),
    ],
)
def test_a_slice_takes_what_belongs_to_it(word: str, dim: str, at: list[int], positions: list[int]) -> None:
    assert positions_along(parse_axis(word), LENGTHS, {dim: np.array(at)}).tolist() == positions


def test_a_slice_is_as_long_as_the_axis_of_a_short_dim() -> None:
    for word in ("h*g", "2*h", "h+1", "m+h", "2*h+m*g+1"):
        axis = parse_axis(word)
        assert isinstance(axis, AxisExpression)
        for length in (1, 2, 3):
            taken = axis.positions(LENGTHS, {"h": np.arange(1, 1 + length)})
            assert len(taken) == axis.length({**LENGTHS, "h": length})
