"""What an oracle's own rounding may leave of a zero."""

from collections.abc import Mapping

import numpy as np

from kerneltest.core.dtypes import Array, widen
from kerneltest.numerics.spread import median

_SHARE = 2.0**-40  # of a typical input: 8,000 roundings of float64


def oracle_noise(arguments: Mapping[str, Array]) -> float:
    """How far from a zero an oracle's answer may be, absolute, for arguments by path."""
    return _SHARE * max(map(_typical, arguments.values()), default=0.0)


def _typical(values: Array) -> float:
    """The median magnitude of finite elements other than zero: one huge element does not make noise of the rest."""
    wide = np.abs(np.asarray(widen(values), np.float64))
    sizes = wide[np.isfinite(wide) & (wide > 0)]
    return median(sizes) if sizes.size else 0.0
