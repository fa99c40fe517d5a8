"""The magnitudes of a case's inputs."""

from collections.abc import Mapping

import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.records.magnitudes import HIGHEST, LOWEST, Magnitudes


def find_magnitudes(arguments: Mapping[str, Array]) -> tuple[Magnitudes, ...]:
    """Returns the binades of the numbers in array arguments, which are given by path."""
    found = []
    for path, values in arguments.items():
        if is_float(values.dtype) or is_integer(values.dtype):
            with np.errstate(all="ignore"):
                wide = values.astype(np.float64)
            wide = wide[np.isfinite(wide)]
            found.append(Magnitudes(path, _binades(wide[wide > 0]), _binades(-wide[wide < 0])))
    return tuple(found)


def _binades(sizes: Array) -> int:
    """Returns the binades of positive numbers as bits."""
    exponents = np.unique(np.frexp(sizes)[1] - 1)
    return sum({1 << exponent - LOWEST for exponent in exponents.clip(LOWEST, HIGHEST).tolist()})
