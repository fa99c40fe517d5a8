"""Digests of arrays: of every bit, or of what two machines agree on."""

import hashlib
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float

_STEPS = 2.0**20  # of the largest finite magnitude, to which approximate values are rounded


def digest_array(values: Any, *, approximate: bool = False) -> str:
    """Returns a digest of an array's dtype, shape and elements.

    Args:
      values: a NumPy array or scalar of numbers, booleans or Python objects.
      approximate: whether floats that differ by a few roundings, as between machines, count as equal.
    """
    array = np.asarray(values)
    head = f"{array.dtype}{array.shape}"
    if array.dtype == object:
        content = repr(array.tolist()).encode("utf-8", "surrogatepass")
    elif approximate and is_float(array.dtype):
        content = _rounded(array).tobytes()
    else:
        content = np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(head.encode() + content).hexdigest()[:32]


def _rounded(array: Array) -> Array:
    """Returns floats as integers in units of a step; infinities and NaN beyond all of them."""
    wide = np.asarray(array, np.float64)
    finite = np.isfinite(wide)
    largest = float(np.max(np.abs(wide[finite]), initial=0.0)) or 1.0
    with np.errstate(all="ignore"):
        steps = np.where(
            finite, np.rint(wide / largest * _STEPS), np.nan_to_num(wide, nan=3, posinf=2, neginf=-2) * 1e12
        )
        scale = np.rint(np.log2(largest) * _STEPS)
    return np.append(steps.ravel(), scale) + 0.0  # no negative zeros
