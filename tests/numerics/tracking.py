"""Tracked arrays without a pairing, on machines that round and machines that do not."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.numerics.numpy_patch import watching
from kerneltest.numerics.rounding_model import Machine
from kerneltest.numerics.samples import SampledArray
from kerneltest.numerics.spread import sampled
from kerneltest.numerics.tracked import TrackedArray

PLAIN = Precision("plain", {})


def silent(rows: int) -> Machine:
    """Returns a machine whose rows all stay exact."""
    return Machine(PLAIN, FLOAT32, rows, parts={})


def tracked(samples: Array, machine: Machine, fmt: FloatFormat | None = FLOAT32) -> TrackedArray:
    """Returns a tracked array with these samples, (rows or 1, *shape)."""
    return TrackedArray(np.asarray(samples), machine, fmt)


def rows_of(value: Any) -> Array:
    """Returns the samples of a value, (rows or 1, *shape)."""
    return value.samples if isinstance(value, SampledArray) else np.asarray(value)[None]


def samples_of(
    oracle: Callable[..., Any], leaves: Mapping[str, Array], machine: Machine, fmt: FloatFormat = FLOAT32
) -> Array:
    """Returns the samples of an oracle with one output, which may create arrays itself."""
    copied = watching(oracle)
    (found,) = sampled(lambda given: (copied(**given),), leaves, dict.fromkeys(leaves, fmt), machine)
    return found
