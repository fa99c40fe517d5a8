"""The magnitudes of a case's inputs."""

from collections.abc import Mapping

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.records.magnitudes import HIGHEST, LOWEST, Magnitudes

_COUNT = HIGHEST - LOWEST + 1  # of binades


def find_magnitudes(arguments: Mapping[str, Array]) -> tuple[Magnitudes, ...]:
    """Returns the binades of the numbers in array arguments, which are given by path."""
    return tuple(
        Magnitudes(path, *_binades(values))
        for path, values in arguments.items()
        if is_float(values.dtype) or is_integer(values.dtype)
    )


def _binades(values: Array) -> tuple[int, int]:
    """Returns the binades of positive and of negative numbers as bits."""
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
    wide = wide[np.isfinite(wide) & (wide != 0)]
    numbers = np.frexp(wide)[1].clip(LOWEST + 1, HIGHEST + 1) - (LOWEST + 1)
    found = np.flatnonzero(np.bincount(numbers + _COUNT * (wide < 0))).tolist()
    both = sum(1 << number for number in found)
    return both % (1 << _COUNT), both >> _COUNT
