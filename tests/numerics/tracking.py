"""Tracked arrays without a pairing, on machines that round and machines that do not."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import sample_outputs
from kerneltest.numerics.tracked import TrackedArray, instrument

PLAIN = Precision("plain", {})


def silent(rows: int) -> RoundingModel:
    """Returns a machine whose rows all stay exact."""
    return RoundingModel(PLAIN, FLOAT32, rows, rows_by_source={})


def tracked(samples: Array, machine: RoundingModel, fmt: FloatFormat | None = FLOAT32) -> TrackedArray:
    """Returns a tracked array with these samples, (rows or 1, *shape)."""
    return TrackedArray(np.asarray(samples), machine, frozenset({fmt} if fmt else ()))


def samples_of(
    oracle: Callable[..., Any], leaves: Mapping[str, Array], machine: RoundingModel, fmt: FloatFormat = FLOAT32
) -> Array:
    """Returns the samples of an oracle with one output, which may create arrays itself."""
    copied = instrument(oracle)
    (found,) = sample_outputs(lambda given: (copied(**given),), leaves, dict.fromkeys(leaves, fmt), machine)
    return found
