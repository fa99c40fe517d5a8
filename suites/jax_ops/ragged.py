"""Groups of rows of different lengths, and their products with one matrix a group."""

from typing import Any

import numpy as np

import kerneltest as kt


def group_sizes(axis: str) -> Any:
    """The lengths of `g` groups that cover an axis, some of them empty."""
    lengths = {"m": lambda rng, g, m: _parts(rng, g, m), "k": lambda rng, g, k: _parts(rng, g, k)}
    return kt.derived("g", lengths[axis], dtypes="int32")


def _parts(rng: np.random.Generator, groups: int, length: int) -> np.ndarray:
    ends = np.sort(rng.integers(0, length + 1, groups - 1))
    return np.diff(ends, prepend=0, append=length)


def ragged_product(a: np.ndarray, b: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The product of each group of rows with its own matrix."""
    ends = np.cumsum(sizes)
    return np.concatenate([a[end - n : end] @ each for n, end, each in zip(sizes, ends, b, strict=True)])
